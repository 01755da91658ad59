"""The variables that a run is started with: they fill hidden parameters, unseen by its model."""

from __future__ import annotations

import json
from typing import Any

import pytest

from packhost.executions.handle import offer
from packhost.executions.request import shown
from packhost.store.ops import events

pytestmark = pytest.mark.anyio
CALL = {"tool_calls": [{"id": "a", "name": "lab_note", "arguments": {"q": 1}}]}
CALL_OF_PLAN = {
    "tool_calls": [{"id": "a", "name": "lab_note", "arguments": {"q": 1, "plan": "chosen by the model"}}]
}
DONE = {"text": "done"}
SCHEMA = {
    "type": "object",
    "properties": {"q": {}, "plan": {"type": "string"}, "_region": {"type": "string"}},
    "required": ["q", "plan"],
    "additionalProperties": False,
}


def with_hidden(lab: Any) -> None:
    lab.tool("note", input_schema=SCHEMA, hidden_parameters=("plan", "_region"))


async def test_a_runs_variables_fill_hidden_parameters_and_stand_in_no_call_on_record(lab: Any) -> None:
    with_hidden(lab)
    lab.script(CALL, DONE)
    variables = {"account": {"plan": "gold-plan"}, "_region": "eu-region"}
    outcome = await lab.turn(loop=True, variables=variables)
    assert outcome.value["outcome"] == "completed"
    (call,) = lab.calls(outcome.value["run_id"])
    assert call.status == "ok"
    assert json.loads(call.args_json) == {"q": 1, "plan": "[REDACTED]", "_region": "[REDACTED]"}


async def test_without_its_variable_a_name_with_an_underscore_stops_the_call_and_not_the_run(
    lab: Any,
) -> None:
    with_hidden(lab)
    lab.script(CALL, DONE)
    outcome = await lab.turn(loop=True, variables={"plan": "gold"})
    assert outcome.value["outcome"] == "completed"
    assert lab.calls(outcome.value["run_id"]) == ()
    assert "call.refused" in await lab.events(outcome.value["run_id"])


@pytest.mark.parametrize("name", ["_tenant", "_endUser", "_identity", "_internal_x"])
async def test_a_run_cannot_say_what_is_the_hosts_to_say(lab: Any, name: str) -> None:
    lab.script(DONE)
    outcome = await lab.turn(variables={name: {"id": "evil"}})
    assert (outcome.code, outcome.data["path"]) == ("INVALID_INPUT", f"/variables/{name}")
    assert lab.run_ids() == []


async def test_a_model_is_offered_what_nothing_fills(lab: Any) -> None:
    with_hidden(lab)
    tool = lab.configuration().catalog.entries["lab:note"].tool
    assert offer(tool).input_schema["properties"].keys() == {"q", "plan"}
    shown = offer(tool, {"account": {"plan": "gold"}}).input_schema
    assert shown["properties"].keys() == {"q"}
    assert shown["required"] == ["q"]


async def test_a_run_below_has_the_variables_of_the_run_that_started_it(lab: Any) -> None:
    with_hidden(lab)
    lab.script({"tool_calls": [{"id": "p", "name": "mine_research", "arguments": {"task": "go"}}]}, DONE)
    lab.section["models"]["child"] = {"provider": "scripted", "script": [CALL_OF_PLAN, DONE]}
    lab.section["agents"] = {"helper": {"model": "child"}}
    task = {"task": {"type": "string"}}
    lab.pack_tool("research", "subagent", {"agent_id": "helper", "allowed_tools": ["lab:note"]}, task)
    outcome = await lab.turn(loop=True, variables={"plan": "gold", "_region": "eu"})
    await lab.store.flush()
    (child,) = [run for run in lab.run_ids() if run != outcome.value["run_id"]]
    (call,) = lab.calls(child)
    assert call.status == "ok"
    assert json.loads(call.args_json) == {"q": 1, "plan": "[REDACTED]", "_region": "[REDACTED]"}


async def test_a_subagents_model_reads_nothing_that_the_host_filled_in_its_task(lab: Any) -> None:
    lab.script({"text": "ok"})
    lab.variables.update(plan="gold-plan", _region="eu-region")
    lab.section["agents"] = {"helper": {"model": "main"}}
    properties = {name: {"type": "string"} for name in ("task", "topic", "plan", "_region")}
    lab.pack_tool(
        "research", "subagent", {"agent_id": "helper"}, properties, hidden_parameters=("plan", "_region")
    )
    outcome = await lab.call("mine:research", {"task": "find out", "topic": "boats"})
    assert outcome.value == "ok"
    (run,) = lab.run_ids()
    (message,) = json.loads(lab.row(run).spec_json)["spec"]["messages"]
    assert message["content"] == 'find out\n\n{"topic":"boats"}'


async def test_nobody_is_shown_the_values_of_a_runs_variables(lab: Any, person: Any) -> None:
    with_hidden(lab)
    lab.script(CALL, DONE)
    lab.rule("ask", "agent-runtime:execute-turn")
    ann = person()
    outcome = await lab.turn(asker=ann, loop=True, variables={"plan": "gold-plan", "_region": "eu-region"})
    run = lab.row(outcome.value["run_id"])
    (asked,) = ann.shown
    (call,) = lab.calls(run.parent)
    events_of = "".join(str(one.data) for one in lab.store.read(events.page, 0, None, 1000))
    for text in (asked.text, call.args_json, events_of, json.dumps(shown(run))):
        assert "[REDACTED]" in text
        assert "gold-plan" not in text
        assert "eu-region" not in text
    assert json.loads(run.spec_json)["spec"]["variables"]["plan"] == "gold-plan"  # it goes on with it


async def test_a_flows_input_is_shown_without_what_the_host_filled_in(lab: Any) -> None:
    lab.variables.update(plan="gold-plan")
    steps = [{"id": "only", "value": "{{input.text}}"}]
    properties = {name: {"type": "string"} for name in ("text", "plan")}
    config = {"flow": {"steps": steps}, "parameter_mapping": {"plan": "tier"}}
    lab.pack_tool("flow", "flow", config, properties, hidden_parameters=("plan",))
    await lab.call("mine:flow", {"text": "hi"})
    (run_id,) = lab.run_ids()
    assert shown(lab.row(run_id))["spec"]["input"] == {"text": "hi", "tier": "[REDACTED]"}
