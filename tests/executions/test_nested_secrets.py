"""Whoever may give no secrets to tools of their own cannot have a run do it for them."""

from __future__ import annotations

from typing import Any

import pytest

from packhost.executions.request import Request, request_of
from packhost.gate import Caller, CallRequest, Completed, Refusal
from packhost.store.ops import sessions

pytestmark = pytest.mark.anyio
TOOL = {
    "name": "ask",
    "description": "Asks.",
    "tool_type": "external",
    "parameters_schema": {"type": "object"},
    "config": {
        "url": "https://api.example.com/",
        "headers": {"Authorization": "Bearer {{secret:KEY}}"},
    },
}
INNER = {"messages": [{"role": "user", "content": "go"}], "runtime_tools": [TOOL]}
CALL = {"tool_calls": [{"id": "a", "name": "agent-runtime_execute-turn", "arguments": INNER}]}
OUTER = {
    "messages": [{"role": "user", "content": "begin"}],
    "loop": True,
    "tools": ["agent-runtime:execute-turn"],
}


async def said(lab: Any, secrets: bool) -> str:
    """What a run whose model brings a tool with a secret was told."""
    lab.script(CALL, {"text": "done"})
    caller = Caller("ann", "editor", "s-editor", secrets=secrets)
    outcome = await lab.gate.call(CallRequest("agent-runtime:execute-turn", OUTER, caller))
    assert isinstance(outcome, Completed)
    await lab.store.flush()
    assert request_of(lab.row(outcome.value["run_id"])).secrets is secrets
    return str(lab.store.read(sessions.history, "s-editor"))


async def test_a_model_gives_no_secrets_that_its_runs_caller_may_not_give(lab: Any) -> None:
    assert "secrets:read" in await said(lab, False)


async def test_a_model_of_one_who_may_is_held_to_the_bound_alone(lab: Any) -> None:
    told = await said(lab, True)
    assert "secrets:read" not in told
    assert "does not cover `secret KEY`" in told


async def test_a_call_that_brings_a_secret_is_refused_to_who_may_not(lab: Any) -> None:
    lab.script({"text": "done"})
    caller = Caller("ann", "editor", "s-editor", secrets=False)
    outcome = await lab.gate.call(CallRequest("agent-runtime:execute-turn", INNER, caller))
    assert isinstance(outcome, Refusal)
    assert outcome.code == "POLICY_DENIED"
    assert lab.run_ids() == []


def test_a_request_of_one_who_may_is_written_as_it_always_was() -> None:
    assert Request({}).as_text() == '{"spec":{},"background":false,"narrowing":[]}'
