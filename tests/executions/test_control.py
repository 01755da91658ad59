"""Control of a run that goes on: how fast, from where, and what a pause that is taken back leaves."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from packhost.errors import PackhostError
from packhost.executions import ops
from packhost.kinds.context import CallContext

pytestmark = pytest.mark.anyio

AT_ONCE = 0.1
"""Seconds from the decision to a run's end."""


def calls(*ids: str, tool: str = "lab_note") -> dict[str, Any]:
    return {"tool_calls": [{"id": identity, "name": tool, "arguments": {}} for identity in ids]}


DONE = {"text": "done"}


@pytest.fixture
def told(lab: Any, provider: Any) -> Any:
    """The lab with the fake provider as its default model."""
    profile = {"provider": "messages_compatible", "model": "m-1", "base_url": provider.base_url}
    lab.section.update(default_model="main", models={"main": profile})
    return lab


async def ended_at_once(lab: Any, start: Callable[[], Any]) -> str:
    """End a run that `start` brings to where it is to be ended; the last of three tries on a busy machine."""
    for _ in range(3):
        run_id = await start()
        began = time.monotonic()
        await lab.runs.abort_by_person(run_id, by="ann")
        took = time.monotonic() - began
        assert lab.row(run_id).status == "aborted"
        if took < AT_ONCE:
            return str(run_id)
    raise AssertionError(f"it took {took:.3f} s")


STARTED = b'event: message_start\ndata: {"type": "message_start", "message": {"role": "assistant"}}\n\n'


@pytest.mark.parametrize("begun", [b"", STARTED])
async def test_a_run_is_ended_within_100_ms_while_its_provider_stalls(
    told: Any, provider: Any, begun: bytes
) -> None:
    async def stalled() -> str:
        provider.asked.clear()
        provider.stall(after=begun)
        run_id = await told.background()
        assert await anyio.to_thread.run_sync(provider.asked.wait, 5)
        await anyio.sleep(0.05)
        return str(run_id)

    run_id = await ended_at_once(told, stalled)
    assert told.row(run_id).outcome == "cancelled"
    assert (await told.events(run_id)).count("run.aborted") == 1
    assert await anyio.to_thread.run_sync(provider.gone.wait, 5)


async def test_a_run_is_ended_within_100_ms_while_a_child_process_works_for_it(
    lab: Any, tmp_path: Path
) -> None:
    started: list[anyio.Event] = []
    children: list[Any] = []

    async def slow(context: CallContext, arguments: dict[str, Any]) -> Any:
        async with await anyio.open_process(["sleep", "60"]) as child:
            children.append(child)
            started[-1].set()
            try:
                await child.wait()
            except anyio.get_cancelled_exc_class():
                child.kill()
                raise

    lab.tool("note", slow)
    lab.script(calls("a", "b"), DONE)

    async def working() -> str:
        started.append(anyio.Event())
        run_id = await lab.background(session_id=f"try-{len(started)}")
        with anyio.fail_after(5):
            await started[-1].wait()
        return str(run_id)

    run_id = await ended_at_once(lab, working)
    stat = Path(f"/proc/{children[-1].pid}/stat")
    assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"
    await lab.store.flush()
    assert [call.status for call in lab.calls(run_id)] == ["unknown"]


async def test_a_run_is_ended_within_100_ms_while_it_waits_for_a_person(lab: Any) -> None:
    lab.rule("ask", "lab:note")
    lab.script(calls("a"), DONE)
    sessions = iter("abc")

    async def asking() -> str:
        run_id = await lab.background(session_id=next(sessions))
        await lab.when(run_id, lambda row: row.waiting_on is not None)
        return str(run_id)

    await ended_at_once(lab, asking)
    assert lab.pending() == []


async def test_a_run_is_ended_within_100_ms_while_it_waits_to_ask_again(told: Any, provider: Any) -> None:
    async def waiting() -> str:
        provider.raw(b"", 429, {"retry-after": "60"})
        run_id = await told.background()
        with anyio.fail_after(5):
            while "turn.retried" not in await told.events(run_id):
                await anyio.sleep(0.001)
        return str(run_id)

    await ended_at_once(told, waiting)


async def test_a_pause_that_is_not_reached_yet_is_taken_back(
    lab: Any, person: Callable[..., Any], hanging: Callable[..., Any]
) -> None:
    slow = hanging()
    lab.tool("note", slow)
    lab.script(calls("a", "b"), DONE)
    run_id = await lab.background()
    with anyio.fail_after(5):
        await slow.started.wait()
    await lab.call("pause_turn", {"run_id": run_id, "reason": "wait"}, client="other", asker=person())
    assert (lab.row(run_id).pause_requested, lab.row(run_id).reason) == (True, "wait")
    going = await lab.call("resume_workflow", {"run_id": run_id}, client="third")
    assert going.value["outcome"] == "running"
    assert (lab.row(run_id).pause_requested, lab.row(run_id).paused_by) == (False, None)
    slow.go_on.set()
    row = await lab.until(run_id, "completed", "paused")
    assert (row.status, row.epoch) == ("completed", 1)
    types = await lab.events(run_id)
    assert (types.count("run.pause_withdrawn"), types.count("run.paused")) == (1, 0)


async def test_a_persons_pause_is_taken_back_by_a_person_alone(lab: Any, hanging: Callable[..., Any]) -> None:
    slow = hanging()
    lab.tool("note", slow)
    lab.script(calls("a", "b"), DONE)
    run_id = await lab.background()
    with anyio.fail_after(5):
        await slow.started.wait()
    await lab.runs.pause_by_person(run_id, by="ann")
    refused = await lab.call("resume_workflow", {"run_id": run_id})
    assert (refused.code, lab.row(run_id).pause_requested) == ("APPROVAL_REQUIRED", True)
    await lab.runs.resume_by_person(run_id, by="ann")
    slow.go_on.set()
    assert (await lab.until(run_id, "completed", "paused")).status == "completed"


async def test_a_pause_cannot_be_taken_back_from_a_run_that_is_being_ended(
    lab: Any, hanging: Callable[..., Any]
) -> None:
    slow = hanging()
    lab.tool("note", slow)
    lab.script(calls("a"), DONE)
    run_id = await lab.background()
    with anyio.fail_after(5):
        await slow.started.wait()
    await lab.runs.pause_by_person(run_id, by="ann")
    await lab.store.write(ops.abort, run_id, "person:ann", "")
    with pytest.raises(PackhostError) as caught:
        await lab.runs.resume_by_person(run_id, by="ann")
    assert caught.value.code == "RESUME_STATE_CHANGED"


async def test_a_paused_run_asks_no_provider_and_makes_no_call(told: Any, provider: Any) -> None:
    use = {"type": "tool_use", "id": "c1", "name": "lab_note", "input": {}}
    provider.message([use], "tool_use")
    provider.message([{"type": "text", "text": "done"}])
    inside = anyio.Event()
    go_on = anyio.Event()

    async def slow(context: CallContext, arguments: dict[str, Any]) -> Any:
        inside.set()
        await go_on.wait()
        return 1

    told.tool("note", slow)
    run_id = await told.background()
    with anyio.fail_after(5):
        await inside.wait()
    await told.runs.pause_by_person(run_id, by="ann")
    go_on.set()
    await told.until(run_id, "paused")
    await anyio.sleep(0.05)
    assert (len(provider.received), len(told.calls(run_id))) == (1, 1)
    await told.runs.resume_by_person(run_id, by="ann")
    assert (await told.until(run_id, "completed")).outcome == "completed"
    assert len(provider.received) == 2


async def test_the_result_of_a_background_run_is_read_where_it_is_resumed(
    lab: Any, person: Callable[..., Any]
) -> None:
    lab.script(DONE)
    run_id = (await lab.turn(background=True)).value["run_id"]
    await lab.until(run_id, "completed")
    for _ in range(2):
        ended = (await lab.call("resume_workflow", {"run_id": run_id})).value
        assert (ended["outcome"], ended["text"], ended["turns"]) == ("completed", "done", 1)
    late = await lab.call("abort_turn", {"run_id": run_id}, asker=person())
    assert late.code == "RESUME_STATE_CHANGED"


async def test_of_several_questions_at_once_the_run_waits_for_each(lab: Any) -> None:
    lab.tool("peek", permission="read")
    lab.rule("ask", "lab:peek")
    asks = [{"id": one, "name": "lab_peek", "arguments": {"n": one}} for one in "ab"]
    lab.script({"tool_calls": asks}, DONE)
    run_id = await lab.background()
    with anyio.fail_after(5):
        while len(lab.pending()) < 2:
            await anyio.sleep(0.001)
    first = (await lab.when(run_id, lambda row: row.waiting_on is not None)).waiting_on
    (second,) = {f"approval:{asked.id}" for asked in lab.pending()} - {first}
    await lab.gate.decide(first.removeprefix("approval:"), "approve", by="ann", channel="cli")
    await lab.when(run_id, lambda row: row.waiting_on == second)
    await lab.gate.decide(second.removeprefix("approval:"), "deny", by="ann", channel="cli")
    row = await lab.until(run_id, "completed")
    assert (row.waiting_on, [call.status for call in lab.calls(run_id)]) == (None, ["ok"])
