"""The stored chain, proved and exported."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tampering import tamper

from packhost.errors import Conflict, NotFound
from packhost.journal import GENESIS, BrokenLink, Record, Verified, canonical, digest, verify
from packhost.store.audit import UNEXPLAINED, export_lines, verify_chain
from packhost.store.base import Store
from packhost.store.ops import calls, events
from packhost.store.ops.redaction import redact
from packhost.store.seals import Anchor, ExportSeal, check_export
from packhost.store.sqlite import SqliteStore

pytestmark = pytest.mark.anyio
Make = Callable[..., Any]


async def fill(store: Store, new_call: Make) -> None:
    for number in range(3):
        call = new_call(args_json=canonical({"path": f"{number}.txt", "note": "é\ud800"}))
        await store.write(calls.begin, call)
        await store.write(calls.end, call.id, "ok", None, "1", finish_execution=True)


async def test_an_untouched_chain_is_proved_to_its_head(store: Store, new_call: Make) -> None:
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
    store: Store, new_call: Make, sql: str, id: int, reason: str
) -> None:
    await fill(store, new_call)
    tamper(store, sql)
    broken = store.read(verify_chain).broken
    assert broken is not None
    assert (broken.id, broken.reason) == (id, reason)


async def test_a_redacted_call_leaves_the_chain_whole_and_the_redaction_on_record(
    store: Store, new_call: Make
) -> None:
    await fill(store, new_call)
    assert await store.write(redact, 1, "ann", "a key was in it") == (1, 2)
    report = store.read(verify_chain)
    assert (report.ok, report.count, report.redacted) == (True, 7, 2)
    first, *_, last = [json.loads(line) for line in store.read(lambda tx: tuple(export_lines(tx)))]
    assert first["data"] is None
    assert (last["type"], last["actor"]) == ("audit.redacted", "ann")
    assert last["data"] == {"events": [1, 2], "reason": "a key was in it"}
    assert store.read(calls.by_id, first["call_id"]).args_json == '{"redacted":true}'


async def test_what_was_redacted_is_gone_from_the_file(
    anyio_backend: str, tmp_path: Path, new_call: Make
) -> None:
    store = SqliteStore(tmp_path / "store.db", "ws")
    await store.write(calls.begin, new_call(args_json=canonical({"key": "canary" * 2000})))
    await store.write(redact, 1, "ann", "a key was in it")
    await store.close()
    assert b"canarycanary" not in store.path.read_bytes()


async def test_a_payload_that_is_gone_without_a_redaction_on_record_is_a_fault(
    store: Store, new_call: Make
) -> None:
    await fill(store, new_call)
    tamper(store, "UPDATE events SET data_json=NULL WHERE id=3")
    assert store.read(verify_chain).broken == BrokenLink(3, UNEXPLAINED)


async def test_a_payload_is_redacted_once_and_a_redaction_never(store: Store, new_call: Make) -> None:
    await fill(store, new_call)
    await store.write(redact, 1, "ann", "why")
    for event in (1, 7):
        with pytest.raises(Conflict):
            await store.write(redact, event, "ann", "why")
    with pytest.raises(NotFound):
        await store.write(redact, 99, "ann", "why")


async def test_a_chain_goes_through_what_was_anchored_and_not_through_anything_else(
    store: Store, new_call: Make
) -> None:
    await fill(store, new_call)
    third = store.read(events.page)[2]
    assert store.read(verify_chain, [Anchor(third.hash, 3), Anchor(third.hash)]).ok
    for anchor in (Anchor(third.hash, 4), Anchor("f" * 64, 3), Anchor("f" * 64)):
        report = store.read(verify_chain, [anchor])
        assert (report.ok, report.broken, len(report.missed)) == (False, None, 1)


async def test_an_anchor_shows_that_the_end_was_cut_off(store: Store, new_call: Make) -> None:
    await fill(store, new_call)
    head = store.read(events.head)
    tamper(store, "DELETE FROM events WHERE id>4")
    assert store.read(verify_chain).ok
    (missed,) = store.read(verify_chain, [Anchor(head.hash, head.id)]).missed
    assert missed == "the chain ends at event 4, and event 6 was anchored: its end was cut off"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda lines: lines, ""),
        (lambda lines: lines[1:], ""),
        (lambda lines: [*lines[:2], *lines[3:]], "record 3 is missing"),
        (lambda lines: [*lines[1:2], *lines[3:]], "it does not follow"),
        (lambda lines: [lines[0].replace("0.txt", "9.txt"), *lines[1:]], "its data was changed"),
        (lambda lines: [*lines[1:3], lines[3].replace('"call.ok"', '"call.no"')], "do not match its hash"),
        (lambda lines: [*lines, "{}"], "line 7 is no event"),
    ],
)
async def test_an_export_proves_itself(store: Store, new_call: Make, change: Any, said: str) -> None:
    await fill(store, new_call)
    lines = list(store.read(lambda tx: tuple(export_lines(tx))))
    report = check_export(change(lines), None)
    assert (said in report.broken, bool(report.broken)) == (True, bool(said))
    assert report.signed is None


async def test_a_signature_covers_every_line_and_the_end(store: Store, new_call: Make) -> None:
    await fill(store, new_call)
    seal, lines = ExportSeal(b"k" * 32), list(store.read(lambda tx: tuple(export_lines(tx))))
    for line in lines:
        seal.add(line)
    signed = [*lines, seal.line()]
    assert check_export(signed, b"k" * 32).signed is True
    assert check_export(signed, b"x" * 32).signed is False
    assert check_export(lines, b"k" * 32).signed is False
    assert check_export([*signed[:-2], signed[-1]], b"k" * 32).signed is False
    assert check_export([*signed, lines[0]], b"k" * 32).signed is False


async def test_the_exported_lines_prove_themselves(store: Store, new_call: Make) -> None:
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


async def test_events_are_paged_by_id_and_run(store: Store, new_call: Make) -> None:
    await fill(store, new_call)
    assert [event.id for event in store.read(events.page, 2, None, 3)] == [3, 4, 5]
    run = store.read(events.page)[2].execution_id
    assert [event.type for event in store.read(events.page, 0, run)] == ["call.started", "call.ok"]
    assert [event.id for event in store.read(events.page, 3, run)] == [4]
