"""What PostgreSQL brings with it: several hosts, its clock, texts that it cannot hold."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from postgres_server import AVAILABLE, REQUIRED, STORES, Server
from tampering import tamper

from packhost.errors import ConfigInvalid, InvalidInput, StoreUnavailable
from packhost.store.address import parse_address
from packhost.store.audit import verify_chain
from packhost.store.base import Reading, Store, Tx
from packhost.store.ops import events

if not (AVAILABLE or REQUIRED):
    pytest.skip("PostgreSQL is not installed", allow_module_level=True)

from packhost.store import postgres_connection, postgres_listen
from packhost.store.postgres import PostgresStore
from packhost.store.postgres_session import LONGEST_PAYLOAD, payload

pytestmark = pytest.mark.anyio
Make = Callable[..., Any]
ON_POSTGRES = pytest.mark.parametrize("setting", STORES[1:], indirect=True)


def note(tx: Tx, text: str) -> int:
    return tx.emit("note", {"text": text})


@ON_POSTGRES
async def test_an_own_commit_and_another_hosts_wake_and_are_read_alike(
    store: Store, reopen: Callable[[], Store]
) -> None:
    other = reopen()
    with store.watch("events") as watch, store.watch("grants") as untouched, anyio.fail_after(10):
        for writer in (other, store, other):
            head = await writer.write(note, "a")
            await watch.changed()
            assert store.read(events.head).id == head
        with anyio.move_on_after(0) as scope:
            await untouched.changed()
        assert scope.cancelled_caught
    assert store.read(verify_chain).count == 3


@ON_POSTGRES
async def test_more_topics_than_a_notification_holds_wake_everybody(
    store: Store, reopen: Callable[[], Store]
) -> None:
    def touch_many(tx: Tx) -> None:
        for number in range(LONGEST_PAYLOAD // 10):
            tx.touch(f"run:run_{number}")

    with store.watch("run:run_77") as watch, anyio.fail_after(10):
        await reopen().write(touch_many)
        await watch.changed()


@ON_POSTGRES
async def test_a_topic_may_hold_any_character(store: Store, reopen: Callable[[], Store]) -> None:
    topic = "session:o'b\\\"\n\0é\ud800%s?"
    with store.watch(topic) as watch, anyio.fail_after(10):
        await reopen().write(lambda tx: tx.touch(topic))
        await watch.changed()


def test_a_payload_is_a_number_and_the_topics() -> None:
    assert payload(7, {"run:b", "events"}) == '7 ["events","run:b"]'
    assert payload(7, {f"run:{number}" for number in range(2000)}) == "7"


@ON_POSTGRES
async def test_a_commit_that_nobody_told_of_is_found_by_looking(
    store: Store, reopen: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_listen, "LOOK_EVERY", 0.05)
    with store.watch("events") as watch, anyio.fail_after(10):
        await store.write(note, "a")
        await watch.changed()
        tamper(
            store,
            "INSERT INTO events SELECT id+1, workspace, execution_id, call_id, type, actor, data_json,"
            " data_sha, ts, hash, hash FROM events",
        )
        await watch.changed()


@ON_POSTGRES
async def test_the_clock_is_the_databases(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_000.0)
    database = float(tamper(store, "SELECT extract(epoch FROM clock_timestamp())::float8")[0][0])
    assert abs(await store.write(lambda tx: tx.now()) - database) < 5
    assert abs(store.read(lambda tx: tx.now()) - database) < 5
    assert abs(store.now() - database) < 5
    assert database > 1_000_000


@pytest.mark.parametrize("text", ["a\0b", "half \ud83d"])
async def test_a_text_that_cannot_be_stored_is_refused_and_harms_nobody(store: Store, text: str) -> None:
    found: list[Any] = []

    async def write(actor: str) -> None:
        try:
            found.append(await store.write(lambda tx: tx.emit("note", {"text": actor}, actor=actor)))
        except InvalidInput as error:
            found.append(error.code)

    async with anyio.create_task_group() as tasks:
        for actor in ("ann", text, "ben"):
            tasks.start_soon(write, actor)
    kept = text == "a\0b" and not isinstance(store, PostgresStore)
    assert sorted(map(str, found)) == (["1", "2", "3"] if kept else ["1", "2", "INVALID_INPUT"])
    assert store.read(verify_chain).ok
    assert [event.data for event in store.read(events.page) if event.actor == "ben"] == ['{"text":"ben"}']


@ON_POSTGRES
@pytest.mark.parametrize("touched", [True, False])
async def test_a_change_in_which_an_error_was_overlooked_is_not_acknowledged(
    store: Store, touched: bool
) -> None:
    def careless(tx: Tx) -> None:
        if touched:
            tx.emit("note", {})
        try:
            tx.execute("SELECT * FROM nowhere")
        except Exception:
            return

    with pytest.raises(StoreUnavailable):
        await store.write(careless)
    assert await store.write(note, "a") == 1


@ON_POSTGRES
async def test_a_long_read_takes_rows_as_they_are_wanted_and_may_be_left(store: Store) -> None:
    def many(tx: Tx) -> None:
        for number in range(5_000):
            tx.emit("note", {"number": number})

    await store.write(many)
    with store.snapshot() as view:
        first = events.export(view)
        assert [next(first).id for _ in range(3)] == [1, 2, 3]
        await store.write(note, "later")
        assert sum(1 for _ in events.export(view)) == 5_000
        assert events.head(view).id == 5_000


@ON_POSTGRES
async def test_two_workspaces_in_one_database_know_nothing_of_each_other(
    store: PostgresStore, reopen: Callable[[], Store], postgres_server: Server
) -> None:
    url = f"{store.address.url}?workspace={store.workspace}-too"
    other = PostgresStore(parse_address(url, "ws"))
    await store.write(note, "a")
    assert other.read(events.head).id == 0
    assert await other.write(note, "b") == 1
    assert reopen().read(events.head).id == 1
    await other.close()


@ON_POSTGRES
async def test_what_a_store_says_of_itself_holds_no_password(
    store: PostgresStore, postgres_server: Server
) -> None:
    await store.write(note, "a")
    info = store.info()
    assert (info.kind, info.events, info.place) == ("postgresql", 1, store.address.shown)
    assert info.size > 8192
    assert store.label.startswith("PostgreSQL ")
    assert postgres_server.password not in f"{info} {store.label} {store.address!r} {vars(store)}"


@pytest.mark.real
async def test_what_the_database_refuses_is_explained_without_the_password(postgres_server: Server) -> None:
    good = postgres_server.url()
    cases = {
        good.replace(postgres_server.password, "sesame-key"): "check the user and the password",
        good.replace("/test?", "/nowhere?"): "create the database",
        good.replace("127.0.0.1", "127.0.0.1.invalid"): "goes on trying",
    }
    for url, hint in cases.items():
        with pytest.raises(StoreUnavailable) as caught:
            PostgresStore(parse_address(url, "ws"))
        assert hint in caught.value.hint
        said = f"{caught.value} {caught.value.data}"
        assert "sesame-key" not in said
        assert postgres_server.password not in said
    with pytest.raises(ConfigInvalid):
        PostgresStore(parse_address(good.replace("?", "?no_such_option=1&"), "ws"))


@pytest.mark.real
async def test_a_database_that_cannot_hold_every_text_is_refused(postgres_server: Server) -> None:
    if not postgres_server.sql("SELECT 1 FROM pg_database WHERE datname='latin'"):
        options = "ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0"
        postgres_server.sql(f"CREATE DATABASE latin OWNER packhost {options}")
    with pytest.raises(StoreUnavailable) as caught:
        PostgresStore(parse_address(postgres_server.url("latin"), "ws"))
    assert "LATIN1" in caught.value.message
    assert "UTF8" in caught.value.hint


@pytest.mark.real
async def test_a_server_that_is_too_old_is_refused(
    postgres_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_connection, "OLDEST", 99)
    with pytest.raises(StoreUnavailable) as caught:
        PostgresStore(parse_address(postgres_server.url(), "ws"))
    assert "99 or newer" in caught.value.hint


@ON_POSTGRES
async def test_the_clock_is_right_before_anything_was_read(
    store: Store, reopen: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_000.0)
    assert abs(reopen().now() - store.read(lambda tx: tx.now())) < 5


@pytest.mark.real
async def test_a_user_who_may_not_make_a_schema_is_told_so(postgres_server: Server) -> None:
    postgres_server.sql(f"CREATE ROLE guest LOGIN PASSWORD '{postgres_server.password}'")
    with pytest.raises(StoreUnavailable) as caught:
        PostgresStore(parse_address(postgres_server.url(user="guest"), "ws"))
    assert "create a schema" in caught.value.hint


async def test_a_reader_that_follows_by_number_sees_each_event_of_many_writers_once(
    store: Store, reopen: Callable[[], Store]
) -> None:
    writers = [reopen() if isinstance(store, PostgresStore) else store for _ in range(3)]
    seen: list[int] = []

    async def write(writer: Store) -> None:
        for _ in range(60):
            await writer.write(note, "x")

    def after(tx: Reading, last: int) -> list[int]:
        return [event.id for event in events.page(tx, last)]

    async with anyio.create_task_group() as tasks:
        for writer in writers:
            for _ in range(2):
                tasks.start_soon(write, writer)
        with store.watch("events") as watch, anyio.fail_after(60):
            while len(seen) < 360:
                fresh = store.read(after, seen[-1] if seen else 0)
                seen += fresh
                if not fresh:
                    await watch.changed()
    assert seen == list(range(1, 361))
