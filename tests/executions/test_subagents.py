"""Subagents: what a child has of its caller, what it costs, whom it asks, and how it ends."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

from packhost.errors import PackhostError
from packhost.gate import Completed, Refusal
from packhost.manifest.model import ToolSpec
from packhost.store.ops import events
from packhost_packs.agent_runtime.spawning import spawning_of
from packhost_packs.agent_runtime.subagents import SubagentKind

pytestmark = pytest.mark.anyio

TASK = {"task": {"type": "string"}}
CALL = {"tool_calls": [{"id": "p1", "name": "mine_research", "arguments": {"task": "find out"}}]}
DONE = {"text": "all done"}


def child(lab: Any, *replies: Any, **more: Any) -> None:
    """A saved agent whose model says this."""
    lab.section["models"]["child"] = {"provider": "scripted", "script": list(replies)}
    lab.section["agents"] = {"helper": {"model": "child", **more}}


def research(lab: Any, **config: Any) -> None:
    lab.pack_tool("research", "subagent", {"agent_id": "helper", **config}, TASK)


def look(identity: str = "c1", name: str = "lab_look") -> dict[str, Any]:
    return {"tool_calls": [{"id": identity, "name": name, "arguments": {"n": 1}}]}


async def children(lab: Any) -> list[Any]:
    await lab.store.flush()
    return [row for row in map(lab.row, lab.run_ids()) if spec(row).get("subagent")]


def spec(row: Any) -> Any:
    return json.loads(row.spec_json)["spec"]


async def results(lab: Any, run_id: str) -> list[str]:
    return [row.result_json for row in lab.calls(run_id)]


async def test_the_child_answers_and_the_caller_sees_its_answer_alone(lab: Any) -> None:
    lab.script(CALL, DONE)
    child(lab, look(), {"text": "forty-two"})
    research(lab)
    outcome = await lab.turn(loop=True)
    assert isinstance(outcome, Completed)
    assert (outcome.value["outcome"], outcome.value["text"]) == ("completed", "all done")
    (row,) = await children(lab)
    assert await results(lab, outcome.value["run_id"]) == ['"forty-two"']
    assert [call.tool for call in lab.calls(outcome.value["run_id"])] == ["mine:research"]
    assert [call.tool for call in lab.calls(row.id)] == ["lab:look"]
    assert (row.parent, row.status) == (outcome.value["run_id"], "completed")
    assert row.session_id == lab.calls(outcome.value["run_id"])[0].id


async def test_the_child_does_not_see_the_conversation_of_its_caller(lab: Any) -> None:
    lab.script(CALL, DONE)
    child(lab, {"text": "ok"})
    research(lab)
    await lab.turn(loop=True)
    (row,) = await children(lab)
    assert spec(row)["messages"] == [{"role": "user", "content": "find out"}]


async def test_the_childs_turns_are_no_events_of_the_caller(lab: Any) -> None:
    lab.script(CALL, DONE)
    child(lab, look(), {"text": "ok"})
    research(lab)
    outcome = await lab.turn(loop=True)
    kinds = await lab.events(outcome.value["run_id"])
    assert (kinds.count("turn.completed"), kinds.count("call.started")) == (2, 1)


@pytest.mark.parametrize(
    ("allowed", "parents", "within"),
    [
        (["lab:look"], None, ["lab_look"]),
        (["lab:*"], ["lab_look", "mine:*"], ["lab_look"]),
        (["lab_*", "mine:*"], None, ["lab_look", "lab_note", "mine_research"]),
        ([], None, []),
        (["lab:note"], ["lab:look", "mine:*"], []),
    ],
)
async def test_the_childs_tools_are_those_allowed_that_its_caller_has(
    lab: Any, allowed: list[str], parents: Any, within: list[str]
) -> None:
    lab.script(CALL, DONE)
    child(lab, {"text": "ok"})
    research(lab, allowed_tools=allowed)
    await lab.turn(loop=True, **({"tools": parents} if parents else {}))
    (row,) = await children(lab)
    assert sorted(spec(row)["within"]) == within
    assert set(json.loads(row.state_json)["tools"]) == set(within) - {"mine_research"}


async def test_a_tool_that_is_not_allowed_cannot_be_called_by_the_child(lab: Any) -> None:
    lab.script(CALL, DONE)
    child(lab, look(name="lab_note"), {"text": "ok"})
    research(lab, allowed_tools=["lab:look"])
    await lab.turn(loop=True)
    (row,) = await children(lab)
    assert lab.calls(row.id) == ()


async def test_subagents_start_no_subagents_unless_they_may(lab: Any) -> None:
    for nesting, offered in ((False, False), (True, True)):
        lab.script(CALL, DONE)
        child(lab, {"text": "ok"})
        research(lab, allow_nesting=nesting)
        outcome = await lab.turn(loop=True, client=f"client-{nesting}")
        row = next(one for one in await children(lab) if one.parent == outcome.value["run_id"])
        assert ("mine_research" in json.loads(row.state_json)["tools"]) is offered


async def test_nesting_ends_somewhere(lab: Any) -> None:
    deeper = {"tool_calls": [{"id": "n1", "name": "mine_research", "arguments": {"task": "deeper"}}]}
    lab.script(CALL, DONE)
    child(lab, deeper, {"text": "ok"})
    research(lab, allow_nesting=True)
    await lab.turn(loop=True)
    rows = await children(lab)
    assert max(spec(row)["depth"] for row in rows) == 5


@pytest.mark.parametrize(
    ("output_format", "text", "answer"),
    [
        ("text", "plain words", "plain words"),
        ("json", '{"a": [1]}', {"a": [1]}),
        ("last_message", "words", {"role": "assistant", "content": [{"type": "text", "text": "words"}]}),
    ],
)
async def test_the_answer_comes_in_the_form_that_was_asked_for(
    lab: Any, output_format: str, text: str, answer: Any
) -> None:
    lab.script(DONE)
    child(lab, {"text": text})
    research(lab, output_format=output_format)
    outcome = await lab.call("mine:research", {"task": "t"})
    assert isinstance(outcome, Completed), outcome
    assert outcome.value == answer


async def test_an_answer_that_is_no_json_fails_the_call(lab: Any) -> None:
    lab.script(DONE)
    child(lab, {"text": "not json"})
    research(lab, output_format="json")
    outcome = await lab.call("mine:research", {"task": "t"})
    assert (outcome.code, "answer with JSON" in outcome.message) == ("OUTPUT_INVALID", True)


async def test_a_child_that_does_not_end_well_fails_the_call_alone(lab: Any) -> None:
    lab.script(CALL, DONE)
    child(lab, *[look(f"c{n}") for n in range(9)])
    research(lab, max_turns=2)
    outcome = await lab.turn(loop=True)
    assert outcome.value["outcome"] == "completed"
    (call,) = lab.calls(outcome.value["run_id"])
    assert (call.status, call.code) == ("error", "LIMIT_EXCEEDED")


async def test_the_childs_cost_counts_for_its_caller_and_one_call_of_it(lab: Any) -> None:
    lab.script(CALL, DONE)
    child(lab, {**look(), "usage": {"input_tokens": 100, "output_tokens": 20}}, {"text": "ok"})
    research(lab)
    outcome = await lab.turn(loop=True)
    assert outcome.value["usage"] == {"input_tokens": 100, "output_tokens": 20}
    assert outcome.value["tool_calls"] == 1


async def test_a_child_may_use_no_more_tokens_than_its_caller_has_left(lab: Any) -> None:
    lab.script(CALL, DONE)
    child(lab, {"text": "ok"})
    research(lab)
    await lab.turn(loop=True, limits={"max_tokens": 1000})
    (row,) = await children(lab)
    assert spec(row)["limits"]["max_tokens"] == 1000


async def test_calls_beyond_the_callers_limit_start_no_child(lab: Any) -> None:
    two = [{"id": f"p{n}", "name": "mine_research", "arguments": {"task": "t"}} for n in range(2)]
    lab.script({"tool_calls": two}, DONE)
    child(lab, {"text": "ok"})
    research(lab)
    outcome = await lab.turn(loop=True, limits={"max_tool_calls": 1})
    assert outcome.value["outcome"] == "limit_exceeded"
    assert await children(lab) == []


# approvals


async def test_a_childs_call_that_needs_a_person_asks_through_its_caller(lab: Any, person: Any) -> None:
    ann = person()
    lab.script(CALL, DONE)
    child(lab, look(name="lab_note"), {"text": "ok"})
    research(lab)
    lab.rule("ask", "lab:note")
    outcome = await lab.turn(loop=True, asker=ann)
    assert outcome.value["outcome"] == "completed"
    (prompt,) = ann.shown
    assert prompt.tool == "lab:note"
    assert "of the subagent helper (mine:research)" in prompt.text


async def test_the_caller_waits_on_its_childs_question(lab: Any) -> None:
    lab.script(CALL, DONE)
    child(lab, look(name="lab_note"), {"text": "ok"})
    research(lab)
    lab.rule("ask", "lab:note")
    run_id = await lab.background()
    row = await lab.when(run_id, lambda row: (row.waiting_on or "").startswith("approval:"))
    (pending,) = lab.pending()
    assert row.waiting_on == f"approval:{pending.id}"
    assert (pending.tool, json.loads(pending.args_json)) == ("lab:note", {"n": 1})
    await lab.gate.decide(pending.id, "approve", by="ann", channel="cli")
    await lab.until(run_id, "completed")


async def test_the_question_names_tool_and_agent_in_the_record(lab: Any) -> None:
    lab.script(CALL, DONE)
    child(lab, look(name="lab_note"), {"text": "ok"})
    research(lab)
    lab.rule("ask", "lab:note")
    run_id = await lab.background()
    await lab.when(run_id, lambda row: (row.waiting_on or "").startswith("approval:"))
    (row,) = await children(lab)
    assert "approval.requested" in await lab.events(row.id)
    asked = [one for one in lab.store.read(events.page, 0, row.id, 1000) if one.type == "approval.requested"]
    assert json.loads(asked[0].data)["subagent"] == {"tool_name": "mine:research", "agent_name": "helper"}


@pytest.mark.parametrize(
    ("parents", "childs", "questions"),
    [
        (None, None, 0),
        (None, ["lab:look"], 1),
        ([], ["lab:look"], 0),
        (False, ["lab:look"], 0),
        (["lab:*"], None, 1),
        (["lab:look"], False, 1),
        (True, None, 2),
    ],
)
async def test_an_attached_childs_approvals_are_its_callers_where_it_says_any(
    lab: Any, person: Any, parents: Any, childs: Any, questions: int
) -> None:
    ann = person()
    lab.script(CALL, DONE)
    child(lab, look(), {"text": "ok"}, **({} if childs is None else {"approval": {"require": childs}}))
    research(lab)
    asked = {} if parents is None else {"approval": {"require": parents}}
    outcome = await lab.turn(loop=True, asker=ann, **asked)
    assert outcome.value["outcome"] == "completed"
    assert len(ann.shown) == questions


async def test_a_detached_child_keeps_its_own_approvals_and_outlives_the_call(lab: Any) -> None:
    lab.script(CALL, DONE)
    child(lab, look(), {"text": "ok"}, approval={"require": ["lab:look"]})
    research(lab, detached=True)
    outcome = await lab.turn(loop=True, approval={"require": []})
    assert outcome.value["outcome"] == "completed"
    (row,) = await children(lab)
    await lab.when(row.id, lambda row: (row.waiting_on or "").startswith("approval:"))
    await lab.gate.decide(lab.pending()[0].id, "approve", by="ann", channel="cli")
    await lab.until(row.id, "completed")


async def test_ending_the_caller_ends_the_child(lab: Any, hanging: Any) -> None:
    wait = hanging()
    lab.tool("wait", wait)
    lab.script(CALL, DONE)
    child(lab, look(name="lab_wait"), {"text": "ok"})
    research(lab)
    run_id = await lab.background()
    await wait.started.wait()
    await lab.runs.abort_by_person(run_id, "ann")
    (row,) = await children(lab)
    assert (await lab.until(row.id, "aborted")).status == "aborted"


async def test_the_time_of_a_person_is_not_the_tools_time(lab: Any, person: Any) -> None:
    lab.script(CALL, DONE)
    child(lab, look(name="lab_note"), {"text": "ok"})
    lab.pack_tool("research", "subagent", {"agent_id": "helper"}, TASK, timeout="200ms")
    lab.rule("ask", "lab:note")
    run_id = await lab.background()
    await lab.when(run_id, lambda row: (row.waiting_on or "").startswith("approval:"))
    await anyio.sleep(0.4)
    await lab.gate.decide(lab.pending()[0].id, "approve", by="ann", channel="cli")
    row = await lab.until(run_id, "completed", "failed")
    assert lab.calls(row.id)[0].status == "ok"


# spawning


SPAWN = {
    "tool_calls": [{"id": "s1", "name": "spawn_subagent", "arguments": {"task": "t", "tools": ["lab_look"]}}]
}


async def test_a_model_may_spawn_a_subagent_with_tools_of_the_pool(lab: Any) -> None:
    lab.script(SPAWN, DONE)
    lab.section["models"]["child"] = {"provider": "scripted", "script": [look(), {"text": "spawned"}]}
    outcome = await lab.turn(loop=True, subagent_config={"tool_pool": ["lab:*"], "default_model": "child"})
    assert outcome.value["outcome"] == "completed"
    assert await results(lab, outcome.value["run_id"]) == ['"spawned"']
    (row,) = await children(lab)
    assert (spec(row)["within"], spec(row)["limits"]["max_turns"]) == (["lab_look"], 10)


async def test_a_tool_outside_the_pool_is_refused(lab: Any) -> None:
    lab.script(SPAWN, DONE)
    outcome = await lab.turn(loop=True, subagent_config={"tool_pool": ["lab:note"]})
    assert await children(lab) == []
    assert outcome.value["outcome"] == "completed"


async def test_spawns_are_counted(lab: Any) -> None:
    spawns = [
        {"tool_calls": [{"id": f"s{n}", "name": "spawn_subagent", "arguments": {"task": f"t{n}"}}]}
        for n in range(3)
    ]
    lab.script(*spawns, DONE)
    lab.section["models"]["child"] = {"provider": "scripted", "script": [{"text": "ok"}]}
    outcome = await lab.turn(loop=True, subagent_config={"max_spawns_per_run": 2, "default_model": "child"})
    codes = [call.code for call in lab.calls(outcome.value["run_id"])]
    assert codes == [None, None, "LIMIT_EXCEEDED"]


async def test_without_its_configuration_there_is_no_spawning(lab: Any) -> None:
    lab.script(SPAWN, DONE)
    outcome = await lab.turn(loop=True)
    assert lab.calls(outcome.value["run_id"]) == ()


@pytest.mark.parametrize(
    ("config", "member"),
    [
        ({"max_spawns_per_run": 0}, "max_spawns_per_run"),
        ({"max_spawns_per_run": 51}, "max_spawns_per_run"),
        ({"max_turns_limit": 101}, "max_turns_limit"),
        ({"default_max_turns": 0}, "default_max_turns"),
        ({"default_timeout_ms": 999}, "default_timeout_ms"),
        ({"default_timeout_ms": 600_001}, "default_timeout_ms"),
        ({"allow_nesting": "yes"}, "allow_nesting"),
        ({"tool_pool": "lab:*"}, "tool_pool"),
        ({"toolpool": []}, "toolpool"),
    ],
)
async def test_a_configuration_out_of_range_is_refused_before_the_run(
    lab: Any, config: dict[str, Any], member: str
) -> None:
    lab.script(DONE)
    outcome = await lab.turn(loop=True, subagent_config=config)
    assert isinstance(outcome, Refusal)
    assert (outcome.code, member in outcome.message) == ("INVALID_INPUT", True)
    assert lab.run_ids() == []


def test_what_is_left_out_of_a_configuration_is_as_it_is_documented() -> None:
    spawning = spawning_of({})
    assert (spawning.max_spawns, spawning.max_turns, spawning.allow_nesting) == (5, 10, False)


# what is found when the manifest loads


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({}, "exactly one of"),
        ({"agent_id": "a", "agent": {}, "allowed_tools": []}, "exactly one of"),
        ({"agent": {"system": "x"}}, "needs `allowed_tools`"),
        ({"agent_id": "a", "max_turns": 0}, "positive integer"),
        ({"agent_id": "a", "max_turns": 1.5}, "positive integer"),
        ({"agent_id": "a", "timeout_ms": 0}, "positive integer"),
        ({"agent_id": "a", "output_format": "xml"}, "output_format"),
        ({"agent_id": "a", "allowed_tools": "lab:*"}, "a list of names"),
        ({"agent_id": "a", "spawn": {}}, "no `spawn`"),
        ({"agent": {"prompt": "x"}, "allowed_tools": []}, "an agent has no `prompt`"),
        ({"agent_id": "a", "detached": 1}, "true or false"),
    ],
)
def test_a_wrong_config_is_told(config: dict[str, Any], said: str) -> None:
    found = SubagentKind().check(
        ToolSpec(name="t", description="t", kind="subagent", permission="write", config=config)
    )
    assert any(said in one for one in found), found


async def test_an_inline_agent_has_its_own_model_and_system(lab: Any) -> None:
    lab.script(DONE)
    lab.section["models"]["child"] = {"provider": "scripted", "script": [{"text": "inline"}]}
    agent = {"name": "poet", "model": "child", "system": "You rhyme."}
    lab.pack_tool("poem", "subagent", {"agent": agent, "allowed_tools": []}, TASK)
    outcome = await lab.call("mine:poem", {"task": "rain"})
    assert outcome.value == "inline"
    (row,) = [lab.row(run) for run in lab.run_ids()]
    assert (spec(row)["system"], spec(row)["tools"]) == ("You rhyme.", [])


async def test_an_unknown_agent_is_told(lab: Any) -> None:
    lab.script(DONE)
    lab.pack_tool("poem", "subagent", {"agent_id": "nobody"}, TASK)
    outcome = await lab.call("mine:poem", {"task": "rain"})
    assert (outcome.code, "nobody" in outcome.message) == ("NOT_FOUND", True)


async def test_the_error_says_which_run_it_was(lab: Any) -> None:
    lab.script(DONE)
    child(lab, look())
    research(lab)
    outcome = await lab.call("mine:research", {"task": "t"})
    assert outcome.code == "TOOL_FAILED"
    assert lab.run_ids()[-1] in outcome.hint
    assert not isinstance(outcome, PackhostError)


async def test_after_a_crash_the_caller_is_told_and_the_child_can_go_on_by_itself(
    building: Any, hanging: Any
) -> None:
    wait = hanging()

    def equip(lab: Any) -> None:
        lab.tool("wait", wait, permission="read", idempotent=True)
        lab.script(CALL, DONE)
        child(lab, look(name="lab_wait"), {"text": "late but done"})
        research(lab)

    async with building.host("host_a") as first:
        equip(first)
        run_id = await first.background()
        await wait.started.wait()
        await first.runs.shut_down()
    wait.go_on.set()
    async with building.host("host_b") as second:
        equip(second)
        row = await second.until(run_id, "completed", "interrupted")
        if row.status == "interrupted":
            await second.runs.resume_by_person(run_id, "ann")
        await second.until(run_id, "completed")
        assert [call.status for call in second.calls(run_id)] == ["unknown"]
        (row,) = await children(second)
        if row.status == "interrupted":
            await second.runs.resume_by_person(row.id, "ann")
        row = await second.until(row.id, "completed")
        assert json.loads(row.result_json)["text"] == "late but done"
