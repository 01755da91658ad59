"""The page on access tokens says what is so: its settings load, its numbers hold, its commands print it."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from packhost.cli.run import run
from packhost.oauth import access, fetching, keys
from packhost.workspace.authorization import USUAL, AuthSettings, IssuerSettings
from packhost.workspace.config import load_settings

TEXT = (Path(__file__).parents[2] / "docs/oauth.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", TEXT, re.DOTALL)
YAML = [block for kind, block in BLOCKS if kind == "yaml"]
WORDS = " ".join(TEXT.split())


@pytest.mark.parametrize("block", YAML)
def test_the_settings_of_the_page_are_taken(block) -> None:
    assert load_settings(block.encode()).auth.issuers


def test_the_numbers_of_the_page_are_those_of_the_code() -> None:
    for said in (
        f"clocks may differ by {access.LEEWAY} seconds",
        f"{access.LONGEST} characters at the most",
        f"may take {fetching.PATIENCE:g} seconds and have {fetching.LARGEST} bytes",
        f"a set {keys.MOST_KEYS} keys",
        f"A set counts for {keys.FRESH:g} seconds",
        f"goes on for {keys.KEPT:g} seconds in all",
        f"once in {keys.AGAIN:g} seconds",
        f"(`{USUAL[0]}`, `{USUAL[1]}` and `{USUAL[2]}` unless you say otherwise)",
    ):
        assert said in WORDS


def test_every_setting_is_on_the_page() -> None:
    for name in {*AuthSettings.model_fields, *IssuerSettings.model_fields}:
        assert re.search(rf"`{name}`|{name}:", TEXT), name


@pytest.mark.slow
def test_the_commands_of_the_page_print_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "packhost.yaml").write_text(YAML[0])
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("CLAUDECODE", "CURSOR_AGENT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(folder)
    assert run(["accept", "--yes"]) == 0
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    steps = [
        step.partition("\n")
        for kind, block in BLOCKS
        if kind == "console"
        for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    ]
    wait = f"for _ in $(seq 300); do curl -s http://127.0.0.1:{port}/healthz >&2 && break; sleep 0.1; done"
    lines = ["trap 'kill %1' EXIT", steps[0][0].replace("8321", port), wait]
    for command, _, _ in steps[1:]:
        lines += [command.replace("8321", port), "echo -----"]
    done = subprocess.run(
        ["bash", "-c", "\n".join(lines)],
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    printed = done.stdout.split("-----\n")
    for (command, _, said), found in zip(steps[1:], printed, strict=False):
        assert " ".join(said.split()) == " ".join(found.split()), command
