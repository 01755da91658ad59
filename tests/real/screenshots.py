"""Take the pictures of docs/console.md: `python tests/real/screenshots.py [FOLDER]`, docs/pictures if none.

Drives the console of a workspace made for it, as its operator would, in the system's Chromium.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from browsing import Console, chromium, console_of, person
from playwright.sync_api import Browser, Page, sync_playwright

DOCS = Path(__file__).parents[2] / "docs/pictures"
MOST = 150 * 1024
"""Bytes of a picture, at most."""
WIDE = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}
SETTINGS = """\
packhost: 1
packs: [agent-runtime, workspace]
bound:
  - path read **
  - path write src/**
  - path write .agent-runtime/**
policy:
  - match: {pack: workspace, permission: write}
    decide: ask
    reason: writes are looked at first
    relaxable: true
agent_runtime:
  default_model: demo
  models:
    demo:
      provider: scripted
      script:
        - text: The greeting lives in one place. I read it first.
          tool_calls:
            - {id: r1, name: workspace_read_file, arguments: {path: src/greeting.py}}
        - text: It can greet by name with a small change.
          tool_calls:
            - id: w1
              name: workspace_edit_file
              arguments:
                path: src/greeting.py
                edits:
                  - {old: 'def greet():', new: 'def greet(name: str) -> str:'}
                  - {old: 'return "Hello"', new: 'return f"Hello, {name}"'}
        - text: Done. `greet` takes a name now.
"""
GREETING = '"""What visitors read first."""\n\n\ndef greet():\n    return "Hello"\n'


@dataclass(frozen=True)
class Demo:
    """A workspace in a folder of its own."""

    root: Path
    environment: dict[str, str]

    def command(self, name: str, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "packhost", name, *arguments, "-w", str(self.root)]


def demo(folder: Path) -> Demo:
    """An accepted workspace with a few files and a scripted model."""
    root, home = folder / "harbour", folder / "home"
    (root / "src").mkdir(parents=True)
    home.mkdir()
    (root / "src/greeting.py").write_text(GREETING)
    (root / "packhost.yaml").write_text(SETTINGS)
    shell = {name: held for name, held in os.environ.items() if name not in ("CLAUDECODE", "CURSOR_AGENT")}
    made = Demo(root, {**shell, "HOME": str(home), "XDG_STATE_HOME": str(home / "state")})
    subprocess.run(
        made.command("accept", "--yes"), env=made.environment, check=True, stdout=subprocess.DEVNULL
    )
    return made


def begin(console: Console) -> str:
    """A run that waits for a person."""
    arguments: dict[str, Any] = {
        "messages": [{"role": "user", "content": "Greet visitors by name."}],
        "loop": True,
    }
    arguments |= {"background": True, "session_id": f"visit-{secrets.token_hex(2)}"}
    done = console.ask("call", tool="agent-runtime:execute-turn", arguments=arguments)
    run, head = str(done["value"]["run_id"]), 0
    while (shown := console.ask("runs.show", id=run))["status"] == "running" and not shown["waiting_on"]:
        head = console.ask("changes.wait", after=head, within=1)["head"]
    return run


def write(console: Console, path: str, content: str) -> None:
    """A write that waits for a person."""
    arguments = json.dumps({"path": path, "content": content})
    subprocess.run(
        console.workspace.command("call", "workspace:write_file", arguments, "--json"),
        env=console.workspace.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )


class Album:
    """Where the pictures go."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def take(self, page: Page, name: str) -> None:
        """One picture of what is in view."""
        page.wait_for_timeout(400)
        path = self.folder / f"console-{name}.png"
        page.evaluate("document.querySelector('.bottom')?.remove()")  # it names a folder of this machine
        page.screenshot(path=path, animations="disabled")
        size = path.stat().st_size
        print(f"{path.name}: {size // 1024} kB")
        assert size <= MOST, f"{path.name} is too large"


def tour(console: Console, browser: Browser, album: Album) -> None:
    """What an operator does: look, narrow, allow, follow a run, ask why, revoke."""
    with person(browser, console, viewport=WIDE) as page:

        def at(path: str) -> Page:
            page.goto(f"{console.url}/console{path}")
            return page

        at("/")
        run = begin(console)
        page.wait_for_selector("article")
        album.take(page, "inbox")
        album.take(at(f"/runs/{run}"), "run-waiting")
        page.get_by_role("link", name="Look at it and answer").click()
        page.get_by_role("link", name="Always allow…").click()
        page.get_by_label("paths that match a pattern").check()
        page.get_by_role("group", name="edits").get_by_label("anything").check()
        page.get_by_role("button", name="Show what this allows").click()
        page.locator("#always").scroll_into_view_if_needed()
        album.take(page, "always")
        page.get_by_role("button", name="Always allow this").click()
        page.wait_for_selector("#revoke")
        album.take(page, "allowed")
        at(f"/runs/{run}").get_by_role("heading", name="It is done").wait_for()
        at("/tools/workspace:write_file").get_by_label("path").fill("lib/greeting.py")
        page.get_by_role("button", name="Could it run?").click()
        album.take(page, "why-not")
        at("/audit").get_by_role("button", name="Check the whole chain").click()
        page.wait_for_selector("#proof")
        album.take(page, "audit")
        write(console, "src/notice.txt", "The harbour opens at nine.\nBring a coat.\n")
    with person(browser, console, viewport=PHONE, color_scheme="dark") as page:
        album.take(page, "phone")


def main() -> None:
    """Take them all."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS
    with tempfile.TemporaryDirectory() as home, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        with console_of(demo(Path(home))) as console:
            tour(console, browser, Album(folder))
        browser.close()


if __name__ == "__main__":
    main()
