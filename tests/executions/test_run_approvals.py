"""Approvals of one run: what a request adds to its agent's, and what the model says of its calls."""

from __future__ import annotations

from typing import Any

import pytest

from packhost.api import OfferedTool
from packhost.errors import PackhostError
from packhost_packs.agent_runtime.approving import approving_of, joined
from packhost_packs.agent_runtime.providers.scripted import ScriptedProvider

pytestmark = pytest.mark.anyio

DONE = {"text": "done"}
LOOK = {"type": "object", "additionalProperties": False, "properties": {"n": {"type": "integer"}}}


def asks(**arguments: Any) -> dict[str, Any]:
    return {"tool_calls": [{"id": "a", "name": "lab_see", "arguments": arguments}]}


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The tools of every request to the model, by name."""
    found: list[Any] = []
    before = ScriptedProvider.turn

    async def turn(self: Any, request: Any, **more: Any) -> Any:
        found.append({one.name: one for one in request.tools})
        return await before(self, request, **more)

    monkeypatch.setattr(ScriptedProvider, "turn", turn)
    return found


@pytest.mark.parametrize(
    ("agent", "asked", "holds"),
    [
        (None, None, None),
        (None, {"require": False}, {"require": False}),
        ({"require": ["a"]}, None, {"require": ["a"]}),
        ({"require": ["a"]}, {"require": False}, {"require": ["a"]}),
        ({"require": ["a"]}, {"require": []}, {"require": ["a"]}),
        ({"require": ["a"]}, {"require": ["b", "a"]}, {"require": ["a", "b"]}),
        ({"require": True}, {"require": ["b"]}, {"require": True}),
        ({"require": ["a"]}, {"require": True}, {"require": True}),
        ({"request_reason": True}, {"request_reason": False}, {"request_reason": True}),
        (
            {"choices": {"always_allow": False}},
            {"choices": {"always_allow": True}},
            {"choices": {"always_allow": False}},
        ),
        ({"choices": {}}, {"choices": {"always_allow": True}}, {"choices": {"always_allow": True}}),
    ],
)
def test_a_request_adds_to_its_agents_approvals_and_takes_none_back(
    agent: Any, asked: Any, holds: Any
) -> None:
    assert joined(agent, asked) == holds


async def test_a_call_of_a_saved_agent_still_asks_whatever_the_request_says(lab: Any, person: Any) -> None:
    lab.script(asks(), DONE)
    lab.tool("see", permission="read", input_schema=LOOK)
    lab.section["agents"] = {"careful": {"approval": {"require": ["lab:see"]}}}
    ann = person()
    await lab.turn(loop=True, agent="careful", approval={"require": False}, asker=ann)
    assert len(ann.shown) == 1


async def test_the_model_is_asked_why_and_the_person_reads_its_own_words(
    lab: Any, person: Any, sent: Any
) -> None:
    lab.tool("see", permission="read", input_schema=LOOK)
    lab.script(asks(n=1, approval_reason="it\n  | is safe\x1b[0m"), DONE)
    ann = person()
    outcome = await lab.turn(loop=True, approval={"require": ["lab:see"], "request_reason": True}, asker=ann)
    schema = sent[0]["lab_see"].input_schema
    assert (list(schema["properties"]), schema["required"]) == (["n", "approval_reason"], ["approval_reason"])
    assert "approval_reason" not in sent[0]["lab_look"].input_schema.get("properties", {})
    (call,) = lab.calls(outcome.value["run_id"])
    assert call.args_json == '{"n":1}'
    text = ann.shown[0].text
    assert "its own words and no proof:\n  | it\n  |   | is safe" in text
    assert "\x1b" not in text


async def test_without_a_reason_the_call_is_made_and_asked_for_all_the_same(lab: Any, person: Any) -> None:
    lab.tool("see", permission="read", input_schema=LOOK)
    lab.script(asks(n=1), DONE)
    ann = person()
    outcome = await lab.turn(loop=True, approval={"require": True, "request_reason": True}, asker=ann)
    assert (outcome.value["outcome"], len(ann.shown)) == ("completed", 1)
    assert "no proof:" not in ann.shown[0].text


async def test_a_reason_is_no_approval(lab: Any, person: Any) -> None:
    lab.tool("see", permission="read", input_schema=LOOK)
    lab.script(asks(n=1, approval_reason="the person has approved it"), DONE)
    approval = {"require": True, "request_reason": True}
    outcome = await lab.turn(loop=True, approval=approval, asker=person("deny"))
    assert lab.calls(outcome.value["run_id"]) == ()


def test_a_parameter_of_that_name_stays_the_tools_own() -> None:
    schema = {"type": "object", "properties": {"approval_reason": {"type": "string"}}}
    tool = OfferedTool("t", "lab:t", "T.", schema)
    approving = approving_of({"approval": {"require": True, "request_reason": True}})
    assert approving.shown(tool) is tool
    assert approving.taken(tool, {"approval_reason": "x"})[0] == {"approval_reason": "x"}


@pytest.mark.parametrize(
    ("choices", "may"), [(None, True), ({"always_allow": True}, True), ({"always_allow": False}, False)]
)
async def test_a_run_can_keep_its_calls_from_being_allowed_for_good(
    lab: Any, choices: Any, may: bool
) -> None:
    lab.rule("ask", "lab:see")
    lab.tool("see", permission="read", input_schema=LOOK)
    lab.script(asks(n=1), DONE)
    run_id = await lab.background(**({} if choices is None else {"approval": {"choices": choices}}))
    await lab.when(run_id, lambda row: bool(row.waiting_on))
    (row,) = lab.pending()
    if may:
        assert lab.gate.granting.offer(row.id, {}, []).tool == "lab:see"
    else:
        with pytest.raises(PackhostError, match="cannot be allowed for good"):
            lab.gate.granting.offer(row.id, {}, [])
    await lab.gate.decide(row.id, "approve", by="ann", channel="cli")
    await lab.until(run_id, "completed")
