"""Every run, however it ends, is exported as a trace that passes the validator, with its evidence."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

import packhost_packs.agent_runtime
from packhost.control.base import Parts
from packhost.control.evidence import evidence_of, runs_trace
from packhost.control.records import runs_show
from packhost.errors import PackhostError, ToolFailed
from packhost.hookspecs import build_plugins
from packhost.kinds.context import CallContext
from packhost.store.ops import events
from packhost.store.ops.redaction import redact
from packhost.trace import Report, check

pytestmark = pytest.mark.anyio
(WRITERS,) = build_plugins([packhost_packs.agent_runtime]).hook.packhost_trace_writers()


def calls(*ids: str, tool: str = "lab_note", **more: Any) -> dict[str, Any]:
    return {"tool_calls": [{"id": identity, "name": tool, "arguments": {}} for identity in ids], **more}


DONE = {"text": "done"}


def parts(lab: Any) -> Parts:
    nothing: Any = SimpleNamespace()
    return Parts(nothing, lab.store, lab.gate, lab.runs, lab.configuration, nothing, "ann", WRITERS)


async def exported(lab: Any, run_id: str, node: str = "") -> tuple[Any, Report]:
    """A run as it is exported, through JSON, and what the validator finds."""
    trace = json.loads(json.dumps(await runs_trace(parts(lab), {"id": run_id, "node": node})))
    return trace, check(trace)


def proof(lab: Any, run_id: str) -> Any:
    return evidence_of(parts(lab), lab.row(run_id))


async def failing(context: CallContext, arguments: dict[str, Any]) -> Any:
    raise ToolFailed("it broke")


ENDS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "completed": ([calls("a", "b"), calls("c"), DONE], {"loop": True}),
    "tool_request": ([calls("a", "b")], {}),
    "limit_exceeded": ([calls("a", "b"), DONE], {"loop": True, "limits": {"max_tool_calls": 1}}),
    "refused": ([{"text": "no", "stop_reason": "refusal"}], {"loop": True}),
    "incomplete": ([calls("a", text="cut", stop_reason="max_tokens")], {"loop": True}),
    "protocol_error": ([calls("a"), {"text": "done", "stop_reason": "tool_use"}], {"loop": True}),
    "unsupported": ([{"text": "wait", "stop_reason": "pause_turn"}], {"loop": True}),
}


@pytest.mark.parametrize("outcome", ENDS)
async def test_a_run_that_ended_passes_the_validator(lab: Any, outcome: str) -> None:
    script, arguments = ENDS[outcome]
    lab.script(*script)
    value = (await lab.turn(**arguments)).value
    assert value["outcome"] == outcome
    trace, report = await exported(lab, value["run_id"])
    assert (report.codes, report.passed) == ([], True)
    assert trace["events"][-1 if outcome != "limit_exceeded" else -3]["outcome"] == outcome


async def test_an_exported_trace_shows_its_faults_once_they_are_planted(lab: Any) -> None:
    lab.script(*ENDS["completed"][0])
    value = (await lab.turn(loop=True)).value
    trace, _ = await exported(lab, value["run_id"])
    del trace["messages"][2]["content"][1]
    trace["events"] = [one for one in trace["events"] if one["type"] != "intent"]
    assert check(trace).codes == ["INTENT_NOT_COMMITTED", "RESULT_MISSING"]


async def test_a_run_that_was_aborted_in_a_call_passes_the_validator(
    lab: Any, hanging: Callable[..., Any]
) -> None:
    slow = hanging()
    lab.tool("note", slow)
    lab.script(calls("a", "b"), DONE)
    run_id = await lab.background()
    with anyio.fail_after(5):
        await slow.started.wait()
    await lab.runs.abort_by_person(run_id, by="ann")
    trace, report = await exported(lab, run_id)
    assert report.passed, report.as_json()
    assert [event["type"] for event in trace["events"]][-3:] == ["abort", "result", "outcome"]
    assert [line["outcome"] for line in proof(lab, run_id)["correlation"]] == [
        "unknown: CANCELLED",
        "not run",
    ]


async def test_a_run_that_was_killed_in_a_call_and_resumed_passes_the_validator(
    building: Any, hanging: Callable[..., Any]
) -> None:
    slow, script = hanging(), (calls("a", "b"), DONE)
    async with building.host("host_a") as first:
        first.tool("note", slow)
        first.script(*script)
        run_id = await first.background()
        with anyio.fail_after(5):
            await slow.started.wait()
    async with building.host("host_b") as second:
        second.script(*script)
        trace, report = await exported(second, run_id)
        assert (trace["outcome"], report.codes) == ("interrupted", [])
        await second.runs.resume_by_person(run_id, by="ann")
        await second.until(run_id, "completed")
        trace, report = await exported(second, run_id)
        assert (report.codes, report.passed) == ([], True)
        assert [event["type"] for event in trace["events"]].count("dispatch") == 1
        assert {"interrupt", "resume"} <= {event["type"] for event in trace["events"]}
        lines = proof(second, run_id)["correlation"]
        assert [(line["tool_use_id"], line["result"], line["outcome"]) for line in lines] == [
            ("a", "error", "unknown: CANCELLED"),
            ("b", "error", "not run"),
        ]


async def test_a_call_that_is_safe_to_repeat_is_shown_as_run_twice_and_passes(
    building: Any, hanging: Callable[..., Any]
) -> None:
    slow, script = hanging(), (calls("a"), DONE)
    async with building.host("host_a") as first:
        first.tool("note", slow, idempotent=True)
        first.script(*script)
        run_id = await first.background()
        with anyio.fail_after(5):
            await slow.started.wait()
    async with building.host("host_b") as second:
        second.tool("note", idempotent=True)
        second.script(*script)
        await second.runs.resume_by_person(run_id, by="ann")
        await second.until(run_id, "completed")
        trace, report = await exported(second, run_id)
        assert (report.codes, report.passed) == ([], True)
        assert [event["type"] for event in trace["events"]].count("dispatch") == 2


async def test_a_paused_run_passes_before_and_after_it_goes_on(lab: Any, hanging: Callable[..., Any]) -> None:
    slow = hanging()
    lab.tool("note", slow)
    lab.script(calls("a", "b"), DONE)
    run_id = await lab.background()
    with anyio.fail_after(5):
        await slow.started.wait()
    await lab.runs.pause_by_person(run_id, by="ann")
    slow.go_on.set()
    await lab.until(run_id, "paused")
    trace, report = await exported(lab, run_id)
    assert (trace["outcome"], report.codes) == ("paused", [])
    await lab.runs.resume_by_person(run_id, by="ann")
    await lab.until(run_id, "completed")
    assert (await exported(lab, run_id))[1].codes == []


async def test_a_call_that_a_person_approved_carries_its_approval(
    lab: Any, person: Callable[..., Any]
) -> None:
    lab.rule("ask", "lab:note")
    lab.script(calls("a"), DONE)
    value = (await lab.turn(loop=True, asker=person())).value
    trace, report = await exported(lab, value["run_id"])
    assert (report.codes, report.passed) == ([], True)
    (dispatch,) = [event for event in trace["events"] if event["type"] == "dispatch"]
    (line,) = proof(lab, value["run_id"])["correlation"]
    assert dispatch["approval"] == line["approval"]
    assert line["approval"].startswith("ap_")


async def test_a_tool_that_raised_an_unknown_one_and_a_bad_input_are_warnings(lab: Any) -> None:
    lab.tool("note", failing)
    lab.tool("look", permission="read", input_schema={"type": "object", "required": ["path"]})
    lab.script(calls("a", "b"), calls("c", tool="lab_nothing"), calls("d", tool="lab_look"), DONE)
    value = (await lab.turn(loop=True)).value
    _, report = await exported(lab, value["run_id"])
    assert (report.codes, report.passed) == (["SCHEMA_REQUIRED", "TOOL_EXCEPTION", "TOOL_UNKNOWN"], True)
    assert [line["result"] for line in proof(lab, value["run_id"])["correlation"]] == ["error"] * 4


async def test_the_next_run_of_a_session_has_the_earlier_ones_as_its_past(lab: Any) -> None:
    lab.script(calls("a"))
    first = (await lab.turn()).value
    lab.script(DONE)
    result = {"type": "tool_result", "tool_use_id": "a", "content": "fine"}
    second = (await lab.turn(messages=[{"role": "user", "content": [result]}])).value
    trace, report = await exported(lab, second["run_id"])
    assert (report.codes, report.passed) == ([], True)
    assert [message.get("supplied", False) for message in trace["messages"]] == [False, True, False, False]
    assert len((await exported(lab, first["run_id"]))[0]["messages"]) == 2


async def test_a_workflow_is_exported_node_by_node_and_proved_as_a_whole(lab: Any) -> None:
    nodes = [{"id": "one", "prompt": "go"}, {"id": "two", "prompt": "{{one.text}}", "depends_on": ["one"]}]
    lab.script(calls("a"), DONE)
    value = (await lab.call("execute-turn", {"workflow": {"nodes": nodes}})).value
    for node in ("one", "two"):
        trace, report = await exported(lab, value["run_id"], node)
        assert (report.codes, trace["run"]["node"], len(trace["messages"])) == ([], node, 4)
    with pytest.raises(PackhostError) as caught:
        await runs_trace(parts(lab), {"id": value["run_id"]})
    assert "`one`, `two`" in caught.value.hint
    found = proof(lab, value["run_id"])
    assert [(line["node"], line["tool_use_id"], line["outcome"]) for line in found["correlation"]] == [
        ("one", "a", "ok"),
        ("two", "a", "ok"),
    ]
    assert found["budgets"]["tool_calls"]["used"] == 2


async def test_a_direct_call_is_no_run_of_turns(lab: Any) -> None:
    outcome = await lab.call("lab:note", {})
    with pytest.raises(PackhostError) as caught:
        await runs_trace(parts(lab), {"id": outcome.run_id})
    assert caught.value.code == "NOT_FOUND"
    assert evidence_of(parts(lab), lab.row(outcome.run_id)) is None


async def test_evidence_names_budgets_and_what_could_not_be_judged(lab: Any) -> None:
    lab.tool("note", input_schema={"type": "object", "patternProperties": {"^x": {}}})
    lab.script(calls("a"), DONE)
    value = (await lab.turn(loop=True, limits={"max_turns": 5})).value
    found = proof(lab, value["run_id"])
    assert [(gap["code"], gap["path"]) for gap in found["coverage_gaps"]] == [
        ("SCHEMA_UNSUPPORTED_KEYWORD", "/tools/1/input_schema")
    ]
    assert found["issues"] == []
    assert found["budgets"]["turns"] == {"used": 2, "limit": 5}
    (line,) = found["correlation"]
    assert line | {"intent": ""} == {
        "tool_use_id": "a",
        "tool": "lab_note",
        "result": "ok",
        "intent": "",
        "approval": None,
        "outcome": "ok",
    }
    assert line["intent"] == lab.calls(value["run_id"])[0].id


async def test_a_loop_over_http_is_exported_in_its_providers_own_shape(lab: Any, provider: Any) -> None:
    lab.secrets["KEY"] = "k" * 20
    profile = {"model": "m", "base_url": provider.base_url, "api_key": "KEY", "stream": False}
    lab.section["default_model"] = "main"
    lab.section["models"] = {"main": {"provider": "messages_compatible", **profile}}
    thinking = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    use = {"type": "tool_use", "id": "a", "name": "lab_note", "input": {}}
    provider.message([thinking, use], "tool_use")
    provider.message([{"type": "text", "text": "done"}])
    value = (await lab.turn(loop=True)).value
    trace, report = await exported(lab, value["run_id"])
    assert (report.codes, report.passed) == ([], True)
    assert trace["messages"][1]["content"] == [thinking, use]


async def test_a_loop_over_chat_completions_is_exported_in_that_shape(lab: Any, provider: Any) -> None:
    profile = {"model": "m", "base_url": provider.base_url, "stream": False}
    lab.section["default_model"] = "main"
    lab.section["models"] = {"main": {"provider": "openai_compatible", **profile}}
    function = {"name": "lab_note", "arguments": "{}"}
    asked = {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "type": "function"}]}
    asked["tool_calls"][0]["function"] = function  # type: ignore[index]
    for message, reason in ((asked, "tool_calls"), ({"role": "assistant", "content": "done"}, "stop")):
        choice = {"index": 0, "message": message, "finish_reason": reason}
        provider.raw(json.dumps({"choices": [choice], "usage": {"prompt_tokens": 3}}).encode())
    value = (await lab.turn(loop=True)).value
    assert value["outcome"] == "completed"
    trace, report = await exported(lab, value["run_id"])
    assert (report.codes, report.passed) == ([], True)
    assert (trace["protocol"], trace["messages"][2]["role"]) == ("chat_completions", "tool")
    assert trace["messages"][1]["tool_calls"][0]["function"] == function


@pytest.mark.parametrize("reason", ["end_turn", "max_tokens"])
async def test_a_reply_without_a_word_is_shown_as_an_empty_message(
    lab: Any, provider: Any, reason: str
) -> None:
    lab.section["default_model"] = "main"
    profile = {"provider": "messages_compatible", "model": "m", "base_url": provider.base_url}
    lab.section["models"] = {"main": {**profile, "stream": False}}
    provider.message([], reason)
    outcome = await lab.turn(loop=True)
    trace, report = await exported(lab, outcome.value["run_id"])
    assert trace["messages"][-1]["content"] == []
    assert trace["messages"][-1]["stop_reason"] == reason
    assert list(report.issues) == []


async def test_a_reply_without_a_word_over_chat_completions_is_shown_in_that_shape(
    lab: Any, provider: Any
) -> None:
    lab.section["default_model"] = "main"
    profile = {"provider": "openai_compatible", "model": "m", "base_url": provider.base_url}
    lab.section["models"] = {"main": {**profile, "stream": False}}
    choice = {"index": 0, "message": {"role": "assistant", "content": None}, "finish_reason": "stop"}
    provider.raw(json.dumps({"choices": [choice]}).encode())
    outcome = await lab.turn(loop=True)
    trace, report = await exported(lab, outcome.value["run_id"])
    assert trace["messages"][-1]["finish_reason"] == "stop"
    assert list(report.issues) == []


async def test_what_was_removed_from_the_record_is_a_gap_and_not_a_fault(lab: Any) -> None:
    lab.script(calls("a"), DONE)
    value = (await lab.turn(loop=True)).value
    await lab.events(value["run_id"])
    page = lab.store.read(events.page, 0, value["run_id"], 100)
    (started,) = [event.id for event in page if event.type == "call.started"]
    removed = await lab.store.write(redact, started, "ann", "a key was in it")
    found = proof(lab, value["run_id"])
    assert [gap["code"] for gap in found["coverage_gaps"]] == ["EVENT_REDACTED"] * len(removed)
    assert (found["issues"], found["correlation"][0]["outcome"]) == ([], "ok")


async def test_a_writer_that_breaks_is_a_gap_and_the_rest_is_shown(
    lab: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(record: Any) -> dict[str, Any]:
        raise KeyError("turn")

    lab.script(DONE)
    value = (await lab.turn()).value
    writers = {"agent-runtime:turn": broken}
    found = evidence_of(replace(parts(lab), trace_writers=writers), lab.row(value["run_id"]))
    assert found is not None
    assert [gap["code"] for gap in found["coverage_gaps"]] == ["NO_TRACE"]
    assert "cannot be written as a trace" in caplog.text


async def test_earlier_runs_are_not_held_to_the_tools_of_today(lab: Any) -> None:
    lab.tool("old")
    lab.script(calls("a", tool="lab_old"), DONE)
    await lab.turn(loop=True)
    lab.script(DONE)
    value = (await lab.turn(tools=["lab:note"])).value
    trace, report = await exported(lab, value["run_id"])
    assert (report.codes, [tool["name"] for tool in trace["tools"]]) == ([], ["lab_note"])


async def test_untrusted_output_is_in_its_envelope_wherever_a_run_is_shown(lab: Any) -> None:
    lab.tool("note", untrusted_output=True)
    lab.script(calls("a"), DONE)
    value = (await lab.turn(loop=True)).value
    (call,) = (await runs_show(parts(lab), {"id": value["run_id"]}))["calls"]
    assert call["result"].startswith("<UNTRUSTED_TOOL_OUTPUT ")
    trace, report = await exported(lab, value["run_id"])
    assert report.codes == []
    trace["messages"][2]["content"][0]["content"] = '{"echo": {}}'
    assert check(trace).codes == ["UNTRUSTED_UNWRAPPED"]
