"""Hosts that share a store: registered, renewed, gone, and what then becomes of what they held."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import anyio
import pytest

from packhost.errors import ConfigInvalid, Conflict
from packhost.store.base import Store
from packhost.store.ops import calls, events, executions, replicas
from packhost.store.ops.replicas import NewReplica

pytestmark = pytest.mark.anyio
Make = Callable[..., Any]
A = NewReplica("host_a", "north", 1, "1.0", "key", "same")
B = replace(A, id="host_b", host="south", pid=2)
GONE = -1.0
"""A lease that has passed as soon as it is given."""


async def join(store: Store, new: NewReplica, ttl: float = 60.0) -> Any:
    return await store.write(replicas.join, new, ttl, shared=True)


async def claimed(store: Store, new_run: Make, owner: str, ttl: float = 60.0, **more: Any) -> str:
    run = new_run(session_id=more.pop("session_id", "s"))
    await store.write(executions.create, run)
    await store.write(executions.claim, run.id, owner, ttl, 0, **more)
    return str(run.id)


async def types(store: Store, run_id: str | None = None) -> list[str]:
    await store.flush()
    return [event.type for event in store.read(events.page, 0, run_id, 1000)]


async def test_each_replica_sees_the_others_and_is_gone_once_it_left(store: Store) -> None:
    assert await join(store, A) == ()
    (other,) = await join(store, B)
    assert (other.id, other.host, other.pid, other.settings_sha, other.draining) == (
        "host_a",
        "north",
        1,
        "same",
        False,
    )
    await store.write(replicas.drain, "host_a")
    assert [row.draining for row in store.read(replicas.listing)] == [True, False]
    assert await store.write(replicas.leave, "host_a", told=True) == ()
    assert [row.id for row in store.read(replicas.listing)] == ["host_b"]
    assert await types(store) == ["replica.joined", "replica.joined", "replica.left"]


async def test_a_host_that_is_there_for_one_command_leaves_no_event(store: Store) -> None:
    await join(store, replace(A, serving=False))
    assert await store.write(replicas.leave, "host_a", told=False) == ()
    assert store.read(replicas.listing) == ()
    assert await types(store) == []


async def test_a_replica_with_another_key_is_refused(store: Store) -> None:
    await join(store, A)
    with pytest.raises(ConfigInvalid, match="key") as caught:
        await join(store, replace(B, key_sha="another"))
    assert "PACKHOST_HOST_KEY_FILE" in caught.value.hint
    assert [row.id for row in store.read(replicas.listing)] == ["host_a"]


async def test_one_renewal_prolongs_the_replica_and_all_its_runs(store: Store, new_run: Make) -> None:
    await join(store, A)
    runs = {await claimed(store, new_run, "host_a", 1.0, session_id=f"s{n}") for n in range(3)}
    other = await claimed(store, new_run, "host_b", 1.0, session_id="s9")
    kept = await store.write(replicas.renew, "host_a", 60.0, "changed")
    assert set(kept or ()) == runs
    (row,) = store.read(replicas.listing)
    assert row.settings_sha == "changed"
    until = {id: store.read(executions.get, id).lease_until or 0 for id in (*runs, other)}
    assert all(until[id] > until[other] + 30 for id in runs)


async def test_a_replica_whose_lease_has_passed_must_join_again(store: Store, new_run: Make) -> None:
    await join(store, A, GONE)
    run = await claimed(store, new_run, "host_a")
    before = store.read(executions.get, run)
    assert await store.write(replicas.renew, "host_a", 60.0) is None
    assert store.read(executions.get, run) == before
    await join(store, A)
    row = store.read(executions.get, run)
    assert (row.status, row.epoch, row.owner) == ("interrupted", 2, None)


async def test_what_a_lost_replica_held_is_taken_away_and_what_a_live_one_holds_is_not(
    store: Store, new_run: Make, new_call: Make
) -> None:
    await join(store, A, GONE)
    await join(store, B)
    lost = await claimed(store, new_run, "host_a", session_id="s1")
    kept = await claimed(store, new_run, "host_b", session_id="s2")
    write = new_call(execution_id=lost, owner="host_a")
    look = new_call(execution_id=lost, owner="host_a", idempotent=True)
    direct, other = new_call(owner="host_a"), new_call(owner="host_b")
    for call in (write, look, direct, other):
        await store.write(calls.begin, call)
    assert store.read(replicas.overdue)

    found = await store.write(replicas.reap, "host_b")

    assert set(found.runs) == {lost, direct.execution_id}
    assert not found.more
    row = store.read(executions.get, lost)
    assert (row.status, row.owner, row.epoch) == ("interrupted", None, 2)
    ended = {call.id: (call.status, call.code) for call in store.read(calls.of_execution, lost)}
    assert ended == {write.id: ("unknown", "EFFECTS_UNKNOWN"), look.id: ("error", "CANCELLED")}
    assert store.read(executions.get, direct.execution_id).outcome == "EFFECTS_UNKNOWN"
    assert store.read(executions.get, kept).status == "running"
    assert store.read(calls.by_id, other.id).status == "started"
    assert [row.id for row in store.read(replicas.listing)] == ["host_b"]
    assert not store.read(replicas.overdue)
    assert "replica.lost" in await types(store)


async def test_a_run_whose_own_lease_passed_is_taken_from_a_live_replica(store: Store, new_run: Make) -> None:
    await join(store, A)
    late = await claimed(store, new_run, "host_a", GONE)
    assert (await store.write(replicas.reap, "host_b")).runs == (late,)


async def test_reaping_twice_and_by_two_at_once_changes_each_run_once(store: Store, new_run: Make) -> None:
    await join(store, A, GONE)
    runs = [await claimed(store, new_run, "host_a", session_id=f"s{n}") for n in range(8)]
    found: list[str] = []

    async def reap(by: str) -> None:
        found.extend((await store.write(replicas.reap, by)).runs)

    async with anyio.create_task_group() as tasks:
        for number in range(4):
            tasks.start_soon(reap, f"host_{number}")
    assert sorted(found) == sorted(runs)
    assert {store.read(executions.get, run).epoch for run in runs} == {2}
    before = store.read(events.head)
    await store.write(replicas.reap, "host_b")
    assert store.read(events.head) == before


async def test_the_longest_overdue_come_first_and_a_batch_is_bounded(store: Store, new_run: Make) -> None:
    runs = [await claimed(store, new_run, "host_a", -float(10 * n), session_id=f"s{n}") for n in (1, 3, 2)]
    first = await store.write(replicas.reap, "host_b", 2)
    assert (first.runs, first.more) == ((runs[1], runs[2]), True)
    rest = await store.write(replicas.reap, "host_b", 2)
    assert (rest.runs, rest.more) == ((runs[0],), False)


async def test_a_zombie_starts_nothing_and_its_late_outcome_is_a_fact(
    store: Store, new_run: Make, new_call: Make
) -> None:
    await join(store, A, GONE)
    run = await claimed(store, new_run, "host_a")
    before = new_call(execution_id=run, owner="host_a")
    await store.write(calls.begin, before)
    await store.write(replicas.reap, "host_b")
    epoch = await store.write(executions.claim, run, "host_b", 60.0, 2)
    assert epoch == 3

    with pytest.raises(Conflict) as caught:
        await store.write(calls.begin, new_call(execution_id=run, owner="host_a"))
    assert caught.value.code == "CONTINUATION_IN_PROGRESS"
    with pytest.raises(Conflict):
        await store.write(executions.save_state, run, "host_a", 1, "{}")
    with pytest.raises(Conflict):
        await store.write(executions.finish, run, "host_a", 1, "completed", "end")
    await store.write(calls.end, before.id, "ok", None, '"done"')
    assert [call.status for call in store.read(calls.of_execution, run)] == ["ok"]
    assert store.read(executions.get, run).epoch == 3


async def test_leaving_hands_over_what_is_held_without_a_wait(store: Store, new_run: Make) -> None:
    await join(store, A)
    run = await claimed(store, new_run, "host_a", background=True)
    with store.watch(executions.INTERRUPTED) as watch, anyio.fail_after(5):
        assert await store.write(replicas.leave, "host_a", told=True) == (run,)
        await watch.changed()
    assert store.read(replicas.resumable, ["turn"]) == ((run, 2),)


@pytest.mark.parametrize("asked", ["nothing", "pause", "abort"])
async def test_a_run_is_handed_over_with_its_state_unless_it_is_to_pause_or_end(
    store: Store, new_run: Make, asked: str
) -> None:
    run = await claimed(store, new_run, "host_a", background=True)
    if asked != "nothing":
        op = executions.request_pause if asked == "pause" else executions.request_abort
        await store.write(op, run, "person:ann")
    left = await store.write(executions.hand_over, run, "host_a", 1, '{"turn":3}')
    row = store.read(executions.get, run)
    assert left == row.status == {"nothing": "interrupted", "pause": "paused", "abort": "aborted"}[asked]
    assert row.owner is None
    if asked == "nothing":
        assert (row.state_json, row.epoch) == ('{"turn":3}', 2)


async def test_only_runs_in_the_background_that_nobody_paused_go_on_by_themselves(
    store: Store, new_run: Make
) -> None:
    made = {}
    for name, background in (("alone", True), ("waited for", False), ("held", True)):
        made[name] = await claimed(store, new_run, "host_a", GONE, session_id=name, background=background)
    await store.write(executions.request_pause, made["held"], "person:ann", "look")
    await store.write(replicas.reap, "host_b")
    assert [id for id, _ in store.read(replicas.resumable, ["turn"])] == [made["alone"]]
    assert store.read(replicas.resumable, ["other"]) == ()
    assert store.read(replicas.resumable, []) == ()


async def test_what_is_resumed_in_the_background_once_stays_there(store: Store, new_run: Make) -> None:
    run = await claimed(store, new_run, "host_a")
    for owner, epoch, background in (("host_b", 1, True), ("host_c", 2, False)):
        await store.write(executions.mark_paused, run, store.read(executions.get, run).owner, epoch)
        await store.write(executions.claim, run, owner, 60.0, epoch, background=background)
    assert store.read(executions.get, run).background is True


async def test_a_run_that_ends_its_hosts_again_and_again_is_held_back(store: Store, new_run: Make) -> None:
    run = await claimed(store, new_run, "host_a", GONE, background=True)
    for number in range(1, replicas.IN_A_ROW + 1):
        assert not store.read(replicas.futile, run)
        await store.write(replicas.reap, "host_b")
        if number < replicas.IN_A_ROW:
            await store.write(executions.claim, run, "host_a", GONE, 2 * number)
    assert store.read(replicas.futile, run)
    epoch = store.read(executions.get, run).epoch
    await store.write(replicas.hold_back, run, epoch - 1, "host_b")
    assert store.read(replicas.resumable, ["turn"]) == ((run, epoch),)
    await store.write(replicas.hold_back, run, epoch, "host_b")
    assert store.read(replicas.resumable, ["turn"]) == ()
    assert (await types(store, run))[-1] == "run.held_back"
    await store.write(executions.claim, run, "host_b", 60.0, epoch, background=True)


@pytest.mark.parametrize(
    ("events", "count"),
    [
        ([], 0),
        (["run.interrupted", "run.running", "run.interrupted"], 2),
        (["run.interrupted", "call.ok", "run.interrupted"], 1),
        (["run.interrupted", "session.messages", "run.interrupted"], 1),
        (["call.error", "run.interrupted"], 0),
        (["handed over", "run.interrupted", "handed over"], 1),
    ],
)
def test_what_a_run_got_done_forgives_what_came_before(events: list[str], count: int) -> None:
    rows = [
        ("run.interrupted", '{"handed_over":true}') if kind == "handed over" else (kind, "{}")
        for kind in events
    ]
    assert replicas.fruitless(rows) == count


async def test_where_one_host_has_the_store_alone_everything_of_another_is_an_orphan(
    store: Store, new_run: Make
) -> None:
    await store.write(replicas.join, A, 60.0, shared=False)
    run = await claimed(store, new_run, "host_a")
    assert await store.write(replicas.join, replace(B, key_sha="new"), 60.0, shared=False) == ()
    assert store.read(executions.get, run).status == "interrupted"
    assert [row.id for row in store.read(replicas.listing)] == ["host_b"]
    assert "replica.joined" not in await types(store)


@pytest.mark.parametrize("setting", ["sqlite"])  # PostgreSQL takes an index or not by the size of the table
async def test_what_is_looked_for_again_and_again_is_found_by_an_index(store: Store) -> None:
    looks = {
        "UPDATE executions SET lease_until=1 WHERE status IN ('running','queued') AND owner='a'"
        " AND status='running' AND lease_until>5": "executions_live",
        "SELECT id FROM executions WHERE status IN ('running','queued') AND owner='a'"
        " AND abort_requested=1": "executions_live",
        "SELECT id FROM executions WHERE status='interrupted' AND background=1 AND paused_by IS NULL"
        " ORDER BY id": "executions_resumable",
        "SELECT id FROM executions WHERE status='paused' AND paused_by IS NULL AND waiting_on>='time:'"
        " AND waiting_on<'time;' ORDER BY waiting_on, id": "executions_waiting",
    }
    for statement, index in looks.items():
        (plan,) = store.read(lambda tx, text=statement: tx.execute(f"EXPLAIN QUERY PLAN {text}").fetchall())
        assert index in plan[3], plan
