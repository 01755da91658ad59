"""Servers as clients describe them: every form read alike, variables filled in, secrets by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from packhost.clients.forms import ClientFile
from packhost.clients.manifests import upstream_block, without_secrets
from packhost.clients.servers import Server, Surroundings, looks_secret, read_server
from packhost.errors import ConfigInvalid

ENVIRON = {"GITHUB_TOKEN": "ghp_0123456789abcdefghij", "REGION": "eu", "HOME": "/home/me"}
TOKEN = ENVIRON["GITHUB_TOKEN"]


def around(**more: Any) -> Surroundings:
    return Surroundings(ENVIRON, Path("/work/project"), Path("/home/me"), **more)


def read(raw: dict[str, Any], **more: Any) -> Server:
    return read_server("docs", raw, around(**more))


def test_a_command_and_its_environment() -> None:
    found = read({"command": "npx", "args": ["-y", "docs"], "env": {"REGION": "eu", "LEVEL": 3, "ON": True}})
    assert (found.command, dict(found.env)) == (
        ("npx", "-y", "docs"),
        {"REGION": "eu", "LEVEL": "3", "ON": "true"},
    )
    assert found.secrets == ()


@pytest.mark.parametrize(
    ("written", "becomes"),
    [
        ("${REGION}", "eu"),
        ("${env:REGION}/x", "eu/x"),
        ("${MISSING:-other}", "other"),
        ("${REGION:-other}", "eu"),
        ("${workspaceFolder}/data", "/work/project/data"),
        ("${userHome}", "/home/me"),
        ("$REGION", "$REGION"),
    ],
)
def test_variables_that_are_no_secret_are_filled_in(written: str, becomes: str) -> None:
    found = read({"command": "x", "args": [written], "env": {"A": written}})
    assert (found.command[1], found.env["A"]) == (becomes, becomes)


def test_a_client_that_fills_nothing_in_is_taken_by_its_word() -> None:
    assert read({"command": "x", "args": ["${REGION}"]}, expands=False).command == ("x", "${REGION}")


@pytest.mark.parametrize("raw", [{"args": ["${MISSING}"]}, {"env": {"TOKEN": "${MISSING_TOKEN}"}}])
def test_a_variable_that_is_not_set_is_named(raw: dict[str, Any]) -> None:
    with pytest.raises(ConfigInvalid, match="MISSING"):
        read({"command": "x", **raw})


def test_a_secret_by_reference_stays_one_and_its_value_is_nowhere() -> None:
    found = read({"command": "x", "env": {"TOKEN": "${GITHUB_TOKEN}"}})
    assert found.env["TOKEN"] == "{{secret:GITHUB_TOKEN}}"
    assert [(one.name, one.variable, one.standing) for one in found.secrets] == [
        ("GITHUB_TOKEN", "GITHUB_TOKEN", False)
    ]
    assert found.revealed(found.env["TOKEN"]) == TOKEN
    assert TOKEN not in repr(found)


def test_a_secret_that_stands_in_the_file_is_named_after_its_variable() -> None:
    found = read({"command": "x", "env": {"API_KEY": "abcd1234"}})
    assert found.env["API_KEY"] == "{{secret:API_KEY}}"
    assert [(one.name, one.standing) for one in found.secrets] == [("API_KEY", True)]


def test_two_servers_with_other_values_under_one_name_get_two_secrets() -> None:
    found = read_server(
        "docs", {"command": "x", "env": {"API_KEY": "abcd1234"}}, around(), {"API_KEY": "other"}
    )
    assert found.env["API_KEY"] == "{{secret:DOCS_API_KEY}}"


def test_headers_keep_their_scheme() -> None:
    found = read({"url": "https://a.example/mcp", "headers": {"Authorization": f"Bearer {TOKEN}"}})
    assert found.headers == {"Authorization": "Bearer {{secret:AUTHORIZATION}}"}


def test_what_is_already_written_like_a_reference_is_refused() -> None:
    with pytest.raises(ConfigInvalid, match="cannot be adopted"):
        read({"command": "x", "env": {"A": "{{secret:OTHER}}"}})


@pytest.mark.parametrize("raw", [{}, {"command": ""}, {"command": 3}, {"args": ["x"]}])
def test_an_entry_without_command_or_url_is_none(raw: dict[str, Any]) -> None:
    with pytest.raises(ConfigInvalid, match="neither a command nor a URL"):
        read(raw)


def test_codex_names_variables_and_tools() -> None:
    found = read(
        {
            "url": "https://a.example/mcp",
            "bearer_token_env_var": "GITHUB_TOKEN",
            "env_http_headers": {"X-Region": "REGION"},
            "http_headers": {"X-A": "b"},
            "enabled_tools": ["one"],
            "startup_timeout_sec": 20,
        },
        expands=False,
    )
    assert found.headers == {"X-A": "b", "X-Region": "eu", "Authorization": "Bearer {{secret:GITHUB_TOKEN}}"}
    assert (found.only, found.start_timeout) == (("one",), 20.0)


def test_vscodes_questions_are_answered_from_the_environment_alone() -> None:
    inputs = {
        "github-token": {"id": "github-token", "password": True},
        "region": {"id": "region", "default": "us"},
    }
    raw = {"command": "x", "env": {"T": "${input:github-token}", "R": "${input:region}"}}
    found = read(raw, inputs=inputs)
    assert dict(found.env) == {"T": "{{secret:GITHUB_TOKEN}}", "R": "eu"}
    with pytest.raises(ConfigInvalid, match="OTHER_ONE"):
        read({"command": "x", "env": {"T": "${input:other-one}"}}, inputs=inputs)


def test_a_secret_among_the_arguments_goes_into_the_environment() -> None:
    found = read(
        {"command": "npx", "args": ["pg", f"postgres://me:{TOKEN}@db/x", "--api-key", "k3y-abcd", "a b"]}
    )
    block = upstream_block(found, resources=False, prompts=True)
    assert TOKEN not in str(block)
    assert block["command"][:2] == ["/bin/sh", "-c"]
    assert set(block["env"]) == {secret.name for secret in found.secrets}
    assert block["prompts"] == "allow"
    assert "resources" not in block


def test_the_shell_puts_secrets_in_as_one_word_each() -> None:
    assert without_secrets(["run it", "--key={{secret:A}}", "", "$x"]) == (
        "/bin/sh",
        "-c",
        """exec 'run it' --key="${A}" '' '$x'""",
    )


def test_a_secret_in_a_url_cannot_be_adopted() -> None:
    found = read({"url": f"https://a.example/mcp?key={TOKEN}"})
    with pytest.raises(ConfigInvalid, match="URL"):
        upstream_block(found, resources=False, prompts=False)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("GITHUB_TOKEN", "anything-here"),
        ("DB_PASSWORD", "hunter22"),
        ("X", "ghp_0123456789abcdefghij"),
        ("X", "sk-0123456789abcdef"),
        ("DATABASE_URL", "postgres://me:pass@host/db"),
        ("X", "c2VjcmV0LXZhbHVlLTEyMzQ1Njc4OTA"),
        ("Authorization", "Bearer abcdefgh"),
    ],
)
def test_what_looks_like_a_secret(name: str, value: str) -> None:
    assert looks_secret(name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TOKEN", ""),
        ("USE_TOKEN", "true"),
        ("PATH", "/usr/local/bin:/usr/bin"),
        ("TOKEN_FILE", "/run/secrets/token"),
        ("REGION", "eu-central-1"),
        ("PACKAGE", "@modelcontextprotocol/server-filesystem"),
        ("URL", "https://example.com/a/path"),
        ("NODE_ENV", "production"),
    ],
)
def test_what_does_not(name: str, value: str) -> None:
    assert not looks_secret(name, value)


@pytest.mark.parametrize(
    ("name", "text", "client", "servers"),
    [
        (".mcp.json", '{"mcpServers": {"a": {}}}', "claude-code", [["a"]]),
        (".cursor/mcp.json", '{"mcpServers": {"a": {}}}', "cursor", [["a"]]),
        (".vscode/mcp.json", '{"servers": {"a": {}}, "inputs": []} // x', "vscode", [["a"]]),
        ("settings.json", '{"mcp": {"servers": {"a": {}}}}', "vscode", [["a"]]),
        ("config.toml", "[mcp_servers.a]\ncommand = 'x'\n", "codex", [["a"]]),
        ("claude_desktop_config.json", '{"mcpServers": {"a": {}}}', "claude-desktop", [["a"]]),
        (
            ".claude.json",
            '{"mcpServers": {"a": {}}, "projects": {"ROOT": {"mcpServers": {"b": {}}}}}',
            "claude-code",
            [["a"], ["b"]],
        ),
        (".mcp.json", '\ufeff{"mcpServers": {"a": {}}}', "claude-code", [["a"]]),
    ],
)
def test_each_clients_file_is_known(
    name: str, text: str, client: str, servers: list[list[str]], tmp_path: Path
) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text.replace("ROOT", str(tmp_path)), encoding="utf-8")
    file = ClientFile(path, tmp_path)
    assert file.client == client
    assert [list(file.servers(section)) for section in file.sections] == servers
    assert file.changed == path.read_bytes()


@pytest.mark.parametrize("text", ["[]", "{}", '{"name": "x"}', "\xff", "{", "3"])
def test_what_is_no_clients_file_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "package.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigInvalid):
        ClientFile(tmp_path / "package.json", tmp_path)
