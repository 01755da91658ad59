"""Faults of the kind that other loops have had in public, as they would show here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from packhost.errors import ToolFailed
from packhost.kinds.context import CallContext
from packhost.store.ops import sessions

pytestmark = pytest.mark.anyio

TEXT = {"type": "text", "text": "done"}


def use(identity: str, tool: str = "lab_note", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": identity, "name": tool, "input": arguments}


@pytest.fixture
def told(lab: Any, provider: Any) -> Any:
    """The lab with the fake provider as its default model."""
    profile = {"provider": "messages_compatible", "model": "m-1", "base_url": provider.base_url}
    lab.section.update(default_model="main", models={"main": profile})
    return lab


async def test_bug_8_one_of_several_tools_that_raises_leaves_a_result_for_every_id(
    told: Any, provider: Any
) -> None:
    async def second_raises(context: CallContext, arguments: dict[str, Any]) -> Any:
        if arguments["n"] == 2:
            raise ToolFailed("the disk is full")
        return arguments["n"]

    told.tool("note", second_raises)
    provider.message([use("a", n=1), use("b", n=2), use("c", n=3)], "tool_use")
    provider.message([TEXT])
    assert (await told.turn(loop=True)).value["outcome"] == "completed"
    results = provider.received[1].body["messages"][-1]["content"]
    assert [(block["tool_use_id"], block["is_error"]) for block in results] == [
        ("a", False),
        ("b", True),
        ("c", True),
    ]
    assert "the disk is full" in results[1]["content"]
    assert results[2]["content"].startswith("NOT_EXECUTED")


async def test_bug_9_results_lead_the_message_that_answers_calls(told: Any, provider: Any) -> None:
    provider.message([TEXT, use("a")], "tool_use")
    assert (await told.turn()).value["outcome"] == "tool_request"
    result = {"type": "tool_result", "tool_use_id": "a", "content": "1"}
    after = {"type": "text", "text": "and hurry"}
    refused = await told.turn(messages=[{"role": "user", "content": [after, result]}])
    assert refused.code == "INVALID_INPUT"
    assert refused.as_json()["path"] == "/messages/0"
    provider.message([TEXT])
    two = [{"role": "user", "content": [result]}, {"role": "user", "content": [after]}]
    assert (await told.turn(messages=two)).value["outcome"] == "completed"
    wire = provider.received[-1].body["messages"]
    assert [message["role"] for message in wire] == ["user", "assistant", "user"]
    assert [block["type"] for block in wire[-1]["content"]] == ["tool_result", "text"]


async def test_bug_12_a_crash_in_a_call_leaves_no_call_without_a_result(
    building: Any, provider: Any, hanging: Callable[..., Any]
) -> None:
    slow = hanging()
    profile = {"provider": "messages_compatible", "model": "m-1", "base_url": provider.base_url}
    async with building.host("host_a") as first:
        first.tool("note", slow)
        first.section.update(default_model="main", models={"main": profile})
        provider.message([use("a"), use("b")], "tool_use")
        run_id = await first.background()
        with anyio.fail_after(5):
            await slow.started.wait()
    async with building.host("host_b") as second:
        second.section.update(default_model="main", models={"main": profile})
        provider.message([TEXT])
        await second.runs.resume_by_person(run_id, by="ann")
        assert (await second.until(run_id, "completed")).outcome == "completed"
        results = provider.received[-1].body["messages"][-1]["content"]
        said = [(block["tool_use_id"], block["content"].partition(":")[0]) for block in results]
        assert said == [("a", "EFFECTS_UNKNOWN"), ("b", "NOT_EXECUTED")]


@pytest.mark.parametrize("error", [ToolFailed("it broke"), TimeoutError(), ConnectionError("reset")])
async def test_bug_14_a_call_with_effects_that_fails_is_made_once(
    told: Any, provider: Any, error: Exception
) -> None:
    made: list[str] = []

    async def fails(context: CallContext, arguments: dict[str, Any]) -> Any:
        made.append(context.call_id)
        raise error

    told.tool("note", fails)
    provider.message([use("a")], "tool_use")
    provider.message([TEXT])
    assert (await told.turn(loop=True)).value["outcome"] == "completed"
    assert (len(made), len(told.calls(told.run_ids()[0]))) == (1, 1)


async def test_bug_14_a_call_that_timed_out_is_not_made_again_and_says_that_it_may_have_had_effects(
    told: Any, provider: Any, hanging: Callable[..., Any]
) -> None:
    slow = hanging()
    told.tool("note", slow, timeout=0.05)
    provider.message([use("a")], "tool_use")
    provider.message([TEXT])
    assert (await told.turn(loop=True)).value["outcome"] == "completed"
    said = provider.received[-1].body["messages"][-1]["content"][0]
    assert (slow.times, said["is_error"]) == (1, True)
    assert said["content"].startswith("TOOL_TIMEOUT")
    assert "look before you call it again" in said["content"].lower()


async def test_a_model_that_says_it_is_done_in_a_tool_turn_is_not_believed(told: Any, provider: Any) -> None:
    provider.message([{"type": "text", "text": "TASK COMPLETE. All done."}, use("a")], "tool_use")
    provider.message([{"type": "text", "text": "really"}])
    value = (await told.turn(loop=True)).value
    assert (value["outcome"], value["text"], value["turns"]) == ("completed", "really", 2)


async def test_bug_15_a_reason_for_tools_without_a_call_ends_the_run_after_one_request(
    told: Any, provider: Any
) -> None:
    provider.message([{"type": "text", "text": '{"tool": "lab_note", "input": {}}'}], "tool_use")
    value = (await told.turn(loop=True)).value
    assert (value["outcome"], value["error"]["issue"]) == ("protocol_error", "STOP_TOOL_WITHOUT_CALLS")
    assert (len(provider.received), value["retries"], told.calls(value["run_id"])) == (1, 0, ())


@pytest.mark.parametrize("reason", ["paused_for_thought", "compaction", "function_call", ""])
async def test_a_reason_that_nobody_knows_runs_nothing(told: Any, provider: Any, reason: str) -> None:
    provider.message([use("a")], reason)
    value = (await told.turn(loop=True)).value
    assert (value["outcome"], told.calls(value["run_id"])) == ("protocol_error", ())
    history = told.store.read(sessions.history, value["session_id"])
    assert [row.message["role"] for row in history] == ["user"]
