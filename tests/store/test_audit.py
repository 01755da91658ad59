"""The stored chain, proved and exported."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from typing import Any

import pytest

from packhost.journal import GENESIS, Record, Verified, canonical, digest, verify
from packhost.store.audit import export_lines, verify_chain
from packhost.store.ops import calls, events
from packhost.store.sqlite import SqliteStore

pytestmark = pytest.mark.anyio
Make = Callable[..., Any]


async def fill(store: SqliteStore, new_call: Make) -> None:
    for number in range(3):
        call = new_call(args_json=canonical({"path": f"{number}.txt", "note": "é\ud800"}))
        await store.write(calls.begin, call)
        await store.write(calls.end, call.id, "ok", None, "1", finish_execution=True)


def tamper(store: SqliteStore, sql: str) -> None:
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute(sql)
    other.close()


async def test_an_untouched_chain_is_proved_to_its_head(store: SqliteStore, new_call: Make) -> None:
    assert store.read(verify_chain).head_hash == GENESIS
    await fill(store, new_call)
    report = store.read(verify_chain)
    assert report.ok
    assert (report.count, report.head_hash) == (6, store.read(events.head).hash)


@pytest.mark.parametrize(
    ("sql", "id", "reason"),
    [
        ("UPDATE events SET data_json='{}' WHERE id=3", 3, "its data was changed"),
        ("UPDATE events SET actor='x' WHERE id=4", 4, "its fields do not match its hash"),
        ("UPDATE events SET ts=ts+1 WHERE id=1", 1, "its fields do not match its hash"),
        ("DELETE FROM events WHERE id=2", 3, "record 2 is missing"),
        ("UPDATE events SET hash=prev WHERE id=6", 6, "its fields do not match its hash"),
    ],
)
async def test_a_tampered_event_is_named(
    store: SqliteStore, new_call: Make, sql: str, id: int, reason: str
) -> None:
    await fill(store, new_call)
    tamper(store, sql)
    broken = store.read(verify_chain).broken
    assert broken is not None
    assert (broken.id, broken.reason) == (id, reason)


async def test_a_redacted_event_still_verifies(store: SqliteStore, new_call: Make) -> None:
    await fill(store, new_call)
    tamper(store, "UPDATE events SET data_json=NULL WHERE id=1")
    assert store.read(verify_chain).ok
    assert json.loads(store.read(lambda tx: next(export_lines(tx))))["data"] is None


async def test_the_exported_lines_prove_themselves(store: SqliteStore, new_call: Make) -> None:
    await fill(store, new_call)
    with store.snapshot() as view:
        lines = [json.loads(line) for line in export_lines(view)]
    assert list(lines[0]) == [
        "id",
        "ts",
        "type",
        "workspace",
        "execution_id",
        "call_id",
        "actor",
        "data",
        "data_sha",
        "prev",
        "hash",
    ]
    assert lines[0]["data"]["arguments"] == {"path": "0.txt", "note": "é\ud800"}
    assert all(digest(canonical(line["data"])) == line["data_sha"] for line in lines)
    records = [Record(**{**line, "data": canonical(line["data"])}) for line in lines]
    assert verify(records) == Verified(6, store.read(events.head).hash)


async def test_events_are_paged_by_id_and_run(store: SqliteStore, new_call: Make) -> None:
    await fill(store, new_call)
    assert [event.id for event in store.read(events.page, 2, None, 3)] == [3, 4, 5]
    run = store.read(events.page)[2].execution_id
    assert [event.type for event in store.read(events.page, 0, run)] == ["call.started", "call.ok"]
    assert [event.id for event in store.read(events.page, 3, run)] == [4]
