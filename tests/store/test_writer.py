"""What a write promises: order, isolation, cancellation, back-pressure."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from packhost.errors import Conflict, StoreUnavailable
from packhost.store.audit import verify_chain
from packhost.store.base import Reading, Store, Tx
from packhost.store.ops import calls, events, executions, sessions
from packhost.store.sqlite import SqliteStore

pytestmark = pytest.mark.anyio
Make = Callable[..., Any]


def note(tx: Tx, text: str) -> int:
    return tx.emit("note", {"text": text})


def notes(tx: Reading) -> list[str]:
    return [event.data or "" for event in events.page(tx)]


def poison(tx: Tx, error: BaseException) -> None:
    tx.emit("note", {"text": "half done"})
    raise error


async def test_a_write_can_be_read_when_it_returns(store: Store) -> None:
    assert await store.write(note, "a") == 1
    assert store.read(notes) == ['{"text":"a"}']


@pytest.mark.parametrize(
    "error", [ValueError("bug"), Conflict("late"), StopIteration(), asyncio.CancelledError(), SystemExit(3)]
)
async def test_a_poisonous_op_fails_alone(store: Store, error: BaseException) -> None:
    gate = threading.Event()
    outcomes: dict[str, object] = {}

    async def run(name: str, op: Callable[..., Any], *args: Any) -> None:
        try:
            outcomes[name] = await store.write(op, *args)
        except BaseException as caught:
            outcomes[name] = caught

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, "first", lambda tx: gate.wait(5))
            await anyio.lowlevel.checkpoint()
            for name in ("a", "b"):
                tasks.start_soon(run, name, note, name)
            tasks.start_soon(run, "poison", poison, error)
            for name in ("c", "d"):
                tasks.start_soon(run, name, note, name)
            await anyio.lowlevel.checkpoint()
            gate.set()
    assert isinstance(outcomes["poison"], RuntimeError if isinstance(error, StopIteration) else type(error))
    assert [outcomes[name] for name in "abcd"] == [1, 2, 3, 4]
    assert store.read(verify_chain).ok
    assert store.read(notes) == [f'{{"text":"{name}"}}' for name in "abcd"]


async def test_an_op_that_breaks_a_constraint_conflicts(store: Store, new_call: Make) -> None:
    first = new_call()
    await store.write(calls.begin, first)
    with pytest.raises(Conflict, match="collides"):
        await store.write(calls.begin, new_call(id=first.id))
    with pytest.raises(Conflict, match="collides"):
        await store.write(
            lambda tx: tx.execute(
                "INSERT INTO session_messages(session_id, seq, message_json) VALUES('none', 1, '1')"
            )
        )
    assert await store.write(note, "alive") == 2


async def test_a_cancelled_writer_leaves_after_its_op(store: Store) -> None:
    gate, started = threading.Event(), threading.Event()
    after: list[str] = []

    def slow(tx: Tx) -> None:
        started.set()
        gate.wait(5)
        note(tx, "done")

    async def writing() -> None:
        await store.write(slow)
        after.append("went on")

    task = asyncio.create_task(writing())
    with anyio.fail_after(5):
        await anyio.to_thread.run_sync(started.wait)
        task.cancel()
        await anyio.lowlevel.checkpoint()
        assert not task.done()
        gate.set()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert after == []
    assert store.read(notes) == ['{"text":"done"}']


async def test_a_cancelled_scope_is_left_after_the_op(store: Store) -> None:
    gate = threading.Event()
    after: list[str] = []
    waiting: list[asyncio.Task[None] | None] = []

    def slow(tx: Tx) -> None:
        gate.wait(5)
        note(tx, "done")

    async def writing(scope: anyio.CancelScope) -> None:
        waiting.append(asyncio.current_task())
        with scope:
            await store.write(slow)
            after.append("went on")

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            scope = anyio.CancelScope()
            tasks.start_soon(writing, scope)
            await anyio.lowlevel.checkpoint()
            scope.cancel()
            for _ in range(3):
                await anyio.lowlevel.checkpoint()
            (task,) = waiting
            assert task is not None
            assert task.cancelling() == 0, "the event loop would spin until the commit"
            gate.set()
    assert scope.cancelled_caught
    assert after == []
    assert store.read(notes) == ['{"text":"done"}']


async def test_posted_ops_keep_their_place_before_a_later_write(store: Store) -> None:
    for text in ("a", "b"):
        assert store.post(note, text) is None
    assert await store.write(note, "c") == 3
    assert store.read(notes) == [f'{{"text":"{text}"}}' for text in "abc"]


async def test_a_posted_op_is_committed_without_a_further_write(store: Store) -> None:
    with store.watch("events") as watch, anyio.fail_after(5):
        store.post(note, "a")
        await watch.changed()
    assert store.read(notes) == ['{"text":"a"}']


async def test_a_posted_op_that_fails_is_logged_and_harms_no_other(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "packhost"):
        store.post(poison, ValueError("bug"))
        store.post(executions.request_abort, "run_none", "me")
        store.post(note, "kept")
        await store.flush()
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]
    assert store.read(notes) == ['{"text":"kept"}']


async def test_posting_more_than_fits_gives_something_to_wait_for(anyio_backend: str, tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db", "ws", max_posted=3)
    gate = threading.Event()
    store.post(lambda tx: gate.wait(5))
    assert [store.post(note, text) for text in "ab"] == [None, None]
    full = store.post(poison, ValueError("never raised to the one who waits"))
    assert full is not None
    gate.set()
    with anyio.fail_after(5):
        await full
        await store.flush()
    assert store.post(note, "c") is None
    await store.close()


async def test_closing_commits_what_was_posted(anyio_backend: str, tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db", "ws")
    store.post(note, "last")
    await store.close()
    await store.close()
    with pytest.raises(StoreUnavailable):
        await store.write(note, "too late")
    with pytest.raises(StoreUnavailable):
        store.post(note, "too late")
    with pytest.raises(StoreUnavailable):
        store.read(notes)
    again = SqliteStore(tmp_path / "store.db", "ws")
    assert again.read(notes) == ['{"text":"last"}']
    await again.close()


async def test_a_watch_sees_its_topic_alone(store: Store, new_run: Make) -> None:
    run, other = new_run(), new_run()
    with store.watch(f"run:{run.id}") as watch:
        await store.write(executions.create, other)
        await store.write(sessions.open, "s", "me", "code", "guarded")
        with anyio.move_on_after(0) as scope:
            await watch.changed()
        assert scope.cancelled_caught
        await store.write(executions.create, run)
        with anyio.fail_after(5):
            await watch.changed()


async def test_an_op_that_was_rolled_back_wakes_nobody(store: Store) -> None:
    with store.watch("events") as watch:
        with pytest.raises(ValueError, match="bug"):
            await store.write(poison, ValueError("bug"))
        await store.flush()
        with anyio.move_on_after(0) as scope:
            await watch.changed()
        assert scope.cancelled_caught


async def test_a_reader_cannot_write(store: Store) -> None:
    with pytest.raises(StoreUnavailable):
        store.read(lambda tx: tx.execute("DELETE FROM events"))
    assert store.read(events.head).id == 0


async def test_a_snapshot_cannot_write(store: Store) -> None:
    def erase() -> None:
        with store.snapshot() as view:
            view.execute("DELETE FROM events")

    with pytest.raises(StoreUnavailable):
        erase()


async def test_a_snapshot_lets_its_users_own_error_through(store: Store) -> None:
    def leave() -> None:
        with store.snapshot():
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        leave()


async def test_a_snapshot_stays_as_it_was(store: Store) -> None:
    await store.write(note, "a")
    with store.snapshot() as view:
        assert events.head(view).id == 1
        await store.write(note, "b")
        assert events.head(view).id == 1
    assert store.read(events.head).id == 2


async def test_many_callers_leave_one_chain_without_gaps(store: Store, new_call: Make) -> None:
    async def caller() -> None:
        for _ in range(10):
            call = new_call()
            await store.write(calls.begin, call)
            await store.write(calls.end, call.id, "ok", finish_execution=True)

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            for _ in range(32):
                tasks.start_soon(caller)
    report = store.read(verify_chain)
    assert (report.count, report.broken) == (640, None)
