"""What a run's calls are held to before they start: a request raises it, and nothing lowers it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from packhost.gate import Caller, CallRequest
from packhost.kinds.context import CallContext

pytestmark = pytest.mark.anyio

LOOK = {"tool_calls": [{"id": "a", "name": "lab_look", "arguments": {}}]}
DONE = {"text": "done"}


@pytest.fixture
def seen(lab: Any) -> list[str]:
    """The intents that calls of `lab:look` were held to."""
    found: list[str] = []

    async def look(context: CallContext, arguments: dict[str, Any]) -> Any:
        found.append(context.caller.intent)  # type: ignore[attr-defined]
        return {}

    lab.tool("look", look, permission="read")
    lab.script(LOOK, DONE)
    lab.section["agents"] = {"careful": {"intent": "mandatory"}, "usual": {"intent": "best-effort"}}
    return found


@pytest.mark.parametrize(
    ("asked", "held"),
    [
        ({}, "best-effort"),
        ({"intent": "best-effort"}, "best-effort"),
        ({"intent": "mandatory"}, "mandatory"),
        ({"agent": "careful"}, "mandatory"),
        ({"agent": "careful", "intent": "best-effort"}, "mandatory"),
        ({"agent": "usual", "intent": "mandatory"}, "mandatory"),
        ({"agent": "usual"}, "best-effort"),
    ],
)
async def test_a_request_raises_what_its_agent_says_and_never_lowers_it(
    lab: Any, seen: list[str], asked: dict[str, Any], held: str
) -> None:
    outcome = await lab.turn(loop=True, **asked)
    assert outcome.value["outcome"] == "completed"
    assert seen == [held]


async def test_a_run_is_held_to_what_the_call_that_started_it_was(lab: Any, seen: list[str]) -> None:
    session = await lab.gate.sessions.enter("s-editor", "ann", "editor")
    caller = replace(Caller("ann", "editor", session), intent="mandatory")
    arguments = {"messages": [{"role": "user", "content": "go"}], "loop": True}
    outcome = await lab.gate.call(CallRequest("agent-runtime:execute-turn", arguments, caller))
    assert outcome.value["outcome"] == "completed"
    assert seen == ["mandatory"]


async def test_a_workflow_is_held_to_the_strictest_of_its_nodes(lab: Any, seen: list[str]) -> None:
    nodes = [
        {"id": "a", "prompt": "go"},
        {"id": "b", "prompt": "go", "agent": "careful", "depends_on": ["a"]},
    ]
    outcome = await lab.call("execute-turn", {"workflow": {"nodes": nodes}})
    assert outcome.value["outcome"] == "completed"
    assert seen == ["mandatory", "mandatory"]


async def test_a_subagent_is_held_to_what_the_run_that_calls_it_is(lab: Any, seen: list[str]) -> None:
    child = {"tool_type": "subagent", "name": "helper", "description": "Helps."}
    child["config"] = {"agent": {"name": "h", "model": "other"}, "allowed_tools": ["lab_look"]}
    schema = {"type": "object", "properties": {"task": {"type": "string"}}}
    child["parameters_schema"] = schema
    lab.section["models"]["other"] = {"provider": "scripted", "script": [LOOK, DONE]}
    ask = {"tool_calls": [{"id": "h", "name": "helper", "arguments": {"task": "look"}}]}
    lab.section["models"]["main"]["script"] = [ask, DONE]
    outcome = await lab.turn(loop=True, runtime_tools=[child], intent="mandatory")
    assert outcome.value["outcome"] == "completed", json.dumps(outcome.value)
    assert seen == ["mandatory"]
