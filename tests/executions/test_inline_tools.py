"""Tools that a run brings itself: checked before it, held to the workspace, found by search if many."""

from __future__ import annotations

import json
from typing import Any

import pytest

from packhost.gate import Completed, Refusal
from packhost_packs.agent_runtime.providers.scripted import ScriptedProvider

pytestmark = pytest.mark.anyio

DONE = {"text": "done"}
OBJECT = {"type": "object", "properties": {"n": {"type": "integer"}}}


def custom(name: str = "double", code: str = "n * 2", **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "description": f"What {name} does.",
        "tool_type": "custom",
        "parameters_schema": OBJECT,
        "config": {"code": code},
        **more,
    }


def external(url: str = "https://api.example.org/users/{{n}}", **config: Any) -> dict[str, Any]:
    return {
        "name": "fetch_user",
        "description": "Fetch a user.",
        "tool_type": "external",
        "parameters_schema": OBJECT,
        "config": {"url": url, "method": "GET", **config},
    }


def calls(*names: str, **arguments: Any) -> dict[str, Any]:
    asked = [{"id": f"c-{name}", "name": name, "arguments": arguments} for name in names]
    return {"tool_calls": asked}


async def test_an_inline_tool_is_run_and_recorded_like_any_other(lab: Any) -> None:
    lab.script(calls("double", n=21), DONE)
    outcome = await lab.turn(loop=True, runtime_tools=[custom()])
    assert isinstance(outcome, Completed), outcome
    (call,) = lab.calls(outcome.value["run_id"])
    assert (call.tool, call.status, call.result_json) == ("inline:double", "ok", "42")


async def test_inline_tools_stand_beside_the_saved_ones(lab: Any) -> None:
    lab.script(calls("double", "lab_look", n=1), DONE)
    outcome = await lab.turn(loop=True, runtime_tools=[custom()])
    assert sorted(call.tool for call in lab.calls(outcome.value["run_id"])) == ["inline:double", "lab:look"]


async def test_an_inline_tool_takes_the_place_of_a_saved_one_of_its_name(lab: Any) -> None:
    lab.script(calls("lab_look", n=4), DONE)
    outcome = await lab.turn(loop=True, runtime_tools=[custom("lab_look")])
    (call,) = lab.calls(outcome.value["run_id"])
    assert (call.tool, call.result_json) == ("inline:lab_look", "8")


async def test_the_next_run_does_not_have_it(lab: Any) -> None:
    lab.script(calls("double", n=1), DONE)
    await lab.turn(loop=True, runtime_tools=[custom()])
    outcome = await lab.turn(loop=True, client="other")
    assert lab.calls(outcome.value["run_id"]) == ()


async def test_without_loop_the_call_comes_back_and_nothing_is_run(lab: Any) -> None:
    lab.script(calls("double", n=1))
    outcome = await lab.turn(runtime_tools=[custom()])
    assert [one["name"] for one in outcome.value["requested_tools"]] == ["double"]


async def test_rules_and_people_stand_over_it(lab: Any, person: Any) -> None:
    ann = person("deny")
    lab.rule("ask", "inline:*")
    lab.script(calls("double", n=1), DONE)
    outcome = await lab.turn(loop=True, runtime_tools=[custom()], asker=ann)
    assert [prompt.tool for prompt in ann.shown] == ["inline:double"]
    assert lab.calls(outcome.value["run_id"]) == ()


async def test_its_arguments_are_held_to_its_schema(lab: Any) -> None:
    lab.script(calls("double", n="many"), DONE)
    outcome = await lab.turn(loop=True, runtime_tools=[custom()])
    assert lab.calls(outcome.value["run_id"]) == ()


async def test_names_in_camel_case_mean_the_same(lab: Any) -> None:
    tool = custom()
    camel = {
        "name": "double",
        "description": "Doubles.",
        "toolType": "custom",
        "parametersSchema": tool["parameters_schema"],
        "config": {"code": "n * 2", "networkAccess": "off"},
    }
    lab.script(calls("double", n=3), DONE)
    outcome = await lab.turn(loop=True, runtime_tools=[camel])
    assert lab.calls(outcome.value["run_id"])[0].result_json == "6"


async def test_a_flow_and_a_subagent_can_be_brought(lab: Any) -> None:
    lab.section["models"] = {"child": {"provider": "scripted", "script": [{"text": "from the child"}]}}
    flow = {
        "name": "sum",
        "description": "A flow.",
        "tool_type": "flow",
        "parameters_schema": OBJECT,
        "config": {"flow": {"steps": [{"value": {"n": "{{input.n}}"}}]}},
    }
    child = {
        "name": "helper",
        "description": "A subagent.",
        "tool_type": "subagent",
        "parameters_schema": {"type": "object", "properties": {"n": {"type": "integer"}}},
        "config": {"agent": {"model": "child"}, "allowed_tools": ["double"]},
    }
    lab.section["models"]["main"] = {"provider": "scripted", "script": [calls("sum", "helper", n=5), DONE]}
    lab.section["default_model"] = "main"
    outcome = await lab.turn(loop=True, runtime_tools=[flow, child, custom()])
    found = {call.tool: call.result_json for call in lab.calls(outcome.value["run_id"])}
    assert found == {"inline:sum": '{"n":5}', "inline:helper": '"from the child"'}
    spec = next(
        json.loads(lab.row(run).spec_json)["spec"]
        for run in lab.run_ids()
        if "agent_name" in lab.row(run).spec_json
    )
    assert [one["name"] for one in spec["runtime_tools"]] == ["double"]


async def test_a_node_of_a_workflow_can_bring_its_own(lab: Any) -> None:
    lab.script(calls("double", n=2), DONE)
    node = {"id": "only", "prompt": "go", "runtime_tools": [custom()]}
    outcome = await lab.call("execute-turn", {"workflow": {"nodes": [node]}})
    assert outcome.value["outcome"] == "completed"
    (call,) = lab.calls(outcome.value["run_id"])
    assert (call.tool, call.result_json) == ("inline:double", "4")


async def test_a_resumed_run_still_has_them(lab: Any, hanging: Any) -> None:
    wait = hanging()
    lab.tool("wait", wait)
    first = {"tool_calls": [{"id": "w", "name": "lab_wait", "arguments": {}}]}
    lab.script(first, calls("double", n=7), DONE)
    run_id = await lab.background(runtime_tools=[custom()])
    await wait.started.wait()
    await lab.runs.pause_by_person(run_id, "ann")
    wait.go_on.set()
    await lab.until(run_id, "paused")
    await lab.runs.resume_by_person(run_id, "ann")
    await lab.until(run_id, "completed")
    assert [call.result_json for call in lab.calls(run_id)][-1] == "14"


# what is refused before anything runs


def without(name: str) -> dict[str, Any]:
    tool = custom()
    del tool[name]
    return tool


@pytest.mark.parametrize(
    ("tool", "said"),
    [
        ({}, "Runtime tool missing required fields: `name`, `description`, `tool_type`, `parameters_schema`"),
        (without("config"), "missing required fields: `config`"),
        (without("description"), "missing required fields: `description`"),
        (custom(parameters_schema={"type": "string"}), "parametersSchema must be a JSON Schema object"),
        (custom(parameters_schema=[]), "parametersSchema must be a JSON Schema object"),
        (custom(parameters_schema={"type": "object", "properties": {"n": {"type": "no"}}}), "input_schema"),
        (custom("Tool-Search"), "collides with the reserved tool name `tool_search`"),
        (custom("packhost_state"), "collides with the reserved tool name `packhost_state`"),
        (custom("spawn_subagent"), "collides with the reserved tool name"),
        (custom("9lives"), "its name is not"),
        (custom(tool_type="python"), "`python` is no type of tool"),
        (
            {"tool_type": "local", "name": "ask"},
            "missing required fields: `description`, `parameters_schema`",
        ),
        ({**custom(tool_type="local"), "name": "tool_search"}, "reserved"),
        (custom(colour="red"), "`colour` is not known"),
        (custom(code="'{{secret:KEY}}'"), "cannot reference {{secret:KEY}}"),
        (custom(code="def f("), "line 1 of `code`"),
        (custom(config={"code": "1", "timeout": 30001}), "timeout exceeds 30s limit"),
        (custom(config="code"), "`config` is not an object"),
        (external(url=""), "missing URL"),
        (external(url="example.org/x"), "has invalid URL format"),
        (external(), "does not cover `network api.example.org`"),
        (external(headers={"a": "{{secret:KEY}}"}), "does not cover"),
        (custom(config={"code": "1", "network_access": {"allowed_hostnames": ["a.org"]}}), "does not cover"),
        (custom(hidden_parameter_names=["nobody"]), "`nobody` is not a property"),
        ("double", "not an object"),
    ],
)
async def test_a_tool_that_could_not_run_stops_everything_before_it_starts(
    lab: Any, tool: Any, said: str
) -> None:
    lab.script(DONE)
    outcome = await lab.turn(loop=True, runtime_tools=[custom("fine"), tool])
    assert isinstance(outcome, Refusal)
    assert outcome.code == "INVALID_INPUT"
    if isinstance(tool, dict):
        assert said in outcome.message
        assert str(outcome.data["path"]).startswith("/runtime_tools/1")
    assert lab.run_ids() == []


async def test_two_tools_of_one_name_are_refused(lab: Any) -> None:
    lab.script(DONE)
    outcome = await lab.turn(loop=True, runtime_tools=[custom(), custom()])
    assert "stands twice" in outcome.message


async def test_a_megabyte_is_the_most(lab: Any) -> None:
    lab.script(DONE)
    many = [custom(f"t{n}", code=f"'{'x' * 60_000}'") for n in range(20)]
    outcome = await lab.turn(loop=True, runtime_tools=many)
    assert (outcome.code, "1 MiB" in outcome.message or "larger than" in outcome.message) == (
        "INVALID_INPUT",
        True,
    )


async def test_the_steps_of_a_workflow_share_the_megabyte(lab: Any) -> None:
    lab.script(DONE)
    nodes = [
        {
            "id": f"n{k}",
            "prompt": "go",
            "runtime_tools": [custom(f"t{n}", code=f"'{'x' * 60_000}'") for n in range(8)],
        }
        for k in range(3)
    ]
    outcome = await lab.call("execute-turn", {"workflow": {"nodes": nodes}})
    assert outcome.code == "INVALID_INPUT"
    assert lab.run_ids() == []


# tool search


def many(count: int) -> list[dict[str, Any]]:
    return [custom(f"tool_{n:02}", code=f"n + {n}") for n in range(count)]


async def sent(lab: Any, monkeypatch: Any, *replies: Any, **arguments: Any) -> tuple[Any, list[list[str]]]:
    """The outcome, and the tools of each request."""
    seen: list[list[str]] = []
    original = ScriptedProvider.turn

    async def turn(self: Any, request: Any, **more: Any) -> Any:
        seen.append([tool.name for tool in request.tools])
        return await original(self, request, **more)

    monkeypatch.setattr(ScriptedProvider, "turn", turn)
    lab.script(*replies)
    return await lab.turn(loop=True, **arguments), seen


async def test_many_tools_are_held_back_and_found_ones_come_with_the_next_turn(
    lab: Any, monkeypatch: Any
) -> None:
    search = {
        "tool_calls": [{"id": "s", "name": "tool_search", "arguments": {"query": "tool 07", "limit": 1}}]
    }
    replies = (search, calls("tool_07", n=1), DONE)
    outcome, seen = await sent(lab, monkeypatch, *replies, runtime_tools=many(30))
    saved = ["lab_look", "lab_note", "tool_search"]
    assert seen == [saved, [*saved, "tool_07"], [*saved, "tool_07"]]
    (call,) = lab.calls(outcome.value["run_id"])
    assert (call.tool, call.result_json) == ("inline:tool_07", "8")


async def test_a_tool_that_was_not_found_yet_cannot_be_called(lab: Any, monkeypatch: Any) -> None:
    outcome, _ = await sent(lab, monkeypatch, calls("tool_07", n=1), DONE, runtime_tools=many(30))
    assert lab.calls(outcome.value["run_id"]) == ()


@pytest.mark.parametrize(
    ("arguments", "held"),
    [
        ({}, True),
        ({"tool_search": {"enabled": False}}, False),
        ({"limits": {"max_turns": 1}}, False),
    ],
)
async def test_search_acts_where_there_are_many_tools_and_several_turns(
    lab: Any, monkeypatch: Any, arguments: Any, held: bool
) -> None:
    _, seen = await sent(lab, monkeypatch, DONE, runtime_tools=many(18), **arguments)
    assert ("tool_search" in seen[0], len(seen[0]) < 20) == (held, held)


async def test_fewer_than_twenty_tools_are_all_sent(lab: Any, monkeypatch: Any) -> None:
    _, seen = await sent(lab, monkeypatch, DONE, runtime_tools=many(17))
    assert len(seen[0]) == 19
    assert "tool_search" not in seen[0]


async def test_tools_that_are_to_stay_loaded_do(lab: Any, monkeypatch: Any) -> None:
    search = {"always_loaded": ["tool_03"]}
    _, seen = await sent(lab, monkeypatch, DONE, runtime_tools=many(30), tool_search=search)
    assert seen[0] == ["lab_look", "lab_note", "tool_03", "tool_search"]


async def test_what_was_sent_stays_where_it_is_when_more_is_found(lab: Any, monkeypatch: Any) -> None:
    def search(number: int, query: str) -> dict[str, Any]:
        asked = {"query": query, "limit": 2}
        return {"tool_calls": [{"id": f"s{number}", "name": "tool_search", "arguments": asked}]}

    replies = (search(1, "tool 09"), search(2, "tool 01"), DONE)
    _, seen = await sent(lab, monkeypatch, *replies, runtime_tools=many(30))
    assert seen[1] == seen[2][: len(seen[1])]
    assert seen[0] == seen[1][: len(seen[0])]


# approvals of one run


@pytest.mark.parametrize(
    ("require", "asked"), [(["lab:look"], 1), (True, 1), (False, 0), ([], 0), (["other:*"], 0)]
)
async def test_a_run_may_ask_a_person_where_nothing_else_does(
    lab: Any, person: Any, require: Any, asked: int
) -> None:
    ann = person()
    lab.script(calls("lab_look"), DONE)
    outcome = await lab.turn(loop=True, approval={"require": require}, asker=ann)
    assert outcome.value["outcome"] == "completed"
    assert len(ann.shown) == asked


async def test_a_run_cannot_take_back_what_a_rule_asks(lab: Any, person: Any) -> None:
    ann = person()
    lab.rule("ask", "lab:look")
    lab.script(calls("lab_look"), DONE)
    await lab.turn(loop=True, approval={"require": False}, asker=ann)
    assert len(ann.shown) == 1


async def test_they_stand_beside_the_tools_of_a_saved_agent(lab: Any) -> None:
    lab.script(calls("double", "lab_look", "lab_note", n=1), DONE)
    lab.section["agents"] = {"helper": {"tools": ["lab:look"]}}
    outcome = await lab.turn(loop=True, agent="helper", runtime_tools=[custom()])
    assert sorted(call.tool for call in lab.calls(outcome.value["run_id"])) == ["inline:double", "lab:look"]


async def test_hidden_parameters_of_an_inline_tool_are_filled_and_not_shown(lab: Any) -> None:
    lab.script(calls("double", n=1), DONE)
    tool = custom(code="[n, account]", hidden_parameter_names=["account"])
    tool["parameters_schema"] = {"type": "object", "properties": {"n": {}, "account": {}}}
    outcome = await lab.turn(loop=True, runtime_tools=[tool], variables={"account": "a-1"})
    (call,) = lab.calls(outcome.value["run_id"])
    assert call.result_json == '[1,"a-1"]'
    assert "a-1" not in call.args_json


async def test_an_inline_tool_may_be_marked_as_safe_to_repeat(lab: Any) -> None:
    lab.script(calls("double", n=1), DONE)
    tool = custom(config={"code": "1", "network_access": "on"}, idempotent=True)
    outcome = await lab.turn(loop=True, runtime_tools=[tool])
    (call,) = lab.calls(outcome.value["run_id"])
    assert call.idempotent


async def test_there_is_no_limit_on_their_number(lab: Any) -> None:
    lab.script(DONE)
    outcome = await lab.turn(loop=True, runtime_tools=many(400))
    assert outcome.value["outcome"] == "completed"


async def test_a_local_tool_pauses_the_run_for_its_caller(lab: Any) -> None:
    lab.script(calls("ask", "double", n=2), DONE)
    ask = {"name": "ask", "description": "Ask.", "toolType": "local", "parametersSchema": OBJECT}
    outcome = await lab.turn(loop=True, runtime_tools=[ask, custom()])
    assert outcome.value["outcome"] == "paused"
    assert lab.row(outcome.value["run_id"]).waiting_on.startswith("client:")


async def test_the_place_of_a_mistake_counts_local_tools_too(lab: Any) -> None:
    lab.script(DONE)
    ask = {"name": "ask", "description": "Ask.", "tool_type": "local", "parameters_schema": OBJECT}
    outcome = await lab.turn(loop=True, runtime_tools=[ask, custom(colour="red")])
    assert outcome.data["path"] == "/runtime_tools/1/colour"


async def test_secrets_sent_with_a_request_are_refused_and_recorded_nowhere(lab: Any) -> None:
    lab.script(DONE)
    outcome = await lab.turn(loop=True, secrets={"KEY": "hunter2222"})
    assert (outcome.code, outcome.data["path"]) == ("INVALID_INPUT", "/secrets")
    await lab.store.flush()
    record = lab.store.read(lambda tx: tx.execute("SELECT data_json FROM events").fetchall())
    assert "hunter2222" not in f"{outcome} {record}"
    assert lab.run_ids() == []


async def test_an_empty_map_of_secrets_is_ignored(lab: Any) -> None:
    lab.script(DONE)
    outcome = await lab.turn(loop=True, secrets={})
    assert outcome.value["outcome"] == "completed"
