"""Claude Code, the real program, and a turn that becomes a task: its dialog asks, the turn goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from claude_code import ENTER, ClaudeCode
from conftest import WORKSPACE_FILE
from fake_messages_api import FakeMessagesApi, ScriptedCall, result_text
from test_claude_code import ALLOWED, ask

pytestmark = pytest.mark.real
SETTINGS = """\
packhost: 1
packs: [agent-runtime, workspace]
bound:
  - path read **
  - path write notes/**
  - path write .agent-runtime/**
policy:
  - match: {{tool: "workspace:write_file"}}
    decide: ask
    reason: a person looks at what is written
secrets: {{MODEL_KEY: env:MODEL_KEY}}
agent_runtime:
  default_model: main
  models:
    main:
      provider: messages_compatible
      model: mock
      base_url: "{url}"
      api_key: MODEL_KEY
"""
WRITE = ScriptedCall("workspace_write_file", {"path": "notes/plan.txt", "content": "sail at nine\n"})
TURN = ScriptedCall(
    "mcp__packhost__agent-runtime_execute-turn",
    {"messages": [{"role": "user", "content": "write the plan"}], "loop": True, "stream": False},
)


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_a_turn_is_a_task_whose_question_the_dialog_puts(
    parts: Path, tmp_path: Path, workspace: Any, transport: str
) -> None:
    with FakeMessagesApi([WRITE]) as model, FakeMessagesApi([TURN]) as api:
        workspace.environment["MODEL_KEY"] = "not-a-key"
        workspace.accept(SETTINGS.format(url=model.url))
        with workspace.over(transport) as server:
            if transport == "stdio":
                server["env"]["MODEL_KEY"] = "not-a-key"
            claude = ClaudeCode(parts, tmp_path / "claude", workspace.root, api.url, {"packhost": server})
            with claude.interactive(allowed=ALLOWED) as terminal:
                ask(terminal, "Decline")
                terminal.see("notes/plan.txt", "started server-side task")
                assert not (workspace.root / "notes/plan.txt").exists()
                terminal.press(ENTER)
                terminal.see("execute-turn) completed")
            assert (workspace.root / "notes/plan.txt").read_text() == "sail at nine\n"
            (asked,) = json.loads(workspace.run("approvals", "list", "--all", "--json"))["approvals"]
            assert (asked["status"], asked["decided_channel"]) == ("approved", "client")
    assert "started server-side task" in result_text(api.results[0])


@pytest.mark.parametrize("transport", ["http"])
def test_what_needs_an_operator_is_put_by_a_link_that_approves_nothing(
    parts: Path, tmp_path: Path, workspace: Any, transport: str
) -> None:
    asks = "    reason: a person looks at what is written\n"
    workspace.accept(WORKSPACE_FILE.replace(asks, f"{asks}    assurance: operator\n"))
    call = ScriptedCall("mcp__packhost__workspace_write_file", WRITE.arguments)
    with workspace.over(transport) as server, FakeMessagesApi([call]) as api:
        claude = ClaudeCode(parts, tmp_path / "claude", workspace.root, api.url, {"packhost": server})
        with claude.interactive(allowed=ALLOWED) as terminal:
            ask(terminal, "/console/approvals/ap_")
            terminal.press(ENTER)
            terminal.see("I'm done")
            (asked,) = json.loads(workspace.run("approvals", "list", "--json"))["approvals"]
            assert not (workspace.root / "notes/plan.txt").exists()
            workspace.run("approvals", "deny", asked["id"], "--reason", "not today")
            terminal.press(ENTER)
            terminal.see("write_file) failed")
    assert not (workspace.root / "notes/plan.txt").exists()
