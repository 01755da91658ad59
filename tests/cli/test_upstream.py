"""`packhost upstream`: how servers stand, and what they printed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import upstream_server


@pytest.fixture
def server(empty: Path, packhost: Any) -> Any:
    """A workspace whose pack has a server upstream."""
    tool = {"name": "chatter", "description": "Prints.", "kind": "mcp", "permission": "read"}
    manifest = {
        "packhost": 1,
        "id": "up",
        "version": "1",
        "title": "Up",
        "upstream": {"command": [sys.executable, upstream_server.__file__], "pinned": False},
        "tools": [{**tool, "config": {"upstream_name": "chatter"}}],
    }
    (empty / "up").mkdir()
    (empty / "up" / "pack.yaml").write_text(json.dumps(manifest))
    (empty / "packhost.yaml").write_text(
        "packhost: 1\npacks: [{path: ./up}]\nbound: [path read **]\nenforcement: {require: advisory}\n"
    )
    assert packhost("accept", "--yes").status == 0
    return packhost


def test_servers_are_listed_and_nothing_is_started_for_that(server: Any) -> None:
    (found,) = server("upstream", "list", "--json").json["upstreams"]
    assert (found["pack"], found["state"]) == ("up", "not started")
    assert "not started" in server("upstream", "list").out


def test_what_a_server_printed_is_empty_before_it_ran_and_an_unknown_pack_is_named(server: Any) -> None:
    assert server("upstream", "logs", "up").out == ""
    wrong = server("upstream", "logs", "upp")
    assert wrong.status == 2
    assert "did you mean `up`?" in wrong.err


def test_only_a_server_that_wants_it_is_signed_in_to(server: Any) -> None:
    refused = server("upstream", "login", "up")
    assert refused.status == 2
    assert "auth: oauth" in refused.err


def test_an_agents_shell_signs_in_to_nothing(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDECODE", "1")
    assert server("upstream", "login", "up").status == 3


def test_a_call_by_the_command_line_goes_to_the_server(server: Any) -> None:
    assert "chattered" in server("call", "up:chatter", "{}").out
