"""The variables that a run is started with: they fill hidden parameters, unseen by its model."""

from __future__ import annotations

import json
from typing import Any

import pytest

from packhost.executions.handle import offer

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
