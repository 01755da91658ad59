"""Claude Code, the real program, against `packhost serve`: it lists, calls, and lets a person approve."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from claude_code import DOWN, ENTER, ClaudeCode, Terminal
from fake_messages_api import FakeMessagesApi, ScriptedCall, result_text

pytestmark = [pytest.mark.real, pytest.mark.parametrize("transport", ["stdio", "http"])]

ALLOWED = "mcp__packhost__*"
READ = ScriptedCall("mcp__packhost__workspace_read_file", {"path": "hello.txt"})
WRITE = ScriptedCall(
    "mcp__packhost__workspace_write_file", {"path": "notes/plan.txt", "content": "sail at nine\n"}
)


PROMPT = "\u276f"


def ask(terminal: Terminal, expected: str) -> None:
    """Types a prompt until the expected text comes; the program may start before its tools are there."""
    terminal.see(PROMPT)
    for _ in range(5):
        terminal.type("go on")
        if terminal.see_or(expected, "nothing to do"):
            return
    pytest.fail(f"no {expected} in five prompts")


def test_claude_code_lists_and_calls_a_tool(
    parts: Path, tmp_path: Path, workspace: Any, transport: str
) -> None:
    with workspace.over(transport) as server, FakeMessagesApi([READ]) as api:
        claude = ClaudeCode(parts, tmp_path / "claude", workspace.root, api.url, {"packhost": server})
        answer = claude.headless("read it", allowed=ALLOWED)

    assert answer.status == 0, answer
    assert {READ.tool, WRITE.tool, "mcp__packhost__agent-runtime_execute-turn"} <= api.offered
    assert "the harbour opens at nine" in result_text(api.results[-1])
    assert "the harbour opens at nine" in answer.result["result"]


def test_a_write_accepted_in_claude_codes_dialog_is_done(
    parts: Path, tmp_path: Path, workspace: Any, transport: str
) -> None:
    with workspace.over(transport) as server, FakeMessagesApi([WRITE]) as api:
        claude = ClaudeCode(parts, tmp_path / "claude", workspace.root, api.url, {"packhost": server})
        with claude.interactive(allowed=ALLOWED) as terminal:
            ask(terminal, "Decline")
            terminal.see("notes/plan.txt", "sail at nine")
            assert not (workspace.root / "notes/plan.txt").exists()
            terminal.press(ENTER)
            terminal.see("the tool answered")

    assert (workspace.root / "notes/plan.txt").read_text() == "sail at nine\n"
    assert not api.results[-1].get("is_error")


def test_a_write_declined_in_claude_codes_dialog_is_not_done(
    parts: Path, tmp_path: Path, workspace: Any, transport: str
) -> None:
    with workspace.over(transport) as server, FakeMessagesApi([WRITE]) as api:
        claude = ClaudeCode(parts, tmp_path / "claude", workspace.root, api.url, {"packhost": server})
        with claude.interactive(allowed=ALLOWED) as terminal:
            ask(terminal, "Decline")
            terminal.press(DOWN)
            terminal.press(ENTER)
            terminal.see("the tool answered")

    assert not (workspace.root / "notes/plan.txt").exists()
    assert api.results[-1]["is_error"] is True
    assert "APPROVAL_DENIED" in result_text(api.results[-1])


def test_without_a_person_a_gated_call_ends_as_approval_required(
    parts: Path, tmp_path: Path, workspace: Any, transport: str
) -> None:
    with workspace.over(transport) as server, FakeMessagesApi([WRITE]) as api:
        claude = ClaudeCode(parts, tmp_path / "claude", workspace.root, api.url, {"packhost": server})
        answer = claude.headless("write it", allowed=ALLOWED)

    # Headless, Claude Code cancels every dialog by itself, which is nobody's approval.
    assert answer.status == 0, answer
    assert not (workspace.root / "notes/plan.txt").exists()
    assert api.results[-1]["is_error"] is True
    text = result_text(api.results[-1])
    refusal = json.loads(text.splitlines()[-1])
    assert refusal["code"] == "APPROVAL_REQUIRED"
    assert f"packhost approvals approve {refusal['approval_id']}" in text
    assert refusal["approval_id"] in workspace.run("approvals", "list", "--json")
