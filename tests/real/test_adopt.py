"""A real `.mcp.json` with four servers goes behind packhost in one command, and comes back in another."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from claude_code import ENTER, ClaudeCode, Terminal
from fake_messages_api import FakeMessagesApi, ScriptedCall, result_text

pytestmark = pytest.mark.real

GOVERNED = "mcp__packhost__"
PROMPT = "\u276f"
NAMES = ("filesystem", "memory", "everything", "sequential-thinking")


class Project:
    """A project with four reference servers, and the home of the person who works on it."""

    def __init__(self, parts: Path, folder: Path) -> None:
        self.parts = parts
        self.home = folder / "home"
        self.root = folder / "project"
        self.root.mkdir()
        self.home.mkdir()
        (self.root / "notes").mkdir()
        (self.root / "notes/hello.txt").write_text("the harbour opens at nine\n")
        self.file = self.root / ".mcp.json"
        bin_folder = parts / "npm/node_modules/.bin"
        servers: dict[str, Any] = {
            name: {"command": str(bin_folder / f"mcp-server-{name}")} for name in NAMES
        }
        servers["filesystem"]["args"] = [str(self.root)]
        servers["memory"]["env"] = {"MEMORY_FILE_PATH": str(folder / "memory.json")}
        self.file.write_text(json.dumps({"mcpServers": servers}, indent=2))
        kept = {name: os.environ[name] for name in ("LANG", "TMPDIR") if name in os.environ}
        self.environment = {
            **kept,
            "PATH": f"{parts / 'bin'}:{os.environ['PATH']}",
            "HOME": str(self.home),
        }

    @property
    def servers(self) -> dict[str, Any]:
        return dict(json.loads(self.file.read_text())["mcpServers"])

    def run(self, *arguments: str) -> str:
        """Runs packhost here to its end and returns what it printed; asserts that it succeeded."""
        command = [str(Path(sys.executable).parent / "packhost"), *arguments]
        done = subprocess.run(
            command,
            cwd=self.root,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, f"packhost {' '.join(arguments)} gave {done.returncode}: {done.stderr}"
        return done.stdout

    def claude(self, api: FakeMessagesApi) -> ClaudeCode:
        """Claude Code with exactly the servers that the project's file has now."""
        return ClaudeCode(self.parts, self.home, self.root, api.url, self.servers)


@pytest.fixture
def project(parts: Path, tmp_path: Path) -> Project:
    """A project of its own."""
    return Project(parts, tmp_path)


def test_four_servers_go_behind_packhost_and_come_back(project: Project) -> None:
    before = {path: path.read_bytes() for path in project.root.rglob("*") if path.is_file()}
    calls = [
        ScriptedCall(f"{GOVERNED}filesystem_read_text_file", {"path": "notes/hello.txt"}),
        ScriptedCall(f"{GOVERNED}memory_read_graph"),
        ScriptedCall(f"{GOVERNED}everything_get-sum", {"a": 2, "b": 3}),
        ScriptedCall(
            f"{GOVERNED}sequential-thinking_sequentialthinking",
            {"thought": "think", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1},
        ),
        ScriptedCall(f"{GOVERNED}filesystem_read_text_file", {"path": "../home/.claude.json"}),
        ScriptedCall(f"{GOVERNED}filesystem_write_file", {"path": "notes/new.txt", "content": "x"}),
    ]
    project.run("adopt", ".mcp.json", "--yes")
    assert list(project.servers) == ["packhost"]
    with FakeMessagesApi(calls) as api:
        answer = project.claude(api).headless("go on", allowed=f"{GOVERNED}*")
    assert answer.status == 0, answer
    assert {call.tool for call in calls} <= api.offered
    assert not [name for name in api.offered if name.startswith("mcp__") and not name.startswith(GOVERNED)]
    texts = [result_text(result) for result in api.results]
    assert "the harbour opens at nine" in texts[0]
    assert "entities" in texts[1]
    assert "5" in texts[2]
    assert "SCOPE_DENIED" in texts[4]
    assert "APPROVAL_REQUIRED" in texts[5]
    assert not (project.root / "notes/new.txt").exists()
    record = project.run("audit", "verify")
    assert record

    project.run("adopt", "--undo")
    after = {path: path.read_bytes() for path in project.root.rglob("*") if path.is_file()}
    assert after == before
    direct = ScriptedCall("mcp__filesystem__read_text_file", {"path": str(project.root / "notes/hello.txt")})
    with FakeMessagesApi([direct]) as api:
        answer = project.claude(api).headless("go on", allowed="mcp__filesystem__*")
    assert "the harbour opens at nine" in result_text(api.results[-1])
    assert not [name for name in api.offered if name.startswith(GOVERNED)]


def test_an_adopted_write_is_asked_in_claude_codes_dialog(project: Project) -> None:
    write = ScriptedCall(
        f"{GOVERNED}filesystem_write_file", {"path": "notes/new.txt", "content": "sail at nine"}
    )
    project.run("adopt", ".mcp.json", "--yes")
    with FakeMessagesApi([write]) as api, project.claude(api).interactive(allowed=f"{GOVERNED}*") as terminal:
        _ask(terminal, "Decline")
        terminal.see("notes/new.txt", "sail at nine")
        assert not (project.root / "notes/new.txt").exists()
        terminal.press(ENTER)
        # while a person is asked the call has become a task, whose result comes later
        until = time.monotonic() + 30
        while not (project.root / "notes/new.txt").exists() and time.monotonic() < until:
            terminal.press("")
    assert (project.root / "notes/new.txt").read_text() == "sail at nine"


def test_exclusive_takes_claude_codes_own_tools_away_until_that_is_taken_back(project: Project) -> None:
    own = {"Bash", "Read", "Edit", "Write"}
    project.file.unlink()
    project.run("init", "--no-write")
    project.run("connect", "claude-code", "--write", "--exclusive")
    read = ScriptedCall(f"{GOVERNED}workspace_read_file", {"path": "notes/hello.txt"})
    with FakeMessagesApi([read]) as api:
        project.claude(api).headless("go on", allowed=f"{GOVERNED}*")
    assert "the harbour opens at nine" in result_text(api.results[-1])
    assert not own & api.offered
    project.run("connect", "claude-code", "--undo")
    assert not (project.root / ".claude").exists()
    project.file.write_text('{"mcpServers": {}}')
    with FakeMessagesApi() as api:
        project.claude(api).headless("go on", allowed="Read")
    assert own <= api.offered


def _ask(terminal: Terminal, expected: str) -> None:
    """Types a prompt until the expected text comes; the program may start before its tools are there."""
    terminal.see(PROMPT)
    for _ in range(5):
        terminal.type("go on")
        if terminal.see_or(expected, "nothing to do"):
            return
    pytest.fail(f"no {expected} in five prompts")
