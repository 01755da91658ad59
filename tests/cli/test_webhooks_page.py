"""The page on webhooks: its file is sound, its receiver checks what a host sends, its commands run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import anyio
import pytest

from packhost.app.entry import hold
from packhost.store.lock import HostLock
from packhost.store.ops import webhooks
from packhost.webhooks import delivering
from packhost.workspace.config import load_settings
from packhost.workspace.hooks import EventName, WebhookSettings
from packhost.workspace.root import Root

PAGE = (Path(__file__).parents[2] / "docs/webhooks.md").read_text(encoding="utf-8")
KEY = "whsec_a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s="


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found[1]


def test_the_file_on_the_page_is_sound_and_its_keys_are_all_explained() -> None:
    settings = load_settings(block("yaml").encode())
    assert settings.webhooks["team"].secret == "TEAM_HOOK"
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) == WebhookSettings.model_fields.keys()


def test_every_event_is_on_the_page() -> None:
    assert all(f"`{name}`" in PAGE for name in get_args(EventName))


def test_the_tries_on_the_page_are_those_that_are_made() -> None:
    assert len(delivering.DELAYS) + 1 == 10
    assert delivering.DELAYS == (5, 30, 120, 600, 1800, 3600, 10800, 21600, 43200)
    assert (delivering.TIME, webhooks.MOST, webhooks.KEPT) == (15, 10_000, 7 * 86_400)


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """The receiver as it stands on the page."""
    program = tmp_path / "receiver.py"
    program.write_text(block("python"))
    process = subprocess.Popen(
        [sys.executable, str(program)],
        env={**os.environ, "TEAM_HOOK": KEY},
        stdout=subprocess.PIPE,
        text=True,
    )
    yield process
    process.terminate()
    process.wait(10)
    if process.stdout is not None:
        process.stdout.close()


def test_the_commands_run_and_the_receiver_takes_what_is_sent(
    workspace: Path,
    packhost: Callable[..., Any],
    receiver: subprocess.Popen[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert receiver.stdout is not None
    port = receiver.stdout.readline().split()[-1]
    monkeypatch.setenv("TEAM_HOOK", KEY)
    hook = f"{{url: 'http://127.0.0.1:{port}/', events: [run.failed], secret: TEAM_HOOK, private: true}}"
    more = f"secrets: {{TEAM_HOOK: env:TEAM_HOOK}}\nwebhooks:\n  team: {hook}\n"
    file = workspace / "packhost.yaml"
    text = "".join(line for line in file.read_text().splitlines(True) if not line.startswith("secrets:"))
    file.write_text(text + more)
    assert packhost("accept", "--yes").status == 0

    commands = [line.removeprefix("$ packhost ") for line in block("console").splitlines()]
    assert [word.split()[1] for word in commands] == ["list", "test", "retry"]
    assert packhost(*shlex.split(commands[0])).status == 0
    monkeypatch.setattr("packhost.cli.webhooks._SECONDS", 0.1)
    waits = packhost(*shlex.split(commands[1]))
    assert (waits.status, "a host that serves sends it" in waits.out) == (1, True)
    anyio.run(send, workspace)
    assert receiver.stdout.readline().split()[0] == "webhook.test"
    (team,) = packhost("webhooks", "list", "--json").json["webhooks"]
    assert (team["delivered"], team["deliveries"][0]["answered"]) == (1, 204)
    assert packhost(*shlex.split(commands[2])).status == 0
    assert packhost("webhooks", "test", "tema", "--json").json["error"]["code"] == "NOT_FOUND"


async def send(workspace: Path) -> None:
    """What a host that serves does with what waits."""
    with Root(workspace) as root, HostLock(root.state) as lock:
        assert lock.acquire()
        async with hold(root, serving=True) as host:
            host.go_on()
            with anyio.fail_after(20):
                while host.store.read(webhooks.standing, "team").delivered == 0:
                    await anyio.sleep(0.05)


def test_without_any_the_list_says_how_to_have_one(workspace: Path, packhost: Callable[..., Any]) -> None:
    assert "says whom to tell" in packhost("webhooks", "list").out
