"""A workspace's console, and real browsers at it."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from playwright.sync_api import Browser, BrowserContext, Page

from packhost.app.entry import RemoteControl
from packhost.workspace.operator import make_record
from packhost.workspace.root import Root

PASSPHRASE = "correct horse battery"
CHEAP = 2**12
VERIFYING = {
    "protocol": "ctap2",
    "transport": "internal",
    "hasResidentKey": True,
    "hasUserVerification": True,
    "isUserVerified": True,
    "automaticPresenceSimulation": True,
}
"""An authenticator of Chromium's own whose user is there and verified."""


def chromium() -> str | None:
    """The system's browser."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


class Console:
    """A console that runs in a process of its own, and the host behind it."""

    def __init__(self, workspace: Any, url: str) -> None:
        self.workspace = workspace
        self.url = url

    def ask(self, op: str, **params: Any) -> Any:
        """One operation on the host."""
        with Root(self.workspace.root, self.workspace.environment) as root:
            work = partial(anyio.run, RemoteControl(root.socket).request, op, params)
            with ThreadPoolExecutor(1) as elsewhere:  # this thread has the browser's loop
                return elsewhere.submit(work).result()

    def wanting(self, name: str, content: str = "hello\n") -> str:
        """A call that waits for a person; the approval's id."""
        arguments = json.dumps({"path": f"notes/{name}", "content": content})
        done = subprocess.run(
            self.workspace.command("call", "workspace:write_file", arguments, "--json"),
            env=self.workspace.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            start_new_session=True,  # nobody sits at a terminal
        )
        return str(json.loads(done.stdout)["refusal"]["approval_id"])

    def status(self, id: str) -> str:
        return str(self.ask("approvals.show", id=id)["status"])

    def address(self) -> str:
        """An address with a ticket that lets one browser in."""
        return f"{self.url}/console/login#{self.ask('console.ticket')['ticket']}"

    def set_operator(self) -> None:
        """Set an operator up whose passphrase is `PASSPHRASE`."""
        shown = self.ask("operator.show")
        record, signer = make_record(PASSPHRASE, by=shown["by"], at=1.0, cost=CHEAP)
        consent = signer.sign(shown["consent"].encode())
        self.ask("operator.set", record=record.as_json(), consent=consent)


@contextmanager
def console_of(workspace: Any) -> Iterator[Console]:
    """Run `packhost console` for a workspace while the block runs."""
    server = subprocess.Popen(
        workspace.command("console", "--port", "0", "--no-browser", "--json"),
        env=workspace.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    try:
        said = ""
        while not said.rstrip().endswith("}"):
            line = server.stdout.readline()
            assert line, f"the console ended with {server.wait(10)}"
            said += line
        yield Console(workspace, json.loads(said)["url"].removesuffix("/console/"))
    finally:
        server.terminate()
        server.wait(20)
        server.stdout.close()


@contextmanager
def person(browser: Browser, console: Console | None = None, **more: Any) -> Iterator[Page]:
    """Somebody's own browser, signed in by a ticket where a console is given; nothing may go wrong in it."""
    context = browser.new_context(**more)
    page = context.new_page()
    wrong = watched(page)
    try:
        if console is not None:
            address = console.address()
            page.goto(address)
            if more.get("java_script_enabled") is False:
                page.get_by_label("Ticket").fill(address.partition("#")[2])
                page.get_by_role("button", name="Sign in by ticket").click()
            page.wait_for_url(f"{console.url}/console/")
        yield page
        assert wrong == []
    finally:
        context.close()


def watched(page: Page) -> list[str]:
    """What goes wrong in a page from now on: errors, refused scripts and styles, dialogs."""
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
    page.on("dialog", lambda dialog: (wrong.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    page.on(
        "console", lambda said: wrong.append(said.text) if "Content Security Policy" in said.text else None
    )
    return wrong


def authenticator(context: BrowserContext, page: Page) -> None:
    """Give a page's browser an authenticator."""
    protocol = context.new_cdp_session(page)
    protocol.send("WebAuthn.enable")
    protocol.send("WebAuthn.addVirtualAuthenticator", {"options": VERIFYING})


def violations(page: Page, axe: Path) -> list[str]:
    """What axe-core says is wrong with a page for people who see, hear or move otherwise."""
    page.evaluate(axe.read_text())  # by the debugger: no policy of the page stands in its way
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{one['id']}: {node['html'][:120]} {node.get('failureSummary', '')[:200]}"
        for one in found["violations"]
        for node in one["nodes"]
    ]
