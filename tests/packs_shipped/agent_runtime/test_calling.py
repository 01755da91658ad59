"""The calls of a batch: which run side by side, what a failure leaves, and the same failing call again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import anyio
import pytest

from packhost.kinds.context import RunStopped, ToolOutcome
from packhost_packs.agent_runtime.faults import TurnFault
from packhost_packs.agent_runtime.limits import Limits
from packhost_packs.agent_runtime.retries import delay, may_repeat

pytestmark = pytest.mark.anyio

OK = ToolOutcome(True, "fine", 1)
FAILED = ToolOutcome(False, "TOOL_FAILED: it broke.", code="TOOL_FAILED")
DENIED = ToolOutcome(False, "POLICY_DENIED: no.", code="POLICY_DENIED")


def calls(*ids: str, name: str = "lab_go", **arguments: Any) -> dict[str, Any]:
    return {"tool_calls": [{"id": one, "name": name, "arguments": {"n": one, **arguments}} for one in ids]}


def same(*ids: str, name: str = "lab_go") -> dict[str, Any]:
    return {"tool_calls": [{"id": one, "name": name, "arguments": {"x": 1}} for one in ids]}


class Together:
    """A tool that goes on once as many calls are in it as it was told, and keeps how many there were."""

    def __init__(self, wanted: int) -> None:
        self.wanted, self.inside, self.most = wanted, 0, 0
        self.met = anyio.Event()
        self.ended: list[str] = []

    async def __call__(self, arguments: Mapping[str, Any]) -> ToolOutcome:
        self.inside += 1
        self.most = max(self.most, self.inside)
        if self.inside == self.wanted:
            self.met.set()
        with anyio.move_on_after(0.5):
            await self.met.wait()
        if arguments["n"] == "a":
            await anyio.sleep(0.01)
        self.inside -= 1
        self.ended.append(arguments["n"])
        return ToolOutcome(True, f"got {arguments['n']}")


def reading(run: Any, name: str, tool: Any) -> None:
    run.answers[name] = tool
    run.idempotent.add(name)
    run.reading.add(name)


async def test_reading_calls_run_side_by_side_and_their_results_keep_the_models_order(
    memory_run: Callable[..., Any],
) -> None:
    run = memory_run([calls("a", "b", "c"), {"text": "done"}])
    tool = Together(3)
    reading(run, "go", tool)
    assert (await run.drive()).outcome == "completed"
    assert (tool.most, tool.ended[-1]) == (3, "a")
    assert run.results() == [("a", False, "got a"), ("b", False, "got b"), ("c", False, "got c")]


async def test_a_call_with_effects_runs_alone_and_in_its_place(memory_run: Callable[..., Any]) -> None:
    asked = [*calls("a", "b")["tool_calls"], *calls("w", name="lab_write")["tool_calls"]]
    run = memory_run([{"tool_calls": [*asked, *calls("c", "d")["tool_calls"]]}, {"text": "done"}])
    tool = Together(2)
    reading(run, "go", tool)

    async def write(arguments: Mapping[str, Any]) -> ToolOutcome:
        assert (tool.inside, set(tool.ended)) == (0, {"a", "b"})
        return OK

    run.answers["write"] = write
    await run.drive()
    assert tool.most == 2
    assert [identity for identity, _, _ in run.results()] == ["a", "b", "w", "c", "d"]


async def test_what_may_be_repeated_and_still_writes_runs_alone(memory_run: Callable[..., Any]) -> None:
    run = memory_run([calls("a", "b"), {"text": "done"}])
    tool = Together(1)
    run.answers["go"] = tool
    run.idempotent.add("go")
    await run.drive()
    assert tool.most == 1


async def test_no_more_than_eight_run_at_once(memory_run: Callable[..., Any]) -> None:
    run = memory_run([calls(*"abcdefghijkl"), {"text": "done"}])
    tool = Together(8)
    reading(run, "go", tool)
    await run.drive()
    assert tool.most == 8


async def test_of_reading_calls_that_started_together_each_keeps_its_own_result(
    memory_run: Callable[..., Any],
) -> None:
    asked = [*calls("a", "b")["tool_calls"], *calls("w", name="lab_write")["tool_calls"]]
    run = memory_run([{"tool_calls": asked}, {"text": "done"}])

    async def half(arguments: Mapping[str, Any]) -> ToolOutcome:
        return FAILED if arguments["n"] == "a" else OK

    reading(run, "go", half)
    run.answers_with("write", OK)
    await run.drive()
    assert run.ran == ["a", "b"]
    assert run.results() == [("a", True, "TOOL_FAILED"), ("b", False, "fine"), ("w", True, "NOT_EXECUTED")]


async def test_a_tool_that_raises_out_of_a_batch_ends_the_run_as_it_is(
    memory_run: Callable[..., Any],
) -> None:
    run = memory_run([calls("a", "b")])

    async def broken(arguments: Mapping[str, Any]) -> ToolOutcome:
        raise ZeroDivisionError

    reading(run, "go", broken)
    with pytest.raises(ZeroDivisionError):
        await run.drive()


async def test_the_same_failing_call_is_made_three_times_then_refused_then_ends_the_run(
    memory_run: Callable[..., Any],
) -> None:
    run = memory_run([same(str(n)) for n in range(9)])
    run.answers_with("go", FAILED)
    result = await run.drive()
    assert (result.outcome, result.result["error"]["issue"]) == ("limit_exceeded", "BUDGET_RETRIES")
    assert run.ran == ["0", "1", "2"]
    assert [word for _, _, word in run.results()] == ["TOOL_FAILED"] * 3 + ["LIMIT_EXCEEDED"] * 2
    assert run.pairing_holds()


@pytest.mark.parametrize("outcome", [DENIED, ToolOutcome(False, "INVALID_INPUT: no.", code="INVALID_INPUT")])
async def test_a_refusal_counts_as_a_failure_too(
    memory_run: Callable[..., Any], outcome: ToolOutcome
) -> None:
    run = memory_run([same("a", "b", "c", "d"), {"text": "done"}])
    run.answers_with("go", outcome)
    assert (await run.drive()).outcome == "completed"
    assert run.ran == ["a", "b", "c"]
    assert run.results()[-1][2] == "LIMIT_EXCEEDED"


async def test_another_input_or_a_success_between_starts_the_count_anew(
    memory_run: Callable[..., Any],
) -> None:
    run = memory_run([*(same(str(n)) for n in range(6)), calls("x"), {"text": "done"}])
    run.answers_with("go", FAILED, FAILED, OK, FAILED, FAILED, OK)
    assert (await run.drive()).outcome == "completed"
    assert run.ran == ["0", "1", "2", "3", "4", "5", "x"]


async def test_the_count_of_failures_survives_a_pause(memory_run: Callable[..., Any]) -> None:
    run = memory_run([*(same(str(n)) for n in range(4)), {"text": "done"}])

    async def fail(arguments: Mapping[str, Any]) -> ToolOutcome:
        run.stop = RunStopped("paused") if len(run.ran) == 2 else None
        return FAILED

    run.answers["go"] = fail
    with pytest.raises(RunStopped):
        await run.drive()
    again = run.resumed()
    await again.drive()
    assert again.ran == ["0", "1", "2"]


@pytest.mark.parametrize("steps", range(40))
async def test_killed_while_calls_run_side_by_side_each_gets_one_result(
    memory_run: Callable[..., Any], killed: type[BaseException], steps: int
) -> None:
    run = memory_run([calls("a", "b", "c"), calls("w", name="lab_write"), {"text": "done"}])
    run.answers_with("go", OK, idempotent=True)
    run.reading.add("go")
    run.answers_with("write", OK)
    run.kill_after = steps
    try:
        result = await run.drive()
    except killed:
        run = run.resumed()
        result = await run.drive()
    assert result.outcome == "completed"
    assert [identity for identity, _, _ in run.results()] == ["a", "b", "c", "w"]
    assert run.pairing_holds()
    assert run.ran.count("w") <= 1


def fault(status: int | None = 503, *, begun: bool = False, after: float | None = None) -> TurnFault:
    return TurnFault("provider_error", "X", "no", status=status, begun=begun, retry_after=after)


@pytest.mark.parametrize(
    ("fault", "repeated"),
    [
        *((fault(status), True) for status in (429, 500, 503, 529, 599, None)),
        *((fault(status), False) for status in (400, 401, 404, 408, 428, 430, 600)),
        *((fault(status, begun=True), False) for status in (429, 503, None)),
        (TurnFault("protocol_error", "X", "no", status=503, begun=False), False),
    ],
)
def test_only_what_spent_nothing_and_may_do_better_is_repeated(fault: TurnFault, repeated: bool) -> None:
    assert may_repeat(fault) is repeated


def test_the_wait_doubles_up_to_its_cap_and_half_of_it_is_chance() -> None:
    assert [delay(fault(), n, lambda: 1.0) for n in range(8)] == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert [delay(fault(), n, lambda: 0.0) for n in (0, 10_000)] == [0.25, 15]


def test_what_a_provider_asks_for_is_kept_never_cut_short_and_bounded() -> None:
    assert delay(fault(after=7), 9, lambda: 0.0) == 7
    assert delay(fault(after=10), 0, lambda: 1.0) == pytest.approx(11)
    assert (delay(fault(after=0), 5), delay(fault(after=301), 0)) == (0, None)


async def test_a_batch_is_admitted_against_what_is_left(memory_run: Callable[..., Any]) -> None:
    run = memory_run([calls("a", "b"), calls("c")], limits=Limits(max_tool_calls=2))
    run.answers_with("go", OK)
    result = await run.drive()
    assert (result.outcome, run.ran) == ("limit_exceeded", ["a", "b"])
    assert run.results()[-1] == ("c", True, "LIMIT_EXCEEDED")
