"""packhost in each client's own file: merged, with the client's own rules if wanted, and taken back."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from packhost.clients.forms import CLIENTS

Command = Callable[..., Any]
FILES = {
    "claude-code": ".mcp.json",
    "cursor": ".cursor/mcp.json",
    "vscode": ".vscode/mcp.json",
    "codex": ".codex/config.toml",
    "claude-desktop": ".config/Claude/claude_desktop_config.json",
}
HELD = {
    "claude-code": '{\n  "mcpServers": {\n    "other": {"command": "x"} // mine\n  }\n}',
    "cursor": '{"mcpServers": {"other": {"command": "x"}}}\r\n',
    "vscode": '{\n\t"inputs": [],\n\t"servers": {"other": {"command": "x"},},\n}\n',
    "codex": 'model = "m" # mine\n\n[mcp_servers.other]\ncommand = "x"',
    "claude-desktop": "{}",
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The person's own folder, on Linux."""
    monkeypatch.setattr("sys.platform", "linux")
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def place(client: str, project: Path, home: Path) -> Path:
    return (home if client in ("codex", "claude-desktop") else project) / FILES[client]


def servers(path: Path) -> dict[str, Any]:
    if path.suffix == ".toml":
        return dict(tomllib.loads(path.read_text())["mcp_servers"])
    data = json.loads(path.read_text())
    return dict(data.get("mcpServers") or data["servers"])


@pytest.mark.parametrize("client", CLIENTS)
def test_a_missing_file_is_made_and_taken_away_again(
    client: str, empty: Path, home: Path, packhost: Command
) -> None:
    path = place(client, empty, home)
    assert packhost("connect", client, "--write").status == 0
    assert servers(path)["packhost"]["args"][-3:] == ["serve", "-w", str(empty)]
    assert packhost("connect", client, "--undo").status == 0
    assert sorted(one.name for one in empty.iterdir()) == ["README.md", "src"]
    assert list(home.iterdir()) == []


@pytest.mark.parametrize("client", CLIENTS)
def test_a_file_that_is_there_keeps_all_that_is_in_it(
    client: str, empty: Path, home: Path, packhost: Command
) -> None:
    path = place(client, empty, home)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(HELD[client].encode())
    for _ in range(2):
        assert packhost("connect", client, "--write").status == 0
    text = path.read_text()
    assert ("// mine" in text) == ("// mine" in HELD[client])
    assert ("# mine" in text) == ("# mine" in HELD[client])
    assert text.count('"serve"') == 1
    assert packhost("connect", client, "--undo").status == 0
    assert path.read_bytes() == HELD[client].encode()
    assert packhost("connect", client, "--undo").status == 2


def test_the_second_time_nothing_is_written(empty: Path, home: Path, packhost: Command) -> None:
    assert packhost("connect", "cursor", "--write", "--json").json["written"] != []
    assert packhost("connect", "cursor", "--write", "--json").json["written"] == []


def test_claude_code_denies_itself_its_own_tools_until_that_is_taken_back(
    empty: Path, home: Path, packhost: Command
) -> None:
    settings = empty / ".claude/settings.json"
    settings.parent.mkdir()
    before = b'{"permissions": {"deny": ["WebFetch"], "allow": ["Read"]}}'
    settings.write_bytes(before)
    assert packhost("connect", "claude-code", "--write", "--exclusive").status == 0
    denied = json.loads(settings.read_text())["permissions"]
    assert denied["allow"] == ["Read"]
    assert denied["deny"][0] == "WebFetch"
    assert {"Bash", "Read", "Edit", "Write"} <= set(denied["deny"])
    assert packhost("connect", "claude-code", "--undo").status == 0
    assert settings.read_bytes() == before
    assert not (empty / ".mcp.json").exists()


def test_cursors_command_line_denies_itself_its_own_tools(empty: Path, home: Path, packhost: Command) -> None:
    ran = packhost("connect", "cursor", "--write", "--exclusive")
    rules = json.loads((empty / ".cursor/cli.json").read_text())["permissions"]
    assert rules == {"allow": [], "deny": ["Shell(**)", "Read(**)", "Write(**)"]}
    assert "in the editor" in ran.out


def test_codex_runs_no_shell_and_writes_no_file(empty: Path, home: Path, packhost: Command) -> None:
    path = home / ".codex/config.toml"
    path.parent.mkdir()
    path.write_text('sandbox_mode = "workspace-write"\n\n[features]\nweb = true\n')
    assert packhost("connect", "codex", "--write", "--exclusive").status == 0
    found = tomllib.loads(path.read_text())
    assert (found["sandbox_mode"], found["features"]) == ("read-only", {"web": True, "shell_tool": False})
    assert "packhost" in found["mcp_servers"]


@pytest.mark.parametrize("client", ["vscode", "claude-desktop"])
def test_where_no_file_holds_such_rules_that_is_said(
    client: str, empty: Path, home: Path, packhost: Command
) -> None:
    ran = packhost("connect", client, "--write", "--exclusive")
    assert (ran.status, " tools" in ran.out) == (0, True)


def test_ones_own_file_is_written_where_that_is_wanted(empty: Path, home: Path, packhost: Command) -> None:
    assert packhost("connect", "claude-code", "--write", "--user").status == 0
    assert "packhost" in servers(home / ".claude.json")
    assert not (empty / ".mcp.json").exists()


@pytest.mark.parametrize(
    "words", [("--write", "--undo"), ("--exclusive",), ("--force",), ("--print", "--write")]
)
def test_what_does_not_go_together_is_a_slip(
    words: tuple[str, ...], empty: Path, home: Path, packhost: Command
) -> None:
    assert packhost("connect", "cursor", *words).status == 2
    assert not (empty / ".cursor").exists()


def test_an_agents_shell_writes_nothing(
    empty: Path, home: Path, packhost: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDECODE", "1")
    assert packhost("connect", "claude-code", "--write").status == 3
    assert not (empty / ".mcp.json").exists()


@pytest.mark.parametrize("text", ["{", "[]", '{"mcpServers": 3}'])
def test_a_broken_file_is_left_alone(text: str, empty: Path, home: Path, packhost: Command) -> None:
    (empty / ".mcp.json").write_text(text)
    assert packhost("connect", "claude-code", "--write").status == 2
    assert (empty / ".mcp.json").read_text() == text
