"""Hosts over one store: what is decided at one acts at all, and what one loses another goes on with."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import anyio
import pytest
from postgres_server import STORES

from packhost.errors import Conflict, PackhostError, StoreUnavailable
from packhost.executions.connections import HostConnection
from packhost.kinds.context import CallContext, RunResult, RunStopped
from packhost.store.base import Store
from packhost.store.opening import open_store
from packhost.store.ops import approvals, replicas, sessions
from packhost.workspace.secrets import Secrets

pytestmark = pytest.mark.anyio
DONE = {"text": "done"}
LEASE = 1.0
LONG = 60.0
Host = Callable[..., AbstractAsyncContextManager[Any]]


def calls(*ids: str, tool: str = "lab_note") -> dict[str, Any]:
    return {"tool_calls": [{"id": id, "name": tool, "arguments": {"id": id}} for id in ids]}


@pytest.fixture(params=STORES)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def host(
    anyio_backend: str,
    kind: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    building_type: Any,
) -> AsyncIterator[Host]:
    """Opens a host beside others: each with a store of its own on PostgreSQL, all with the one on SQLite."""
    root = tmp_path / "work"
    (root / ".agent-runtime").mkdir(parents=True)
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    setting = "sqlite" if kind == "sqlite" else request.getfixturevalue("postgres_url")
    stores: list[Store] = []

    def open_host(owner: str, lease: float = LEASE) -> Any:
        if not stores or kind == "postgres":
            stores.append(open_store(setting, tmp_path, "w", Secrets({}, base=tmp_path)))
        return building_type(stores[-1], root, descriptor).host(owner, shared=True, lease=lease)

    yield open_host
    for store in stores:
        await store.close()
    os.close(descriptor)


async def until(holds: Callable[[], Any], seconds: float = 10.0) -> None:
    with anyio.fail_after(seconds):
        while not holds():
            await anyio.sleep(0.005)


async def test_a_run_whose_host_is_gone_goes_on_at_another_and_repeats_nothing(
    host: Host, hanging: Callable[..., Any]
) -> None:
    slow = hanging()
    async with host("host_b") as second:
        second.script(calls("a"), calls("b"), DONE)
        async with host("host_a") as first:
            first.tool("note", slow)
            first.script(calls("a"), calls("b"), DONE)
            run_id = await first.background()
            with anyio.fail_after(5):
                await slow.started.wait()
        row = await second.until(run_id, "completed")
        assert row.epoch == 3
        assert [call.status for call in second.calls(run_id)] == ["unknown", "ok"]
        found = await second.events(run_id)
        assert found.count("run.interrupted") == 1
        history = second.store.read(sessions.history, row.session_id)
        results = [part for one in history for part in one.message["content"] if "tool_use_id" in part]
        assert results[0]["content"].partition(":")[0] == "EFFECTS_UNKNOWN"


async def test_a_run_that_a_caller_waits_for_is_not_taken_up_by_itself(
    host: Host, hanging: Callable[..., Any]
) -> None:
    slow = hanging()
    async with host("host_b", LONG) as second, host("host_a", LONG) as first:
        first.tool("note", slow)
        for lab in (first, second):
            lab.script(calls("a"), DONE)
        told: list[Any] = []

        async def call() -> None:
            told.append(await first.turn(loop=True))

        async with anyio.create_task_group() as callers:
            callers.start_soon(call)
            with anyio.fail_after(5):
                await slow.started.wait()
            await first.runs.hand_over(0.0)
        (run_id,) = first.run_ids()
        assert told[0].value["outcome"] == "interrupted"
        await second.background(session_id="another")  # whatever goes on by itself has had its turn
        assert second.row(run_id).status == "interrupted"
        outcome = await second.call("resume_workflow", {"run_id": run_id})
        assert outcome.value["outcome"] == "completed"


async def test_a_run_is_handed_over_without_a_wait_and_each_call_made_once(host: Host) -> None:
    made: list[str] = []
    reached = anyio.Event()

    async def note(context: CallContext, arguments: dict[str, Any]) -> Any:
        made.append(arguments["id"])
        if len(made) == 3:
            reached.set()
        await anyio.sleep(0.005)
        return arguments["id"]

    ids = [f"c{n}" for n in range(12)]
    async with host("host_b", LONG) as second, host("host_a", LONG) as first:
        for lab in (first, second):
            lab.tool("note", note)
            lab.script(*[calls(id) for id in ids], DONE)
        run_id = await first.background()
        with anyio.fail_after(10):
            await reached.wait()
            began = time.monotonic()
            await first.runs.hand_over(5.0)
            took = time.monotonic() - began
        await second.until(run_id, "completed")
        with pytest.raises(StoreUnavailable, match="stopping"):
            await first.runs.resume_by_person(run_id, by="ann")
        assert made == ids
        assert took < 2
        assert {call.status for call in second.calls(run_id)} == {"ok"}


async def test_a_run_that_waits_for_a_person_is_handed_over_with_its_question(host: Host) -> None:
    async with host("host_b", LONG) as second, host("host_a", LONG) as first:
        for lab in (first, second):
            lab.rule("ask", "lab:note")
            lab.script(calls("a"), DONE)
        run_id = await first.background()
        await until(first.pending)
        (asked,) = first.pending()
        with anyio.fail_after(5):
            await first.runs.hand_over(30.0)
        await second.when(run_id, lambda row: row.waiting_on == f"approval:{asked.id}" and row.epoch == 3)
        await second.gate.decide(asked.id, "approve", by="ann", channel="cli")
        await second.until(run_id, "completed")
        assert [(row.id, row.status) for row in second.store.read(approvals.listing)] == [
            (asked.id, "approved")
        ]


async def test_a_run_is_ended_from_another_host_within_100_ms(
    host: Host, hanging: Callable[..., Any]
) -> None:
    took = []
    async with host("host_b", LONG) as second, host("host_a", LONG) as first:
        for attempt in range(3):  # should the machine be busy
            slow = hanging()
            first.tool("note", slow)
            first.script(calls("a"), DONE)
            run_id = await first.background(session_id=f"s{attempt}")
            with anyio.fail_after(5):
                await slow.started.wait()
            began = time.monotonic()
            view = await second.runs.abort_by_person(run_id, by="ann", reason="enough")
            took.append(time.monotonic() - began)
            assert (view.status, view.outcome, view.reason) == ("aborted", "cancelled", "enough")
    assert min(took) < 0.1


async def test_a_pause_at_another_host_holds_at_the_next_safe_point(
    host: Host, hanging: Callable[..., Any]
) -> None:
    slow = hanging()
    async with host("host_b", LONG) as second, host("host_a", LONG) as first:
        first.tool("note", slow)
        for lab in (first, second):
            lab.script(calls("a"), calls("b"), DONE)
        run_id = await first.background()
        with anyio.fail_after(5):
            await slow.started.wait()
        await second.runs.pause_by_person(run_id, by="ann", reason="lunch")
        slow.go_on.set()
        row = await second.until(run_id, "paused")
        assert (row.paused_by, slow.times) == ("person:ann", 1)
        await second.runs.resume_by_person(run_id, by="ann")
        await first.until(run_id, "completed")


async def test_an_answer_at_another_host_is_one_answer_and_the_run_goes_on_at_once(host: Host) -> None:
    async with host("host_b", LONG) as second, host("host_a", LONG) as first:
        first.rule("ask", "lab:note")
        first.script(*[calls(f"c{n}") for n in range(8)], DONE)
        run_id = await first.background()
        took: list[float] = []
        for _ in range(8):
            await until(second.pending)
            (asked,) = second.pending()
            with second.store.watch(f"run:{run_id}") as watch:
                began = time.monotonic()
                await second.gate.decide(asked.id, "approve", by="ann", channel="cli")
                with anyio.fail_after(5):
                    while not any(call.approval_id == asked.id for call in second.calls(run_id)):
                        await watch.changed()
                took.append(time.monotonic() - began)
            with pytest.raises(Conflict):
                await first.gate.decide(asked.id, "deny", by="bob", channel="cli")
        await second.until(run_id, "completed")
    assert sorted(took)[len(took) // 2] < 0.1, took


async def test_autonomy_lowered_at_another_host_holds_for_a_run_that_goes_on(host: Host) -> None:
    async with (
        host("host_b", LONG) as second,
        host("host_a", LONG) as first,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(_follow, first)
        await first.gate.sessions.enter("s-editor", "ann", "editor")
        assert first.gate.sessions.level("s-editor") == "guarded"
        await second.gate.sessions.change("s-editor", "observe", by="ann")
        await until(lambda: first.gate.sessions.level("s-editor") == "observe", 0.5)
        tasks.cancel_scope.cancel()


async def _follow(lab: Any) -> None:
    with lab.store.watch("sessions") as watch:
        while True:
            await watch.changed()
            lab.gate.sessions.forget()


async def test_a_run_that_goes_on_elsewhere_cannot_be_resumed_here_but_waited_for(
    host: Host, hanging: Callable[..., Any]
) -> None:
    slow = hanging()
    async with host("host_b", LONG) as second, host("host_a", LONG) as first:
        first.tool("note", slow)
        first.script(calls("a"), DONE)
        run_id = await first.background()
        with anyio.fail_after(5):
            await slow.started.wait()
        outcome = await second.call("resume_workflow", {"run_id": run_id})
        assert outcome.code == "CONTINUATION_IN_PROGRESS"
        seen: list[str] = []

        async def wait(context: CallContext, arguments: dict[str, Any]) -> Any:
            seen.append((await second.runs.wait(run_id, context=context)).status)

        second.tool("wait", wait)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(second.call, "lab:wait")
            await anyio.sleep(0.02)
            assert seen == []
            slow.go_on.set()
        assert seen == ["completed"]


class Waiting:
    """A driver that waits for a time once, then ends."""

    name = "waiting:run"

    def __init__(self, lab: Any) -> None:
        self._lab = lab

    async def drive(self, run: Any) -> RunResult:
        if "woken" not in run.state:
            run.state["woken"] = True
            raise RunStopped("waiting", wake_at=self._lab.store.now() + 0.2)
        return RunResult("completed", {})


async def test_a_run_that_is_due_is_started_once_among_several_hosts(host: Host) -> None:
    async with host("host_c", LONG) as third, host("host_b", LONG) as second, host("host_a", LONG) as first:
        for lab in (first, second, third):
            lab.drivers["waiting:run"] = Waiting(lab)

        async def start(context: CallContext, arguments: dict[str, Any]) -> Any:
            return await first.runs.start(
                "waiting:run", {}, context=context, session_id=None, background=True
            )

        first.tool("start", start)
        await first.call("lab:start")
        (run_id,) = first.run_ids()
        row = await third.until(run_id, "completed")
        assert row.epoch == 2
        assert (await third.events(run_id)).count("run.running") == 2


async def test_a_host_out_of_touch_for_its_lease_starts_nothing_until_it_has_registered_again(
    host: Host, hanging: Callable[..., Any]
) -> None:
    slow = hanging()
    async with host("host_b", LONG) as second, host("host_a", LONG) as first:
        first.tool("note", slow)
        for lab in (first, second):
            lab.script(calls("a"), DONE)
        run_id = await first.background()
        with anyio.fail_after(5):
            await slow.started.wait()
        first.clock.ahead += LONG  # as after a stop: its timers have not come yet
        refused = await first.call("lab:look")
        assert (refused.code, refused.call_id) == ("TOOL_INTENT_NOT_COMMITTED", None)
        with pytest.raises(PackhostError, match="lost touch"):
            await first.runs.resume_by_person(run_id, by="ann")
        await until(lambda: not first.runs.going)
        assert slow.times == 1
        await first.membership.join()
        assert (await first.call("lab:look")).value == {"echo": {}}
        row = await second.until(run_id, "completed")
        assert (row.epoch, slow.times) == (3, 1)


async def test_a_host_that_misses_its_lease_stops_its_runs_and_registers_again_by_itself(
    host: Host, hanging: Callable[..., Any]
) -> None:
    slow = hanging()
    async with host("host_a") as first:
        first.tool("note", slow, idempotent=True)
        first.script(calls("a"), DONE)
        run_id = await first.background()
        with anyio.fail_after(5):
            await slow.started.wait()
        first.clock.ahead += LEASE
        with pytest.raises(StoreUnavailable):
            first.membership.check()
        await first.when(run_id, lambda row: row.epoch == 3)
        slow.go_on.set()
        await first.until(run_id, "completed")
        assert (await first.events(run_id)).count("run.interrupted") == 1


@pytest.mark.parametrize("kind", STORES[1:])  # on SQLite the local clock is the store's, for one host alone
async def test_a_jump_of_the_local_clock_changes_nothing(
    host: Host, hanging: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = hanging()
    async with host("host_b") as second, host("host_a") as first:
        first.tool("note", slow)
        for lab in (first, second):
            lab.script(calls("a"), DONE)
        run_id = await first.background()
        with anyio.fail_after(5):
            await slow.started.wait()
        real = time.time
        for jump in (86_400.0, -86_400.0):
            monkeypatch.setattr(time, "time", lambda by=jump: real() + by)
            until_now = first.row(run_id).lease_until
            await until(lambda at=until_now: (first.row(run_id).lease_until or 0) > at)
            assert not second.store.read(replicas.overdue)
            assert abs(second.store.now() - real()) < 60
        slow.go_on.set()
        row = await second.until(run_id, "completed")
        assert row.epoch == 1


async def test_of_hosts_that_answer_one_pause_at_once_one_goes_on_with_its_answer(host: Host) -> None:
    rounds = 10
    asked = [
        {"tool_calls": [{"id": f"c{number}", "name": "look_around", "arguments": {}}]}
        for number in range(rounds)
    ]
    tool = {"name": "look_around", "description": "Looks.", "origin": "sdk"}
    tool["parameters_schema"] = {"type": "object"}  # type: ignore[assignment]
    async with host("host_a", LONG) as a, host("host_b", LONG) as b, host("host_c", LONG) as c:
        labs = (a, b, c)
        for lab in labs:
            lab.script(*asked, DONE)
        first = await a.turn(loop=True, client_tools=[tool])
        run_id, standing, winners = first.value["run_id"], first.value, []
        for number in range(rounds):
            came: dict[str, Any] = {}

            async def answer(lab: Any, id: str, checkpoint: str, came: dict[str, Any]) -> None:
                sent = {"run_id": run_id, "checkpoint": checkpoint}
                outputs = {id: {"result": lab.owner}}
                came[lab.owner] = await lab.call("resume_workflow", {**sent, "tool_outputs": outputs})

            with anyio.fail_after(20):
                async with anyio.create_task_group() as callers:
                    for lab in labs:
                        callers.start_soon(answer, lab, f"c{number}", standing["checkpoint"], came)
                    standing = {}
            won = [owner for owner, outcome in came.items() if hasattr(outcome, "value")]
            assert len(won) == 1
            lost = {outcome.code for outcome in came.values() if not hasattr(outcome, "value")}
            assert lost <= {"CONTINUATION_IN_PROGRESS", "RESUME_STATE_CHANGED", "NOT_FOUND"}
            winners += won
            standing = came[won[0]].value
        assert standing["outcome"] == "completed"
        history = a.store.read(sessions.history, a.row(run_id).session_id)
        results = [
            part["content"] for one in history for part in one.message["content"] if "tool_use_id" in part
        ]
        assert results == winners


async def test_no_request_goes_to_a_model_from_a_host_that_may_be_taken_for_lost(provider: Any) -> None:
    def refuse() -> None:
        raise StoreUnavailable("out of touch")

    connection = HostConnection(provider.base_url, None, "x-key", check=refuse)
    with pytest.raises(StoreUnavailable):
        async with connection.post("/v1/messages", b"{}", {}):
            raise AssertionError("it was sent")
    assert provider.received == []
