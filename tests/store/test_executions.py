"""A run's lifecycle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from packhost.errors import Conflict, NotFound
from packhost.store.base import Store
from packhost.store.ops import approvals, calls, events, executions

pytestmark = pytest.mark.anyio
Make = Callable[..., Any]


async def claimed(store: Store, new_run: Make, **changes: Any) -> str:
    run = new_run(**changes)
    await store.write(executions.create, run)
    await store.write(executions.claim, run.id, "host-1", 15.0, 0)
    return str(run.id)


async def test_a_new_run_is_queued_with_its_request(store: Store, new_run: Make) -> None:
    run = new_run(agent="coder", parent="run_0", spec_json='{"messages":[]}')
    await store.write(executions.create, run)
    row = store.read(executions.get, run.id)
    assert (row.status, row.epoch, row.owner, row.outcome) == ("queued", 0, None, None)
    assert (row.workspace, row.agent, row.parent, row.spec_json) == (
        store.workspace,
        "coder",
        "run_0",
        run.spec_json,
    )
    assert row.pause_requested is False
    assert row.abort_requested is False


async def test_a_runs_id_can_be_used_once(store: Store, new_run: Make) -> None:
    run = new_run()
    await store.write(executions.create, run)
    with pytest.raises(Conflict):
        await store.write(executions.create, run)


async def test_of_two_claims_one_wins(store: Store, new_run: Make) -> None:
    run = new_run()
    await store.write(executions.create, run)
    won: list[str] = []
    lost: list[Conflict] = []

    async def claim(owner: str) -> None:
        try:
            assert await store.write(executions.claim, run.id, owner, 15.0, 0) == 1
            won.append(owner)
        except Conflict as error:
            lost.append(error)

    async with anyio.create_task_group() as tasks:
        for number in range(8):
            tasks.start_soon(claim, f"host-{number}")
    assert len(won) == 1
    assert store.read(executions.get, run.id).owner == won[0]
    assert {error.code for error in lost} == {"CONTINUATION_IN_PROGRESS"}
    assert len(lost) == 7


async def test_a_claim_with_a_stale_epoch_says_what_it_found(store: Store, new_run: Make) -> None:
    id = await claimed(store, new_run)
    await store.write(executions.mark_paused, id, "host-1", 1)
    with pytest.raises(Conflict) as caught:
        await store.write(executions.claim, id, "host-2", 15.0, 0)
    assert caught.value.code == "RESUME_STATE_CHANGED"
    assert caught.value.data == {"status": "paused", "epoch": 1}


async def test_what_does_not_exist_is_not_found(store: Store) -> None:
    with pytest.raises(NotFound):
        await store.write(executions.claim, "run_none", "host-1", 15.0, 0)
    with pytest.raises(NotFound):
        store.read(executions.get, "run_none")


@pytest.mark.parametrize(("owner", "epoch"), [("host-2", 1), ("host-1", 2)])
async def test_an_overtaken_holder_can_write_nothing(
    store: Store, new_run: Make, new_call: Make, owner: str, epoch: int
) -> None:
    id = await claimed(store, new_run)
    before = store.read(events.head)
    call = new_call(execution_id=id, owner=owner, epoch=epoch)
    with pytest.raises(Conflict):
        await store.write(executions.save_state, id, owner, epoch, "{}")
    with pytest.raises(Conflict):
        await store.write(executions.set_waiting, id, owner, epoch, "approval:x")
    with pytest.raises(Conflict):
        await store.write(executions.mark_paused, id, owner, epoch)
    with pytest.raises(Conflict):
        await store.write(executions.finish, id, owner, epoch, "completed", "end_turn")
    with pytest.raises(Conflict):
        await store.write(calls.begin, call)
    assert store.read(events.head) == before


async def test_a_paused_run_is_resumed_from_its_state(store: Store, new_run: Make) -> None:
    id = await claimed(store, new_run)
    assert await store.write(executions.request_pause, id, "person", "look first") == "running"
    asked = store.read(executions.get, id)
    assert (asked.pause_requested, asked.paused_by, asked.reason) == (True, "person", "look first")
    await store.write(executions.save_state, id, "host-1", 1, '{"turn":2}')
    await store.write(executions.mark_paused, id, "host-1", 1, waiting_on="person")
    paused = store.read(executions.get, id)
    assert (paused.status, paused.owner, paused.lease_until) == ("paused", None, None)
    assert (paused.state_json, paused.paused_by, paused.waiting_on) == ('{"turn":2}', "person", "person")
    assert await store.write(executions.claim, id, "host-2", 15.0, 1) == 2
    running = store.read(executions.get, id)
    assert (running.paused_by, running.waiting_on, running.reason) == (None, None, None)
    assert running.pause_requested is False
    assert running.state_json == '{"turn":2}'


async def test_asking_twice_for_a_pause_leaves_one_event(store: Store, new_run: Make) -> None:
    id = await claimed(store, new_run)
    await store.write(executions.request_pause, id, "person")
    await store.write(executions.request_pause, id, "another")
    assert store.read(executions.get, id).paused_by == "person"
    found = [event.type for event in store.read(events.page, 0, id)]
    assert found.count("run.pause_requested") == 1


async def test_a_finished_run_keeps_outcome_and_result(store: Store, new_run: Make) -> None:
    id = await claimed(store, new_run)
    await store.write(executions.finish, id, "host-1", 1, "completed", "end_turn", '{"text":"done"}')
    row = store.read(executions.get, id)
    assert (row.status, row.outcome, row.result_json) == ("completed", "end_turn", '{"text":"done"}')
    assert row.ended
    assert row.ended_at is not None
    assert row.owner is None
    for op in (executions.request_pause, executions.request_abort):
        with pytest.raises(Conflict):
            await store.write(op, id, "person")


async def test_a_run_asked_to_abort_starts_no_further_call(
    store: Store, new_run: Make, new_call: Make
) -> None:
    id = await claimed(store, new_run)
    assert await store.write(executions.request_abort, id, "person", "enough") == "running"
    with pytest.raises(Conflict, match="being aborted"):
        await store.write(calls.begin, new_call(execution_id=id))
    await store.write(executions.finish, id, "host-1", 1, "aborted", "aborted")
    row = store.read(executions.get, id)
    assert (row.status, row.reason) == ("aborted", "enough")


async def test_a_run_asked_to_abort_ends_rather_than_pauses(store: Store, new_run: Make) -> None:
    id = await claimed(store, new_run)
    await store.write(executions.request_abort, id, "person")
    assert await store.write(executions.mark_paused, id, "host-1", 1) == "aborted"
    assert store.read(executions.get, id).status == "aborted"


async def test_a_run_asked_to_abort_ends_when_its_host_is_gone(
    store: Store, new_run: Make, new_approval: Make
) -> None:
    id = await claimed(store, new_run)
    asked = await store.write(approvals.request, new_approval(run_id=id, execution_id=id))
    await store.write(executions.request_abort, id, "person")
    assert await store.write(executions.interrupt_orphans, "host-2") == (id,)
    row = store.read(executions.get, id)
    assert (row.status, row.outcome) == ("aborted", "aborted")
    assert store.read(approvals.get, asked.id).status == "cancelled"
    assert row.ended_at is not None


@pytest.mark.parametrize("paused", [True, False])
async def test_a_run_that_nobody_holds_is_aborted_at_once(
    store: Store, new_run: Make, new_approval: Make, paused: bool
) -> None:
    run = new_run()
    await store.write(executions.create, run)
    if paused:
        await store.write(executions.claim, run.id, "host-1", 15.0, 0)
        await store.write(executions.mark_paused, run.id, "host-1", 1)
    asked = await store.write(approvals.request, new_approval(run_id=run.id, execution_id=run.id))
    assert await store.write(executions.request_abort, run.id, "person") == "aborted"
    assert store.read(executions.get, run.id).status == "aborted"
    assert store.read(approvals.get, asked.id).status == "cancelled"
    with pytest.raises(Conflict):
        await store.write(executions.claim, run.id, "host-1", 15.0, 1 if paused else 0)


async def test_a_new_host_takes_over_what_another_left(store: Store, new_run: Make, new_call: Make) -> None:
    run = await claimed(store, new_run)
    write, look = new_call(execution_id=run), new_call(execution_id=run, idempotent=True)
    done, direct, direct_look = new_call(execution_id=run), new_call(), new_call(idempotent=True)
    for call in (write, look, done, direct, direct_look):
        await store.write(calls.begin, call)
    await store.write(calls.end, done.id, "ok")
    queued = new_run()
    await store.write(executions.create, queued)

    taken = await store.write(executions.interrupt_orphans, "host-2")

    assert set(taken) == {run, queued.id, direct.execution_id, direct_look.execution_id}
    row = store.read(executions.get, run)
    assert (row.status, row.owner, row.epoch, row.ended_at) == ("interrupted", None, 2, None)
    assert store.read(executions.get, queued.id).status == "interrupted"
    found = {call.id: (call.status, call.code) for call in store.read(calls.of_execution, run)}
    assert found == {
        write.id: ("unknown", "EFFECTS_UNKNOWN"),
        look.id: ("error", "CANCELLED"),
        done.id: ("ok", None),
    }
    lost = store.read(executions.get, direct.execution_id)
    assert (lost.status, lost.outcome) == ("failed", "EFFECTS_UNKNOWN")
    assert store.read(executions.get, direct_look.execution_id).outcome == "CANCELLED"
    assert await store.write(executions.interrupt_orphans, "host-2") == ()
    assert await store.write(executions.claim, run, "host-2", 15.0, 2) == 3


async def test_a_host_leaves_its_own_runs_alone(store: Store, new_run: Make) -> None:
    id = await claimed(store, new_run)
    assert await store.write(executions.interrupt_orphans, "host-1") == ()
    assert store.read(executions.get, id).status == "running"


async def test_a_lease_is_renewed_only_while_it_holds(store: Store, new_run: Make) -> None:
    held = await claimed(store, new_run)
    late = new_run()
    await store.write(executions.create, late)
    await store.write(executions.claim, late.id, "host-1", -1.0, 0)
    before = store.read(executions.get, held).lease_until
    assert before is not None
    assert await store.write(executions.renew, "host-1", 60.0) == (held,)
    after = store.read(executions.get, held).lease_until
    assert after is not None
    assert after > before + 30


async def test_runs_are_listed_newest_first_a_page_at_a_time(
    store: Store, new_run: Make, new_call: Make
) -> None:
    made = [new_run(id=f"run_{number}") for number in range(5)]
    for run in made:
        await store.write(executions.create, run)
    direct = new_call()
    await store.write(calls.begin, direct)
    every = [row.id for row in store.read(executions.listing)]
    assert set(every) == {direct.execution_id, *(run.id for run in made)}
    runs = [row.id for row in store.read(executions.listing, direct=False)]
    assert runs == ["run_4", "run_3", "run_2", "run_1", "run_0"]
    page = store.read(executions.listing, 2, "run_3", "turn")
    assert [row.id for row in page] == ["run_2", "run_1"]
    assert [row.id for row in store.read(executions.listing, kind="call")] == [direct.execution_id]


async def test_every_change_of_a_run_is_an_event_with_who_did_it(store: Store, new_run: Make) -> None:
    id = await claimed(store, new_run)
    await store.write(executions.set_waiting, id, "host-1", 1, "approval:x")
    await store.write(executions.request_pause, id, "person")
    await store.write(executions.mark_paused, id, "host-1", 1)
    await store.write(executions.request_abort, id, "person")
    found = [(event.type, event.actor) for event in store.read(events.page, 0, id)]
    assert found == [
        ("run.queued", "me"),
        ("run.running", "host-1"),
        ("run.waiting", "host-1"),
        ("run.pause_requested", "person"),
        ("run.paused", "host-1"),
        ("run.aborted", "person"),
    ]
