"""Flow tools: what goes in, which step's value comes out, and steps that ask no model."""

from __future__ import annotations

import json
from typing import Any

import pytest

from packhost.executions.ops import DEEPEST
from packhost.gate import Completed
from packhost.manifest.model import ToolSpec
from packhost_packs.agent_runtime.children import DEEPEST as SUBAGENTS
from packhost_packs.agent_runtime.flows import FlowKind

pytestmark = pytest.mark.anyio

TEXT = {"text": {"type": "string"}, "count": {"type": "integer"}}
DONE = {"text": "done"}


def flow(lab: Any, steps: Any, **config: Any) -> None:
    lab.pack_tool("flow", "flow", {"flow": {"steps": steps}, **config}, TEXT)


async def run(lab: Any, **arguments: Any) -> Any:
    outcome = await lab.call("mine:flow", arguments)
    assert isinstance(outcome, Completed), outcome
    return outcome.value


async def test_a_saved_flow_is_run_by_its_name(lab: Any) -> None:
    lab.script({"text": "positive"})
    lab.section["flows"] = {"mood": {"nodes": [{"id": "only", "prompt": "The mood of {{input.text}}?"}]}}
    lab.pack_tool("flow", "flow", {"flow_id": "mood"}, TEXT)
    assert await run(lab, text="sunshine") == "positive"


async def test_parameters_are_renamed_and_others_pass_under_their_own_name(lab: Any) -> None:
    steps = [{"id": "all", "value": {"words": "{{input.input_text}}", "count": "{{input.count}}"}}]
    flow(lab, steps, parameter_mapping={"text": "input_text"})
    assert await run(lab, text="hello", count=3) == {"words": "hello", "count": 3}


async def test_the_last_executed_steps_value_is_the_result(lab: Any) -> None:
    steps = [
        {"id": "first", "value": {"n": "{{input.count}}"}},
        {"id": "big", "when": {"path": "first.json.n", "equals": 10}, "value": "big"},
        {"id": "small", "when": {"path": "first.json.n", "equals": 1}, "value": "small"},
    ]
    flow(lab, steps)
    assert await run(lab, count=10) == "big"
    assert await run(lab, count=1) == "small"
    assert await run(lab, count=5) == {"n": 5}


@pytest.mark.parametrize(
    ("config", "value"),
    [
        ({}, {"b": [1, {"c": "deep"}]}),
        ({"output_mapping": "b.1.c"}, "deep"),
        ({"output_variable": "first"}, "start"),
        ({"output_variable": "last", "output_mapping": "b.0"}, 1),
    ],
)
async def test_what_is_returned_can_be_chosen(lab: Any, config: dict[str, Any], value: Any) -> None:
    steps = [{"id": "first", "value": "start"}, {"id": "last", "value": {"b": [1, {"c": "deep"}]}}]
    flow(lab, steps, **config)
    assert await run(lab) == value


@pytest.mark.parametrize("config", [{"output_mapping": "nowhere"}, {"output_variable": "nobody"}])
async def test_what_is_not_there_fails_the_call(lab: Any, config: dict[str, Any]) -> None:
    flow(lab, [{"id": "only", "value": {"a": 1}}], **config)
    outcome = await lab.call("mine:flow")
    assert outcome.code == "OUTPUT_INVALID"


async def test_a_path_goes_into_a_models_text_that_is_json(lab: Any) -> None:
    lab.script({"text": '{"score": 4}'})
    flow(lab, [{"prompt": "Score {{input.text}}"}], output_mapping="score")
    assert await run(lab, text="x") == 4


async def test_a_step_calls_a_tool_through_the_gate_with_what_came_before(lab: Any) -> None:
    steps = [
        {
            "id": "asked",
            "call": {"tool": "lab:look", "arguments": {"n": "{{input.count}}", "s": "a {{input.text}}"}},
        },
        {"id": "out", "value": "{{asked.json.echo}}"},
    ]
    flow(lab, steps)
    assert await run(lab, count=3, text="b") == {"n": 3, "s": "a b"}
    (run_id,) = lab.run_ids()
    assert [call.tool for call in lab.calls(run_id)] == ["lab:look"]


async def test_a_step_that_is_refused_fails_the_flow(lab: Any) -> None:
    lab.rule("deny", "lab:note")
    flow(lab, [{"id": "write", "call": {"tool": "lab:note"}}, {"id": "after", "value": 1}])
    outcome = await lab.call("mine:flow")
    assert (outcome.code, "POLICY_DENIED" in outcome.message) == ("TOOL_FAILED", True)


async def test_a_step_asks_a_person_through_the_call(lab: Any, person: Any) -> None:
    ann = person()
    lab.rule("ask", "lab:note")
    flow(lab, [{"id": "write", "call": {"tool": "lab:note", "arguments": {"a": 1}}}])
    outcome = await lab.call("mine:flow", asker=ann)
    assert outcome.value == {"echo": {"a": 1}}
    assert [prompt.tool for prompt in ann.shown] == ["lab:note"]


async def test_text_that_looks_like_a_reference_is_not_read_again(lab: Any) -> None:
    flow(lab, [{"id": "a", "value": "{{input.text}}"}, {"id": "b", "value": "<{{a.text}}>"}])
    assert await run(lab, text="{{input.count}}", count=7) == "<{{input.count}}>"


async def test_a_flows_cost_counts_for_the_run_that_calls_it(lab: Any) -> None:
    call = {"id": "f1", "name": "mine_flow", "arguments": {"text": "x"}}
    lab.script({"tool_calls": [call]}, {"text": "done"})
    lab.section["models"]["other"] = {
        "provider": "scripted",
        "script": [{"text": "ok", "usage": {"input_tokens": 30, "output_tokens": 3}}],
    }
    flow(lab, [{"prompt": "{{input.text}}", "model_profile": "other"}])
    outcome = await lab.turn(loop=True)
    assert outcome.value["usage"] == {"input_tokens": 30, "output_tokens": 3}


async def test_an_interrupted_step_is_not_run_twice(building: Any, hanging: Any) -> None:
    wait = hanging()
    workflow = {"nodes": [{"id": "slow", "call": {"tool": "lab:wait"}}]}
    async with building.host("host_a") as first:
        first.tool("wait", wait)
        outcome = await first.call("execute-turn", {"workflow": workflow, "background": True})
        await wait.started.wait()
    async with building.host("host_b") as second:
        second.tool("wait", wait)
        row = await second.until(outcome.value["run_id"], "completed", "failed", "interrupted")
        if row.status == "interrupted":
            await second.runs.resume_by_person(row.id, "ann")
            row = await second.until(row.id, "completed", "failed")
    assert wait.times == 1
    assert json.loads(row.result_json)["nodes"]["slow"]["error"]["issue"] == "EFFECTS_UNKNOWN"


async def test_steps_count_against_the_limit_of_calls(lab: Any) -> None:
    nodes = [{"id": f"n{n}", "call": {"tool": "lab:look"}} for n in range(3)]
    outcome = await lab.call("execute-turn", {"workflow": {"nodes": nodes, "limits": {"max_tool_calls": 2}}})
    statuses = [node.get("outcome") for node in outcome.value["nodes"].values()]
    assert sorted(statuses) == ["completed", "completed", "limit_exceeded"]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({}, "exactly one of"),
        ({"flow_id": "a", "flow": {"steps": [{"value": 1}]}}, "exactly one of"),
        ({"flow": {"steps": []}}, "one at least"),
        ({"flow": {}}, "`steps`"),
        ({"flow": {"steps": [{"prompt": "x", "value": 1}]}}, "a node has"),
        ({"flow": {"steps": [{"prompt": "{{nobody.text}}"}]}}, "no node `nobody`"),
        ({"flow": {"steps": [{"call": {}}]}}, "names no `tool`"),
        ({"flow_id": "a", "output_mapping": ""}, "is a text"),
        ({"flow_id": "a", "parameter_mapping": {"nobody": "x"}}, "is no parameter"),
        ({"flow_id": "a", "timeout_ms": 0}, "positive integer"),
        ({"flow_id": "a", "flows": 1}, "no `flows`"),
    ],
)
def test_a_wrong_config_is_told(config: dict[str, Any], said: str) -> None:
    found = FlowKind().check(
        ToolSpec(name="t", description="t", kind="flow", permission="write", config=config)
    )
    assert any(said in one for one in found), found


@pytest.mark.parametrize(
    "step",
    [
        {"id": "write", "call": {"tool": "lab:note", "arguments": {"a": 1}}},
        {"id": "write", "prompt": "write it", "model_profile": "writer", "loop": True},
        {"id": "write", "prompt": "write it", "agent": "careful", "loop": True},
    ],
)
@pytest.mark.parametrize(("require", "questions"), [(["lab:*"], 1), (["lab_note"], 1), ([], 0)])
async def test_what_the_calling_run_asks_a_person_for_is_asked_for_in_its_flows(
    lab: Any, person: Any, step: dict[str, Any], require: list[str], questions: int
) -> None:
    ann = person()
    lab.script({"tool_calls": [{"id": "f1", "name": "mine_flow", "arguments": {}}]}, {"text": "done"})
    note = {"tool_calls": [{"id": "n1", "name": "lab_note", "arguments": {"a": 1}}]}
    lab.section["models"]["writer"] = {"provider": "scripted", "script": [note, {"text": "ok"}]}
    lab.section["agents"] = {"careful": {"model": "writer", "approval": {"require": []}}}
    flow(lab, [step])
    outcome = await lab.turn(loop=True, asker=ann, approval={"require": require})
    assert outcome.value["outcome"] == "completed"
    assert [prompt.tool for prompt in ann.shown] == ["lab:note"] * questions


@pytest.mark.parametrize(("nesting", "runs"), [(True, 2 * SUBAGENTS + 2), (False, 4)])
async def test_flows_and_subagents_that_call_each_other_come_to_an_end(
    lab: Any, nesting: bool, runs: int
) -> None:
    lab.script({"tool_calls": [{"id": "p", "name": "mine_flow", "arguments": {}}]}, {"text": "done"})
    call = {"tool_calls": [{"id": "c", "name": "mine_flow", "arguments": {}}]}
    lab.section["models"]["child"] = {"provider": "scripted", "script": [call, {"text": "ok"}]}
    lab.section["agents"] = {"helper": {"model": "child"}}
    config = {"agent_id": "helper", "allow_nesting": nesting}
    lab.pack_tool("research", "subagent", config, {"task": {"type": "string"}})
    flow(lab, [{"id": "s", "call": {"tool": "mine:research", "arguments": {"task": "again"}}}])
    outcome = await lab.turn(loop=True)
    await lab.store.flush()
    assert outcome.value["outcome"] == "completed"
    assert len(lab.run_ids()) == runs


async def test_a_flow_that_calls_itself_comes_to_an_end(lab: Any) -> None:
    flow(lab, [{"id": "s", "call": {"tool": "mine:flow"}}])
    outcome = await lab.call("mine:flow")
    assert outcome.code == "TOOL_FAILED"
    assert len(lab.run_ids()) == DEEPEST


@pytest.mark.parametrize("kind", ["flow", "subagent"])
async def test_what_the_calling_run_asks_for_is_asked_for_below_a_step_too(
    lab: Any, person: Any, kind: str
) -> None:
    ann = person()
    lab.script({"tool_calls": [{"id": "f1", "name": "mine_flow", "arguments": {}}]}, {"text": "done"})
    note = {"tool_calls": [{"id": "n1", "name": "lab_note", "arguments": {"a": 1}}]}
    lab.section["models"]["writer"] = {"provider": "scripted", "script": [note, {"text": "ok"}]}
    lab.section["agents"] = {"helper": {"model": "writer"}}
    steps = [{"id": "write", "call": {"tool": "lab:note", "arguments": {"a": 1}}}]
    config = {"flow": {"steps": steps}} if kind == "flow" else {"agent_id": "helper"}
    lab.pack_tool("inner", kind, config, {"task": {"type": "string"}})
    flow(lab, [{"id": "below", "call": {"tool": "mine:inner", "arguments": {"task": "go"}}}])
    outcome = await lab.turn(loop=True, asker=ann, approval={"require": ["lab:note"]})
    assert outcome.value["outcome"] == "completed"
    assert [prompt.tool for prompt in ann.shown] == ["lab:note"]


def held(lab: Any, step: dict[str, Any], *, saved: bool = False) -> None:
    """A run that calls a subagent, which has the flow alone, whose step reaches for `lab:note`."""
    lab.script({"tool_calls": [{"id": "p", "name": "mine_research", "arguments": {"task": "go"}}]}, DONE)
    call = {"tool_calls": [{"id": "c", "name": "mine_flow", "arguments": {}}]}
    note = {"tool_calls": [{"id": "n", "name": "lab_note", "arguments": {"a": 1}}]}
    lab.section["models"]["child"] = {"provider": "scripted", "script": [call, DONE]}
    lab.section["models"]["writer"] = {"provider": "scripted", "script": [note, DONE]}
    lab.section["agents"] = {"helper": {"model": "child"}, "writer": {"model": "writer"}}
    lab.pack_tool("inner", "subagent", {"agent_id": "writer"}, {"task": {"type": "string"}})
    deeper = {"flow": {"steps": [{"call": {"tool": "lab:note", "arguments": {"a": 1}}}]}}
    lab.pack_tool("deeper", "flow", deeper, {})
    allowed = ["mine:flow", *([step["call"]["tool"]] if "mine:" in str(step.get("call")) else [])]
    config = {"agent_id": "helper", "allowed_tools": allowed, "allow_nesting": True}
    lab.pack_tool("research", "subagent", config, {"task": {"type": "string"}})
    lab.section["flows"] = {"kept": {"nodes": [{"id": "one", **step}]}}
    lab.pack_tool("flow", "flow", {"flow_id": "kept"} if saved else {"flow": {"steps": [step]}}, TEXT)


REACHING = [
    {"prompt": "write it", "model_profile": "writer", "loop": True},
    {"call": {"tool": "lab:note", "arguments": {"a": 1}}},
    {"call": {"tool": "mine:inner", "arguments": {"task": "write it"}}},
    {"call": {"tool": "mine:deeper", "arguments": {}}},
]


@pytest.mark.parametrize("step", REACHING, ids=["model", "step", "subagent", "flow"])
@pytest.mark.parametrize("saved", [False, True], ids=["given", "saved"])
async def test_a_flow_reaches_no_tool_that_its_caller_does_not_have_unless_the_workspace_saved_it(
    lab: Any, step: dict[str, Any], saved: bool
) -> None:
    held(lab, step, saved=saved)
    outcome = await lab.turn(loop=True)
    await lab.store.flush()
    made = [call.tool for run_id in lab.run_ids() for call in lab.calls(run_id)]
    assert outcome.value["outcome"] == "completed"
    assert made.count("mine:flow") == 1
    assert made.count("lab:note") == int(saved)


async def test_a_subagent_that_may_start_none_starts_none_by_a_flow(lab: Any) -> None:
    held(lab, REACHING[2])
    config = {"agent_id": "helper", "allowed_tools": ["mine:*", "lab:*"]}
    lab.pack_tool("research", "subagent", config, {"task": {"type": "string"}})
    await lab.turn(loop=True)
    await lab.store.flush()
    made = [call.tool for run_id in lab.run_ids() for call in lab.calls(run_id)]
    assert made.count("mine:flow") == 1
    assert "mine:inner" not in made
