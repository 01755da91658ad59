"""PostgreSQL that goes away: between two changes, in the middle of one, at the instant of its commit."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import anyio
import pytest
from cutting_proxy import Proxy, proxied
from postgres_server import AVAILABLE, REQUIRED, Server
from tampering import tamper

from packhost.errors import StoreUnavailable
from packhost.store.address import parse_address
from packhost.store.audit import verify_chain
from packhost.store.base import Reading, Tx
from packhost.store.ops import events

if not (AVAILABLE or REQUIRED):
    pytest.skip("PostgreSQL is not installed", allow_module_level=True)

from packhost.store import postgres_connection, postgres_session
from packhost.store.postgres import PostgresStore
from packhost.store.writer import CommitUnknown

pytestmark = [pytest.mark.anyio, pytest.mark.real]


def note(tx: Tx, text: str) -> int:
    return tx.emit("note", {"text": text})


def notes(tx: Reading) -> list[str]:
    return [event.data or "" for event in events.page(tx)]


@pytest.fixture
def proxy(postgres_server: Server) -> Iterator[Proxy]:
    with proxied(postgres_server.port) as proxy:
        yield proxy


Open = Callable[..., PostgresStore]


@pytest.fixture
async def open_store(anyio_backend: str, proxy: Proxy) -> AsyncIterator[Open]:
    opened: list[PostgresStore] = []

    def make(url: str) -> PostgresStore:
        opened.append(PostgresStore(parse_address(url, "ws")))
        return opened[-1]

    yield make
    for store in opened:
        await store.close()


@pytest.fixture
async def store(open_store: Open, postgres_server: Server, proxy: Proxy) -> PostgresStore:
    """A store whose every connection goes through the proxy."""
    return open_store(postgres_server.url(port=proxy.port))


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patience of tenths of a second."""
    for name in ("write", "read"):
        monkeypatch.setitem(postgres_connection._LIMITS, name, (0.2, 0.4))
    monkeypatch.setattr(postgres_connection, "LOCK_WITHIN", 0.1)
    monkeypatch.setattr(postgres_session, "SETTLE_WITHIN", 0.5)


END_BACKENDS = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
    " WHERE application_name='packhost' AND pid<>pg_backend_pid() AND datname=current_database()"
)


async def test_a_connection_that_was_ended_between_two_changes_is_not_missed(store: PostgresStore) -> None:
    await store.write(note, "a")
    for number in range(3):
        tamper(store, END_BACKENDS)
        assert store.read(notes)[0] == '{"text":"a"}'
        assert await store.write(note, "b") == number + 2
    assert store.read(verify_chain).ok


async def test_a_commit_whose_answer_was_lost_stands_and_is_not_run_again(
    store: PostgresStore, proxy: Proxy
) -> None:
    ran: list[int] = []

    def once(tx: Tx, text: str) -> int:
        ran.append(1)
        return tx.emit("note", {"text": text})

    proxy.cut = "reply"
    assert await store.write(once, "a") == 1
    assert proxy.done.is_set()
    assert ran == [1]
    assert await store.write(once, "b") == 2
    assert store.read(notes) == ['{"text":"a"}', '{"text":"b"}']


async def test_a_change_without_an_event_is_settled_by_its_transaction(
    store: PostgresStore, proxy: Proxy
) -> None:
    ran: list[int] = []

    def insert(tx: Tx) -> str:
        ran.append(1)
        tx.execute("INSERT INTO schema_migrations VALUES(?,?,?,?)", (1000 + len(ran), "x", "y", 0.0))
        return "done"

    proxy.cut = "reply"
    assert await store.write(insert) == "done"
    assert ran == [1]


async def test_a_commit_that_never_arrived_is_run_again(store: PostgresStore, proxy: Proxy) -> None:
    ran: list[int] = []

    def twice(tx: Tx, text: str) -> int:
        ran.append(1)
        return tx.emit("note", {"text": text})

    proxy.cut = "commit"
    assert await store.write(twice, "a") == 1
    assert ran == [1, 1]
    assert store.read(notes) == ['{"text":"a"}']


@pytest.mark.parametrize("cut", ["reply", "commit"])
async def test_a_commit_that_cannot_be_settled_is_said_to_be_unknown_and_not_run_again(
    short: None, store: PostgresStore, proxy: Proxy, cut: Any
) -> None:
    ran: list[int] = []

    def once(tx: Tx, text: str) -> int:
        ran.append(1)
        return tx.emit("note", {"text": text})

    proxy.cut, proxy.after = cut, "refuse"
    with pytest.raises(CommitUnknown) as caught:
        await store.write(once, "a")
    assert caught.value.code == "STORE_UNAVAILABLE"
    assert ran == [1]
    proxy.cut = "none"
    with anyio.fail_after(10):
        while not store._reader.connected or not store._writing.connected:
            await anyio.sleep(0.01)
    assert len(store.read(notes)) == (1 if cut == "reply" else 0)
    assert await store.write(note, "b") == len(store.read(notes))


async def test_every_op_of_a_batch_whose_answer_was_lost_keeps_its_own_result(
    store: PostgresStore, proxy: Proxy
) -> None:
    found: dict[str, int] = {}

    async def write(text: str) -> None:
        found[text] = await store.write(note, text)

    proxy.cut = "reply"
    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(write, f"n{number}")
    assert sorted(found.values()) == list(range(1, 21))
    assert store.read(verify_chain).ok


async def test_while_the_database_is_away_everything_fails_at_once_and_then_goes_on(
    short: None, store: PostgresStore, proxy: Proxy
) -> None:
    await store.write(note, "a")
    with store.watch("events") as watch:
        await watch.changed()  # listening
        proxy.refuse()
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                await store.write(note, "lost")
            with pytest.raises(StoreUnavailable):
                store.read(notes)
        began = time.monotonic()
        for _ in range(20):
            with pytest.raises(StoreUnavailable) as caught:
                await store.write(note, "lost")
            with pytest.raises(StoreUnavailable):
                store.read(notes)
        assert time.monotonic() - began < 1
        assert "goes on trying" in caught.value.hint
        store.post(note, "lost")
        await store.flush()
        proxy.cut = "none"
        with anyio.fail_after(10):
            await watch.changed()  # whatever came meanwhile is looked for again
            while not store._writing.connected or not store._reader.connected:
                await anyio.sleep(0.01)
    assert await store.write(note, "b") == 2
    assert store.read(notes) == ['{"text":"a"}', '{"text":"b"}']


async def test_a_database_that_says_nothing_holds_nobody_for_long(
    short: None, store: PostgresStore, proxy: Proxy
) -> None:
    await store.write(note, "a")
    store.read(notes)
    proxy.cut = "stall"
    began = time.monotonic()
    with pytest.raises(StoreUnavailable):
        store.read(notes)
    with pytest.raises(StoreUnavailable):
        await store.write(note, "lost")
    assert time.monotonic() - began < 8
    proxy.cut = "none"


async def test_a_lock_that_is_never_let_go_is_an_error_in_bounded_time(
    short: None, open_store: Open, postgres_server: Server
) -> None:
    import psycopg

    store = open_store(postgres_server.url())
    with psycopg.connect(postgres_server.admin("test")) as other:
        other.execute("SELECT pg_advisory_lock(%s)", (store.address.lock,))
        began = time.monotonic()
        with pytest.raises(StoreUnavailable) as caught:
            await store.write(note, "a")
        assert time.monotonic() - began < 2
        assert "writers' lock" in caught.value.hint
        assert store.read(notes) == []
    assert await store.write(note, "a") == 1


HOLDER = """
import os, signal, sys, time
from packhost.store.address import parse_address
from packhost.store.postgres import PostgresStore

ran = []

def stop(tx):
    number = tx.emit("note", {"text": "stopped"})
    ran.append(number)
    if len(ran) == 1:
        print("held", flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(1)  # whichever thread takes the signal: this one goes no further
    return number

import asyncio
async def main():
    store = PostgresStore(parse_address(sys.argv[1], "ws"))
    print(await store.write(stop), flush=True)
    print(await store.write(lambda tx: tx.emit("note", {"text": "late"})), flush=True)
    await store.close()
asyncio.run(main())
"""


async def test_a_host_that_is_stopped_with_the_lock_gives_way_and_comes_back_behind_the_others(
    open_store: Open, postgres_server: Server
) -> None:
    url = postgres_server.url()
    store = open_store(url)
    await store.write(note, "a")
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, url], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        began = time.monotonic()
        assert await store.write(note, "b") == 2
        assert time.monotonic() - began < 2 * postgres_connection.LOCK_WITHIN
        holder.send_signal(signal.SIGCONT)
        said, _ = holder.communicate(timeout=30)
    finally:
        holder.kill()
        holder.communicate()
    assert said.split() == ["3", "4"]  # what it had begun was undone, and run again behind the other's
    assert store.read(notes)[1:] == ['{"text":"b"}', '{"text":"stopped"}', '{"text":"late"}']
    assert store.read(verify_chain).ok


async def test_a_database_that_crashes_and_starts_again_loses_nothing_acknowledged(
    open_store: Open, own_postgres: Server, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(own_postgres.url())
    acknowledged: list[int] = []
    ended = anyio.Event()

    async def caller(number: int) -> None:
        while not ended.is_set():
            try:
                acknowledged.append(await store.write(note, f"c{number}"))
            except StoreUnavailable:
                await anyio.sleep(0.01)

    with caplog.at_level(logging.ERROR):
        async with anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(caller, number)
            for _ in range(2):
                before = len(acknowledged)
                await anyio.to_thread.run_sync(own_postgres.stop, "immediate")
                await anyio.to_thread.run_sync(own_postgres.start)
                with anyio.fail_after(30):
                    while len(acknowledged) < before + 50:
                        await anyio.sleep(0.01)
            ended.set()
    report = store.read(verify_chain)
    assert report.ok
    assert len(set(acknowledged)) == len(acknowledged)
    assert max(acknowledged) <= report.count
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
