"""Workflows on a real store and gate: order, conditions, time, approvals, control, and a restart anywhere."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import anyio
import pytest

from packhost.executions import ops
from packhost.kinds.context import CallContext
from packhost.store.ops import sessions

pytestmark = pytest.mark.anyio


def says(text: str) -> list[dict[str, Any]]:
    return [{"text": text}]


def calling(*ids: str, tool: str = "lab_note", then: str = "done") -> list[dict[str, Any]]:
    calls = [{"id": identity, "name": tool, "arguments": {"id": identity}} for identity in ids]
    return [{"tool_calls": calls}, {"text": then}]


def models(lab: Any, **scripts: Any) -> None:
    """A scripted profile for each name."""
    lab.section["models"] = {
        name: {"provider": "scripted", "script": script} for name, script in scripts.items()
    }
    lab.section["default_model"] = next(iter(scripts))


def node(identity: str, *depends_on: str, model: str | None = None, **more: Any) -> dict[str, Any]:
    node = {"id": identity, "prompt": f"do {identity}", "depends_on": list(depends_on), **more}
    return {**node, "model_profile": model or identity}


async def run(lab: Any, *nodes: Any, **arguments: Any) -> Any:
    return await lab.call("execute-turn", {"workflow": {"nodes": list(nodes)}, **arguments})


def conversation(lab: Any, session: str) -> list[Any]:
    return [row.message for row in lab.store.read(sessions.history, session)]


async def test_a_node_is_given_what_the_nodes_before_it_came_to(lab: Any) -> None:
    models(lab, draft=says("a poem"), review=says('{"score": 7}'), final=says("the end"))
    outcome = await run(
        lab,
        node("final", "draft", "review", prompt="{{draft.text}} got {{review.json.score}} for {{input}}"),
        node("review", "draft", prompt="judge {{draft.text}} ({{ draft.outcome }})"),
        node("draft"),
        messages=[{"role": "user", "content": "rain"}],
    )
    value = outcome.value
    assert (value["outcome"], value["text"], value["turns"]) == ("completed", "the end", 3)
    run_id = value["run_id"]
    asked = [conversation(lab, f"{run_id}.{name}")[0]["content"][0]["text"] for name in ("review", "final")]
    assert asked == ["judge a poem (completed)", "a poem got 7 for rain"]
    assert value["nodes"]["draft"] == {
        "status": "ended",
        "outcome": "completed",
        "text": "a poem",
        "turns": 1,
        "tool_calls": 0,
        "session_id": f"{run_id}.draft",
    }
    assert conversation(lab, value["session_id"]) == []


async def test_nodes_that_do_not_wait_for_each_other_run_side_by_side(lab: Any) -> None:
    both, there = anyio.Event(), []

    async def meet(context: CallContext, arguments: dict[str, Any]) -> Any:
        there.append(arguments["id"])
        if len(there) == 2:
            both.set()
        with anyio.fail_after(5):
            await both.wait()
        return 1

    lab.tool("note", meet)
    models(lab, left=calling("c1"), right=calling("c1"), last=says("joined"))
    outcome = await run(lab, node("left"), node("right"), node("last", "left", "right"))
    assert (outcome.value["outcome"], outcome.value["text"], there) == ("completed", "joined", ["c1", "c1"])
    assert sorted(call.tool_use_id for call in lab.calls(outcome.value["run_id"])) == ["left/c1", "right/c1"]


CUT = [{"text": "half", "stop_reason": "max_tokens"}]


@pytest.mark.parametrize(
    ("nodes", "statuses", "outcome"),
    [
        ([node("ok"), node("x", "ok", model="ok")], {"x": "completed"}, "completed"),
        ([node("cut"), node("x", "cut", model="ok")], {"x": "skipped"}, "incomplete"),
        (
            [node("cut"), node("x", "cut", model="ok", when={"path": "cut.outcome", "equals": "incomplete"})],
            {"x": "completed"},
            "completed",
        ),
        ([node("cut"), node("ok"), node("x", "cut", "ok", model="ok")], {"x": "skipped"}, "incomplete"),
        (
            [node("cut"), node("ok"), node("x", "cut", "ok", model="ok", join="any")],
            {"x": "completed"},
            "incomplete",
        ),
        (
            [node("ok"), node("x", "ok", model="ok", when={"path": "ok.text", "contains": "no such"})],
            {"x": "skipped"},
            "completed",
        ),
        (
            [
                node("ok"),
                node("x", "ok", model="ok", when={"path": "ok.json", "exists": True}),
                node("y", "x", model="ok"),
                node("z", "x", model="ok", when={"path": "x.status", "equals": "skipped"}),
            ],
            {"x": "skipped", "y": "skipped", "z": "completed"},
            "completed",
        ),
        (
            [
                node("ok"),
                node("cut"),
                node("x", "ok", "cut", model="ok", join="any", when={"path": "cut.text", "equals": "half"}),
            ],
            {"x": "completed"},
            "completed",
        ),
        ([node("ask", loop=False), node("x", "ask", model="ok")], {"x": "skipped"}, "incomplete"),
    ],
)
async def test_what_a_node_runs_for(
    lab: Any, nodes: list[Any], statuses: dict[str, str], outcome: str
) -> None:
    models(lab, ok=says("fine"), cut=CUT, ask=calling("a"))
    value = (await run(lab, *nodes)).value
    shown = {name: one.get("outcome", one["status"]) for name, one in value["nodes"].items()}
    assert {name: shown[name] for name in statuses} == statuses
    assert value["outcome"] == outcome
    assert ("error" in value) is (outcome != "completed")


async def test_a_workflow_that_could_not_run_is_refused_before_anything_starts(lab: Any) -> None:
    models(lab, a=says("1"), b=says("2"))
    outcome = await run(lab, node("a", "b"), node("b", "a"))
    assert (outcome.code, "`a` → `b` → `a`" in outcome.message) == ("INVALID_INPUT", True)
    assert outcome.as_json()["path"] == "/workflow/nodes/0/depends_on"
    assert (await run(lab, node("a", agent="nobody"))).code == "NOT_FOUND"
    assert (await run(lab, node("a"), loop=True)).code == "INVALID_INPUT"
    assert lab.run_ids() == []


async def test_a_saved_workflow_is_run_by_its_name(lab: Any) -> None:
    models(lab, a=says("hello"))
    lab.section["flows"] = {"greet": {"nodes": [node("a", prompt="greet {{input}}")]}}
    messages = [{"role": "user", "content": [{"type": "text", "text": "ann"}]}]
    value = (await lab.call("execute-turn", {"workflow": "greet", "messages": messages})).value
    assert conversation(lab, f"{value['run_id']}.a")[0]["content"][0]["text"] == "greet ann"
    unknown = await lab.call("execute-turn", {"workflow": "great"})
    assert (unknown.code, "`greet`" in unknown.hint) == ("NOT_FOUND", True)


async def test_a_workflows_budget_is_that_of_all_its_nodes(lab: Any) -> None:
    models(lab, a=says("1"), b=says("2"), c=says("3"))
    value = (await run(lab, node("a"), node("b", "a"), node("c", "b"), limits={"max_turns": 2})).value
    assert (value["outcome"], value["turns"]) == ("limit_exceeded", 2)
    assert value["nodes"]["c"]["error"]["issue"] == "BUDGET_TURNS"


async def test_calls_of_all_nodes_are_admitted_against_one_budget(lab: Any) -> None:
    models(lab, a=calling("1", "2"), b=calling("1", "2"))
    value = (await run(lab, node("a"), node("b", "a"), limits={"max_tool_calls": 3})).value
    assert (value["outcome"], value["tool_calls"]) == ("limit_exceeded", 2)
    results = conversation(lab, f"{value['run_id']}.b")[2]["content"]
    assert [block["content"].partition(":")[0] for block in results] == ["LIMIT_EXCEEDED"] * 2


async def test_a_node_that_waits_for_a_time_is_woken_by_the_host(lab: Any) -> None:
    models(lab, a=says("1"), b=says("2"))
    value = (await run(lab, node("a"), node("b", "a", wake_at="+200ms"))).value
    assert (value["outcome"], value["waiting_on"].partition(":")[0]) == ("paused", "time")
    row = await lab.until(value["run_id"], "completed")
    assert row.outcome == "completed"
    ended = (await lab.call("resume_workflow", {"run_id": row.id})).value
    assert (ended["outcome"], ended["text"]) == ("completed", "2")


async def test_a_time_holds_over_a_restart_and_nothing_runs_before_it(building: Any) -> None:
    at = datetime.fromtimestamp(time.time() + 0.7, UTC).isoformat()
    async with building.host("host_a") as first:
        models(first, a=says("1"), b=says("2"))
        value = (await run(first, node("a"), node("b", "a", wake_at=at))).value
    assert time.time() < datetime.fromisoformat(at).timestamp()
    async with building.host("host_b") as second:
        models(second, a=says("1"), b=says("2"))
        row = await second.until(value["run_id"], "completed")
        assert row.updated_at >= datetime.fromisoformat(at).timestamp()
        assert json.loads(row.result_json)["turns"] == 2


async def test_a_person_holds_a_run_that_waits_for_a_time(lab: Any) -> None:
    models(lab, a=says("1"))
    value = (await run(lab, node("a", wake_at="+150ms"))).value
    await lab.runs.pause_by_person(value["run_id"], by="ann")
    assert lab.store.read(ops.waiting_for_time) == ()
    refused = await lab.call("resume_workflow", {"run_id": value["run_id"]})
    assert refused.code == "APPROVAL_REQUIRED"
    await anyio.sleep(0.2)
    assert lab.row(value["run_id"]).status == "paused"
    await lab.runs.resume_by_person(value["run_id"], by="ann")
    assert (await lab.until(value["run_id"], "completed")).outcome == "completed"


async def test_an_agent_holds_a_run_that_waits_and_lets_it_go_on(lab: Any, person: Any) -> None:
    models(lab, a=says("1"))
    run_id = (await run(lab, node("a", wake_at="+1h"))).value["run_id"]
    await lab.call("pause_turn", {"run_id": run_id}, asker=person())
    assert lab.store.read(ops.waiting_for_time) == ()
    again = (await lab.call("resume_workflow", {"run_id": run_id})).value
    assert (again["outcome"], again["waiting_on"][:5]) == ("paused", "time:")
    aborted = await lab.call("abort_turn", {"run_id": run_id}, asker=person())
    assert aborted.value["status"] == "aborted"


async def test_a_call_inside_a_node_waits_for_a_person_and_the_others_go_on(lab: Any) -> None:
    lab.rule("ask", "lab:note")
    models(lab, asks=calling("c"), free=says("free"), last=says("end"))
    value = (await run(lab, node("asks"), node("free"), node("last", "asks"), background=True)).value
    run_id = value["run_id"]
    row = await lab.when(run_id, lambda row: row.waiting_on is not None)
    (asked,) = lab.pending()
    assert (row.waiting_on, asked.run_id) == (f"approval:{asked.id}", run_id)
    await lab.gate.decide(asked.id, "approve", by="ann", channel="cli")
    assert json.loads((await lab.until(run_id, "completed")).result_json)["text"] == "end"


async def test_a_pause_lets_started_nodes_reach_their_safe_point_and_starts_no_other(
    lab: Any, hanging: Callable[..., Any]
) -> None:
    slow = hanging()
    lab.tool("note", slow)
    models(lab, a=calling("1"), b=calling("1"), c=says("end"))
    value = (await run(lab, node("a"), node("b"), node("c", "a", "b"), background=True)).value
    run_id = value["run_id"]
    with anyio.fail_after(5):
        await slow.started.wait()
        while slow.times < 2:
            await anyio.sleep(0.001)
    await lab.runs.pause_by_person(run_id, by="ann")
    slow.go_on.set()
    row = await lab.until(run_id, "paused")
    assert {one["status"] for one in json.loads(row.state_json)["nodes"].values()} == {"running", "waiting"}
    await lab.runs.resume_by_person(run_id, by="ann")
    row = await lab.until(run_id, "completed")
    assert (json.loads(row.result_json)["text"], slow.times) == ("end", 2)


async def test_an_abort_ends_every_node_and_leaves_their_histories_whole(
    lab: Any, hanging: Callable[..., Any]
) -> None:
    slow = hanging()
    lab.tool("note", slow)
    models(lab, a=calling("1"), b=calling("1"))
    run_id = (await run(lab, node("a"), node("b"), background=True)).value["run_id"]
    with anyio.fail_after(5):
        while slow.times < 2:
            await anyio.sleep(0.001)
    view = await lab.runs.abort_by_person(run_id, by="ann")
    assert (view.status, view.outcome) == ("aborted", "cancelled")
    for name in ("a", "b"):
        last = conversation(lab, f"{run_id}.{name}")[-1]
        assert last["content"][0]["content"].startswith("EFFECTS_UNKNOWN")


async def test_a_nodes_conversation_belongs_to_its_run_until_that_has_ended(
    lab: Any, hanging: Callable[..., Any]
) -> None:
    slow = hanging()
    lab.tool("note", slow)
    models(lab, a=calling("1"), z=says("more"))
    run_id = (await run(lab, node("a"), background=True)).value["run_id"]
    with anyio.fail_after(5):
        await slow.started.wait()
    busy = await lab.turn(session_id=f"{run_id}.a", model_profile="z")
    assert busy.code == "CONTINUATION_IN_PROGRESS"
    slow.go_on.set()
    await lab.until(run_id, "completed")
    after = await lab.turn(session_id=f"{run_id}.a", model_profile="z")
    assert after.value["outcome"] == "completed"
    assert len(conversation(lab, f"{run_id}.a")) == 6


async def test_autonomy_of_the_workflows_session_holds_in_its_nodes(
    lab: Any, hanging: Callable[..., Any]
) -> None:
    slow = hanging()
    lab.tool("look", slow, permission="read")
    models(lab, a=[*calling("1", tool="lab_look")[:1], *calling("2")])
    run_id = (await run(lab, node("a"), background=True)).value["run_id"]
    with anyio.fail_after(5):
        await slow.started.wait()
    await lab.call("lower_autonomy", {"level": "observe"})
    slow.go_on.set()
    await lab.until(run_id, "completed")
    assert [call.tool_use_id for call in lab.calls(run_id)] == ["a/1"]


async def test_a_workflow_interrupted_in_a_node_goes_on_and_no_node_runs_twice(
    building: Any, hanging: Callable[..., Any]
) -> None:
    slow = hanging()
    scripts = {"a": says("1"), "b": calling("x"), "c": says("end")}
    async with building.host("host_a") as first:
        first.tool("note", slow)
        models(first, **scripts)
        nodes = (node("a"), node("b", "a"), node("c", "b"))
        run_id = (await run(first, *nodes, background=True)).value["run_id"]
        with anyio.fail_after(5):
            await slow.started.wait()
    async with building.host("host_b") as second:
        second.tool("note", slow)
        models(second, **scripts)
        await second.runs.resume_by_person(run_id, by="ann")
        result = json.loads((await second.until(run_id, "completed")).result_json)
        assert (result["text"], result["turns"], slow.times) == ("end", 4, 1)
        assert len(conversation(second, f"{run_id}.a")) == 2
        said = conversation(second, f"{run_id}.b")[2]["content"][0]["content"]
        assert said.startswith("EFFECTS_UNKNOWN")


async def test_a_result_is_exported_below_the_runs_own_folder(lab: Any, building: Any) -> None:
    models(lab, a=says("hello"))
    value = (await run(lab, node("a"), export=True)).value
    assert value["exported"] == f".agent-runtime/results/{value['run_id']}.json"
    written = json.loads((building.root / value["exported"]).read_text())
    assert written == {name: one for name, one in value.items() if name != "exported"}
    waiting = (await run(lab, node("a", wake_at="+1h"), export=True)).value
    assert "exported" not in waiting


async def test_a_result_that_cannot_be_exported_is_returned_all_the_same(lab: Any, building: Any) -> None:
    models(lab, a=says("hello"))
    (building.root / ".agent-runtime" / "results").write_text("in the way")
    value = (await run(lab, node("a"), export=True)).value
    assert (value["outcome"], value["text"], "exported" in value) == ("completed", "hello", False)
    assert "was not written" in value["export_error"]
