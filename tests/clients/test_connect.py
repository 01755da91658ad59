"""What clients are told: absolute, exact, with keys by reference and never by value."""

from __future__ import annotations

import base64
import json
import os
import shlex
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from packhost.cli.run import run
from packhost.clients import claude_code, cursor
from packhost.clients.connecting import block
from packhost.clients.entries import cursor_link
from packhost.clients.forms import CLIENTS
from packhost.clients.launch import Launch, installed_command, key_variables, launch

LAUNCH = Launch("/opt/the venv/bin/packhost", ("serve", "-w", "/home/me/my project"), ("PROVIDER_KEY",))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace whose key comes from the environment."""
    (tmp_path / "packhost.yaml").write_text(
        "secrets:\n  A: env:FIRST_KEY\n  B: file:key.txt\n  C: env:SECOND_KEY\n  D: env:FIRST_KEY\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FIRST_KEY", "the-value-itself")
    return tmp_path


def test_the_command_is_absolute_and_can_be_run() -> None:
    command = installed_command()
    assert os.path.isabs(command[0])
    assert os.access(command[0], os.X_OK)


def test_the_workspace_is_named_absolutely_and_keys_by_their_variables(project: Path) -> None:
    found = launch(project)
    assert found.arguments[-3:] == ("serve", "-w", str(project))
    assert found.variables == ("FIRST_KEY", "SECOND_KEY")


@pytest.mark.parametrize("text", ["", "- a\n", "secrets: 1\n", "secrets: {A: 1}\n", "secrets: [\n", "\x00"])
def test_a_file_that_is_empty_or_broken_names_no_variable(text: str, tmp_path: Path) -> None:
    (tmp_path / "packhost.yaml").write_text(text)
    assert key_variables(tmp_path) == ()


def test_claude_code_gets_a_line_whose_words_survive_the_shell() -> None:
    assert shlex.split(claude_code.add_command(LAUNCH)) == [
        "claude",
        "mcp",
        "add",
        "packhost",
        "-e",
        "PROVIDER_KEY=${PROVIDER_KEY}",
        "--",
        "/opt/the venv/bin/packhost",
        "serve",
        "-w",
        "/home/me/my project",
    ]


def test_claude_code_gets_a_block_for_the_project() -> None:
    assert block("claude-code", LAUNCH) == {
        "mcpServers": {
            "packhost": {
                "type": "stdio",
                "command": "/opt/the venv/bin/packhost",
                "args": ["serve", "-w", "/home/me/my project"],
                "env": {"PROVIDER_KEY": "${PROVIDER_KEY}"},
            }
        }
    }


def test_cursor_gets_a_block_in_its_own_spelling_of_variables() -> None:
    server = block("cursor", LAUNCH)["mcpServers"]["packhost"]
    assert server["env"] == {"PROVIDER_KEY": "${env:PROVIDER_KEY}"}
    assert server["command"] == "/opt/the venv/bin/packhost"


def test_cursors_link_holds_the_same_server() -> None:
    link = urlsplit(cursor_link(LAUNCH))
    query = parse_qs(link.query, strict_parsing=True)
    assert (link.scheme, link.netloc, link.path) == ("cursor", "anysphere.cursor-deeplink", "/mcp/install")
    assert query["name"] == ["packhost"]
    server = dict(block("cursor", LAUNCH)["mcpServers"]["packhost"])
    server.pop("type")
    assert json.loads(base64.b64decode(query["config"][0], validate=True)) == server


@pytest.mark.parametrize("client", ["claude-code", "cursor", "vscode", "codex"])
def test_no_value_of_a_key_is_printed(client: str, project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["connect", client, "--print"]) == 0
    shown = capfd.readouterr().out
    assert "FIRST_KEY" in shown
    assert "the-value-itself" not in shown


@pytest.mark.parametrize(("client", "file"), [("claude-code", ".mcp.json"), ("cursor", ".cursor/mcp.json")])
def test_programs_get_the_block_and_the_name_of_its_file(
    client: str, file: str, project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["connect", client, "--print", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["file"] == file
    assert found["config"]["mcpServers"]["packhost"]["args"][-1] == str(project)


@pytest.mark.parametrize("client", CLIENTS)
def test_without_write_no_file_is_touched(
    client: str, project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["connect", client]) == 0
    assert "packhost" in capfd.readouterr().out
    assert sorted(path.name for path in project.iterdir()) == ["packhost.yaml"]


def test_files_that_name_packhost_are_found(project: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / ".cursor").mkdir(parents=True)
    servers = {"mcpServers": {"packhost": {}}}
    assert claude_code.configured(project, home) == []
    (home / ".claude.json").write_text(json.dumps({"projects": {str(project): servers}}))
    (project / ".mcp.json").write_text(json.dumps(servers))
    (home / ".cursor/mcp.json").write_text(json.dumps(servers))
    assert claude_code.configured(project, home) == [project / ".mcp.json", home / ".claude.json"]
    assert cursor.configured(project, home) == [home / ".cursor/mcp.json"]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"mcpServers": []}', '{"mcpServers": {"other": {}}}'])
def test_files_that_do_not_are_not(text: str, tmp_path: Path) -> None:
    (tmp_path / ".mcp.json").write_text(text)
    assert not claude_code.names_server(tmp_path / ".mcp.json")
