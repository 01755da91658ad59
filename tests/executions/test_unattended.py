"""`approvals: {unattended: reject}`: where nobody can be asked, what would ask is refused before it runs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from packhost.gate import Caller, CallRequest
from packhost.store.ops import sessions

pytestmark = pytest.mark.anyio
DONE = {"text": "done"}


def asks(name: str, **arguments: Any) -> dict[str, Any]:
    return {"tool_calls": [{"id": f"c-{name}", "name": name, "arguments": arguments}]}


@pytest.fixture
def strict(lab: Any) -> Any:
    """A host where every call of `lab:note` asks, and nobody is waited for who cannot be asked."""
    lab.terms["unattended"] = "reject"
    lab.retool("lab:note")
    lab.rule("ask", "lab:note")
    return lab


class Holding:
    """A channel that holds a call and can ask nobody."""

    async def ask(self, prompt: Any) -> Any:
        raise AssertionError("nobody is asked")


async def turn(lab: Any, *, attended: bool, asker: Any, **arguments: Any) -> Any:
    session = await lab.gate.sessions.enter("s-editor", "ann", "editor")
    caller = Caller("ann", "editor", session, attended=attended)
    request = {"messages": [{"role": "user", "content": "go"}], "loop": True, **arguments}
    return await lab.gate.call(CallRequest("agent-runtime:execute-turn", request, caller), asker)


def told(lab: Any, session: str) -> str:
    return json.dumps([row.message for row in lab.store.read(sessions.history, session)])


async def test_a_client_that_cannot_ask_is_refused_at_once(strict: Any) -> None:
    session = await strict.gate.sessions.enter("s-editor", "ann", "editor")
    request = CallRequest("lab:note", {}, Caller("ann", "editor", session, attended=False))
    refused = await strict.gate.call(request, Holding())
    assert refused.code == "APPROVAL_MODE_UNSUPPORTED"
    assert strict.pending() == []


async def test_a_run_of_such_a_client_is_told_so_and_goes_on(strict: Any) -> None:
    strict.script(asks("lab_note"), DONE)
    outcome = await turn(strict, attended=False, asker=Holding())
    assert outcome.value["outcome"] == "completed"
    assert strict.calls(outcome.value["run_id"]) == ()
    assert "APPROVAL_MODE_UNSUPPORTED" in told(strict, outcome.value["session_id"])


async def test_a_run_in_the_background_is_told_so_too(strict: Any) -> None:
    strict.script(asks("lab_note"), DONE)
    run_id = await strict.background()
    row = await strict.until(run_id, "completed")
    assert "APPROVAL_MODE_UNSUPPORTED" in told(strict, row.session_id)


@pytest.mark.parametrize("kind", ["flow", "subagent"])
async def test_so_is_a_question_inside_a_flow_or_a_child(strict: Any, kind: str) -> None:
    config: dict[str, Any] = {"flow": {"steps": [{"call": {"tool": "lab:note", "arguments": {}}}]}}
    if kind == "subagent":
        config = {"agent": {"model": "child"}, "allowed_tools": ["lab_note"]}
    tool = {
        "name": "inner",
        "description": "Does it.",
        "tool_type": kind,
        "parameters_schema": {"type": "object", "properties": {"task": {"type": "string"}}},
        "config": config,
    }
    strict.script(asks("inner", task="note"), DONE)
    child = {"provider": "scripted", "script": [asks("lab_note"), {"text": "no"}]}
    strict.section["models"]["child"] = child
    outcome = await turn(strict, attended=False, asker=Holding(), runtime_tools=[tool])
    assert outcome.value["outcome"] == "completed"
    assert strict.pending() == []


async def test_a_person_who_can_be_asked_still_is(strict: Any, person: Any) -> None:
    ann = person()
    strict.script(asks("lab_note"), DONE)
    outcome = await turn(strict, attended=True, asker=ann)
    assert [call.status for call in strict.calls(outcome.value["run_id"])] == ["ok"]
    assert len(ann.shown) == 1
