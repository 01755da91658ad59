"""The turn loop, on a run that lives in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import anyio
import pytest

from packhost.errors import InvalidInput
from packhost.kinds.context import RunStopped, ToolOutcome
from packhost_packs.agent_runtime.limits import Limits

pytestmark = pytest.mark.anyio

OK = ToolOutcome(True, "fine", 1)
FAILED = ToolOutcome(False, "TOOL_FAILED: it broke.", code="TOOL_FAILED")
DENIED = ToolOutcome(False, "POLICY_DENIED: no.", code="POLICY_DENIED")


def call(identity: str, name: str = "lab_go", **arguments: Any) -> dict[str, Any]:
    return {"id": identity, "name": name, "arguments": arguments}


def calls(*ids: str, **more: Any) -> dict[str, Any]:
    return {"tool_calls": [call(identity) for identity in ids], **more}


async def test_one_turn_hands_the_calls_back_and_runs_none(memory_run: Callable[..., Any]) -> None:
    run = memory_run([calls("a", "b", text="now")], loop=False)
    run.answers_with("go", OK)
    result = await run.drive()
    assert (result.outcome, run.ran) == ("tool_request", [])
    assert [one["id"] for one in result.result["requested_tools"]] == ["a", "b"]
    assert [block["type"] for block in result.result["content_blocks"]] == ["text", "tool_call", "tool_call"]
    assert result.result["text"] == "now"


async def test_a_loop_runs_calls_in_order_until_the_model_is_done(memory_run: Callable[..., Any]) -> None:
    run = memory_run([calls("a", "b"), calls("c"), {"text": "done"}])
    run.answers_with("go", OK)
    result = await run.drive()
    assert (result.outcome, result.result["text"], run.ran) == ("completed", "done", ["a", "b", "c"])
    assert (result.result["turns"], result.result["tool_calls"]) == (3, 3)
    assert result.result["requested_tools"] == []
    assert run.pairing_holds()
    assert [kind for kind, _ in run.events] == ["turn.started", "turn.completed"] * 3


async def test_a_batch_that_does_not_fit_runs_nothing_and_answers_every_call(
    memory_run: Callable[..., Any],
) -> None:
    run = memory_run([calls("a"), calls("b", "c"), {"text": "never"}], limits=Limits(max_tool_calls=2))
    run.answers_with("go", OK)
    result = await run.drive()
    assert (result.outcome, result.result["error"]["issue"]) == ("limit_exceeded", "BUDGET_TOOL_CALLS")
    assert run.ran == ["a"]
    assert run.results() == [
        ("a", False, "fine"),
        ("b", True, "LIMIT_EXCEEDED"),
        ("c", True, "LIMIT_EXCEEDED"),
    ]
    assert run.pairing_holds()


async def test_after_a_failure_the_rest_of_the_batch_is_not_run_and_the_model_goes_on(
    memory_run: Callable[..., Any],
) -> None:
    run = memory_run([calls("a", "b", "c"), {"text": "i see"}])
    run.answers_with("go", OK, FAILED, OK)
    result = await run.drive()
    assert (result.outcome, run.ran) == ("completed", ["a", "b"])
    assert run.results() == [("a", False, "fine"), ("b", True, "TOOL_FAILED"), ("c", True, "NOT_EXECUTED")]


async def test_a_refused_call_is_told_to_the_model_and_the_others_run(memory_run: Callable[..., Any]) -> None:
    run = memory_run([calls("a", "b"), {"text": "ok"}])
    run.answers_with("go", DENIED, OK)
    await run.drive()
    assert run.results() == [("a", True, "POLICY_DENIED"), ("b", False, "fine")]


async def test_a_tool_that_is_not_on_offer_is_not_called(memory_run: Callable[..., Any]) -> None:
    run = memory_run([{"tool_calls": [call("a", "lab_goo"), call("b", "lab:go")]}, {"text": "ok"}])
    run.answers_with("go", OK)
    await run.drive()
    assert run.ran == ["b"]
    assert run.results() == [("a", True, "TOOL_NOT_FOUND"), ("b", False, "fine")]
    assert "`lab_go`" in run.messages[2]["content"][0]["content"]


async def test_a_saved_agents_tools_can_only_be_narrowed(memory_run: Callable[..., Any]) -> None:
    run = memory_run([{"tool_calls": [call("a"), call("b", "lab_stop")]}, {"text": "ok"}])
    run.config["agents"] = {"helper": {"tools": ["lab:go"]}}
    run.spec.update(agent="helper", tools=["lab:go", "lab:stop"])
    run.answers_with("go", OK)
    run.answers_with("stop", OK)
    await run.drive()
    assert run.ran == ["a"]


@pytest.mark.parametrize(
    ("reply", "outcome", "kept"),
    [
        (calls("a", text="half", stop_reason="max_tokens"), "incomplete", 2),
        (calls("a", stop_reason="refusal"), "refused", 1),
        ({"text": "no", "stop_reason": "refusal"}, "refused", 2),
        ({"text": " "}, "completed", 1),
        ({}, "completed", 1),
        (calls("a", stop_reason="end_turn"), "protocol_error", 1),
        ({"text": "I am done. TASK COMPLETE", "stop_reason": "tool_use"}, "protocol_error", 1),
        ({"text": "x", "stop_reason": "novel"}, "protocol_error", 1),
        ({"text": "x", "stop_reason": "pause_turn"}, "unsupported", 1),
        ({"tool_calls": [{"name": "lab_go"}]}, "protocol_error", 1),
    ],
)
async def test_no_call_of_a_reply_that_is_not_a_tool_turn_runs(
    memory_run: Callable[..., Any], reply: Any, outcome: str, kept: int
) -> None:
    run = memory_run([reply])
    run.answers_with("go", OK)
    result = await run.drive()
    assert (result.outcome, run.ran, len(run.messages)) == (outcome, [], kept)
    assert result.result["requested_tools"] == []
    assert result.failed is (outcome in ("protocol_error", "unsupported"))
    assert run.pairing_holds()


async def test_an_id_of_an_earlier_turn_ends_the_run_before_anything_runs(
    memory_run: Callable[..., Any],
) -> None:
    run = memory_run([calls("a"), calls("b", "a")])
    run.answers_with("go", OK)
    result = await run.drive()
    assert (result.outcome, result.result["error"]["issue"]) == ("protocol_error", "CALL_ID_REUSED")
    assert run.ran == ["a"]


async def test_an_id_of_an_earlier_run_of_the_conversation_is_refused_too(
    memory_run: Callable[..., Any],
) -> None:
    first = memory_run([calls("a"), {"text": "done"}])
    first.answers_with("go", OK)
    await first.drive()
    second = memory_run([calls("a")])
    second.answers_with("go", OK)
    second.messages = first.messages
    result = await second.drive()
    assert (result.result["error"]["issue"], second.ran) == ("CALL_ID_REUSED", [])


async def test_turns_are_bounded(memory_run: Callable[..., Any]) -> None:
    run = memory_run([calls(str(n)) for n in range(9)], limits=Limits(max_turns=3))
    run.answers_with("go", OK)
    result = await run.drive()
    assert (result.outcome, result.result["error"]["issue"]) == ("limit_exceeded", "BUDGET_TURNS")
    assert (result.result["turns"], run.pairing_holds()) == (3, True)


async def test_time_at_work_is_bounded_and_time_spent_waiting_for_people_is_not_counted(
    memory_run: Callable[..., Any],
) -> None:
    run = memory_run([calls("a"), {"text": "done"}], limits=Limits(wall_clock=5))

    async def wait_for_somebody(arguments: Mapping[str, Any]) -> ToolOutcome:
        run.waited = -6.0 if arguments else 1e9
        return OK

    run.answers["go"] = wait_for_somebody
    assert (await run.drive()).outcome == "completed"
    late = memory_run([{"tool_calls": [call("a", slow=True)]}, {"text": "done"}], limits=Limits(wall_clock=5))
    run = late
    late.answers["go"] = wait_for_somebody
    assert (await late.drive()).result["error"]["issue"] == "BUDGET_WALL_CLOCK"


async def test_a_conversation_that_leaves_a_call_open_is_refused_before_the_model_is_asked(
    memory_run: Callable[..., Any],
) -> None:
    first = memory_run([calls("a")], loop=False)
    await first.drive()
    second = memory_run([{"text": "hm"}])
    second.messages = first.messages
    with pytest.raises(InvalidInput, match="`a`"):
        await second.drive()
    assert second.events == []
    second.spec["messages"] = [
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "1"}]}
    ]
    assert (await second.drive()).outcome == "completed"


async def test_a_pause_is_taken_before_the_next_call_and_nothing_runs_twice(
    memory_run: Callable[..., Any],
) -> None:
    run = memory_run([calls("a", "b"), {"text": "done"}])

    async def pause(arguments: Mapping[str, Any]) -> ToolOutcome:
        run.stop = RunStopped("paused") if not run.ran[1:] else None
        return OK

    run.answers["go"] = pause
    with pytest.raises(RunStopped):
        await run.drive()
    assert (run.ran, len(run.messages)) == (["a"], 1)
    again = run.resumed()
    assert (await again.drive()).outcome == "completed"
    assert again.ran == ["a", "b"]
    assert again.pairing_holds()


async def test_an_abort_in_a_tool_leaves_a_result_for_every_call(memory_run: Callable[..., Any]) -> None:
    run = memory_run([calls("a", "b", "c")])
    started = anyio.Event()

    async def hang(arguments: Mapping[str, Any]) -> ToolOutcome:
        if len(run.ran) == 1:
            return OK
        started.set()
        await anyio.sleep_forever()
        return OK

    run.answers["go"] = hang
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(run.drive)
            await started.wait()
            run.aborting = True
            group.cancel_scope.cancel()
    assert run.results() == [
        ("a", False, "fine"),
        ("b", True, "EFFECTS_UNKNOWN"),
        ("c", True, "NOT_EXECUTED"),
    ]
    assert run.pairing_holds()


async def test_a_host_that_stops_leaves_the_batch_to_be_resumed(memory_run: Callable[..., Any]) -> None:
    run = memory_run([calls("a")])
    started = anyio.Event()

    async def hang(arguments: Mapping[str, Any]) -> ToolOutcome:
        started.set()
        await anyio.sleep_forever()
        return OK

    run.answers["go"] = hang
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(run.drive)
            await started.wait()
            group.cancel_scope.cancel()
    assert len(run.messages) == 1
    assert run.state["pending"]["running"] == ["a"]


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("steps", range(30))
async def test_killed_anywhere_it_resumes_and_runs_nothing_twice_that_may_not(
    memory_run: Callable[..., Any], killed: type[BaseException], steps: int, idempotent: bool
) -> None:
    run = memory_run([calls("a", "b"), calls("c"), {"text": "done"}])
    run.answers_with("go", OK, idempotent=idempotent)
    run.kill_after = steps
    try:
        result = await run.drive()
        assert steps >= 20
    except killed:
        run = run.resumed()
        result = await run.drive()
    assert result.outcome == "completed"
    assert run.pairing_holds()
    assert [identity for identity, _, _ in run.results()] == ["a", "b", "c"]
    if idempotent:
        assert {word for _, _, word in run.results()} == {"fine"}
    else:
        assert len(run.ran) == len(set(run.ran))
        lost = {word for _, _, word in run.results()} - {"fine"}
        assert lost <= {"EFFECTS_UNKNOWN", "NOT_EXECUTED"}
