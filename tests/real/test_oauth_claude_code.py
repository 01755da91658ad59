"""Claude Code, the real program, at a door that wants a token: with one in a header, and by logging in."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from claude_code import ENTER, ClaudeCode
from fake_messages_api import FakeMessagesApi, ScriptedCall, result_text

pytestmark = pytest.mark.real

ALLOWED = "mcp__packhost__*"
PROMPT = "\u276f"
STATUS = ScriptedCall("mcp__packhost__packhost_status")
READ = ScriptedCall("mcp__packhost__workspace_read_file", {"path": "hello.txt"})


def test_a_token_in_a_header_lets_claude_code_in(
    parts: Path, tmp_path: Path, workspace: Any, serve_oauth: Any, guarded: Any
) -> None:
    with serve_oauth() as issuer, guarded(issuer) as server, FakeMessagesApi([STATUS, READ]) as api:
        made = json.loads(workspace.run("tokens", "new", "--role", "caller", "--principal", "desk", "--json"))
        entry = {**server, "headers": {"Authorization": "Bearer ${PACKHOST_TOKEN}"}}
        claude = ClaudeCode(
            parts,
            tmp_path / "claude",
            workspace.root,
            api.url,
            {"packhost": entry},
            PACKHOST_TOKEN=made["token"],
        )
        answer = claude.headless("read it", allowed=ALLOWED)

    assert answer.status == 0, answer
    assert '"principal": "desk"' in result_text(api.results[0]).replace('":"', '": "')
    assert "the harbour opens at nine" in answer.result["result"]


def test_a_token_that_is_wrong_keeps_claude_code_out(
    parts: Path, tmp_path: Path, workspace: Any, serve_oauth: Any, guarded: Any
) -> None:
    with serve_oauth() as issuer, guarded(issuer) as server, FakeMessagesApi([READ]) as api:
        entry = {**server, "headers": {"Authorization": "Bearer pkh_wrong"}}
        claude = ClaudeCode(parts, tmp_path / "claude", workspace.root, api.url, {"packhost": entry})
        answer = claude.headless("read it", allowed=ALLOWED)

    assert answer.status == 0, answer
    assert not any(name.startswith("mcp__packhost__workspace") for name in api.offered)
    assert "the harbour" not in answer.result["result"]


def test_claude_code_logs_in_at_the_authorization_server_and_calls(
    parts: Path, tmp_path: Path, workspace: Any, serve_oauth: Any, guarded: Any
) -> None:
    opened = tmp_path / "opened"
    browser = tmp_path / "browser"
    login = Path(__file__).with_name("oauth_login.py")
    browser.write_text(f'#!/bin/sh\necho "$1" >>"{opened}"\nexec "{sys.executable}" "{login}" ann "$1"\n')
    browser.chmod(0o755)
    with serve_oauth() as issuer, guarded(issuer) as server, FakeMessagesApi([STATUS, READ]) as api:
        servers = {"packhost": server}
        claude = ClaudeCode(
            parts, tmp_path / "claude", workspace.root, api.url, servers, BROWSER=str(browser)
        )
        with claude.interactive(allowed=ALLOWED) as terminal:
            terminal.see(PROMPT, "needs authentication")
            terminal.type("/mcp")
            terminal.see("packhost", "needs authentication", "Esc")
            terminal.press(ENTER)
            terminal.see("Authenticate")
            terminal.press(ENTER)
            terminal.see("Signed in and connected to packhost")
            terminal.type("go on")
            terminal.see("the tool answered")

    asked = parse_qs(urlsplit(opened.read_text().splitlines()[0]).query)
    assert asked["resource"] == [server["url"]]
    assert asked["scope"] == ["mcp offline_access"]
    assert f"{issuer}#ann" in result_text(api.results[0])
    assert "the harbour opens at nine" in result_text(api.results[1])
