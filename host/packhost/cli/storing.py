"""What `packhost doctor` looks at of the store: schema, room, log, speed, and the hosts that share it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from packhost.cli.bars import size
from packhost.cli.checks import Check
from packhost.store.sqlite import STORE_NAME

_LEAST_FREE: Final = 100 * 1024**2
_LITTLE_FREE: Final = 1024**3
_LONG_LOG: Final = 64 * 1024**2
_SLOW: Final = 0.25
"""Seconds for a commit from which on every call with effects is felt to wait."""


def store_checks(found: Mapping[str, Any]) -> Iterator[Check]:
    """What a host's `store.info` says of the store that is worth knowing."""
    record = found["record"]
    held = f"events {record['first']} to {record['last']}" if record["last"] else "no event yet"
    engine = found.get("engine") or f"SQLite {found.get('sqlite', '')}"
    yield Check("store", "ok", f"{engine}, schema {found['schema']}, {size(found['bytes'])}, {held}")
    if "free_bytes" in found:
        yield from _disk(found["free_bytes"], found["bytes"], found["wal_bytes"])
    seconds = found["commit_seconds"]
    if seconds > _SLOW:
        yield Check(
            "commits", "note", f"one took {seconds * 1000:.0f} ms: calls with effects wait for theirs"
        )
    if found["unfinished"]:
        yield Check(
            "pruning", "note", f"{found['unfinished']} events are still to go: `packhost store prune` ends it"
        )
    yield from _hosts(found.get("replicas", ()))


def _disk(free: int, used: int, log: int) -> Iterator[Check]:
    text = f"{size(free)} free where `{STORE_NAME}` lies"
    if free < _LEAST_FREE:
        yield Check("disk", "broken", f"{text}: make room, a call with effects is refused on a full disk")
    elif free < max(_LITTLE_FREE, 2 * used):
        yield Check("disk", "note", f"{text}: too little for a backup or a migration beside it")
    else:
        yield Check("disk", "ok", text)
    if log > _LONG_LOG:
        yield Check(
            "write-ahead log",
            "note",
            f"{size(log)}: a long read, such as an export, keeps it from being folded in",
        )


def _hosts(replicas: Any) -> Iterator[Check]:
    if not replicas:
        return
    named = ", ".join(f"process {one['pid']} on {one['host']}" for one in replicas)
    yield Check("hosts", "ok", f"{len(replicas)} share the store: {named}")
    if len({one["settings_sha"] for one in replicas}) > 1:
        yield Check(
            "hosts", "note", "they accepted different configurations: `packhost accept` on each machine"
        )
    if len({one["version"] for one in replicas}) > 1:
        yield Check("hosts", "note", "they are of different versions: bring each to the newest")
