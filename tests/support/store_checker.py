"""Holds a store to what was acknowledged by processes that were killed: the judge of `store_worker`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from packhost.store.audit import verify_chain
from packhost.store.base import Reading, Store


def _by_id(tx: Reading, table: str) -> dict[str, str]:
    return dict(tx.execute(f"SELECT id, status FROM {table}").fetchall())


def _open_calls_of_nobody(tx: Reading) -> int:
    row = tx.execute(
        "SELECT COUNT(*) FROM calls c JOIN executions x ON x.id=c.execution_id"
        " WHERE c.status='started' AND x.status<>'running'"
    )
    return int(row.fetchone()[0])


def check(store: Store, folder: Path) -> dict[str, int]:
    """Raise `AssertionError` at the first thing acknowledged that does not stand; counts of what does.

    Every process that wrote is gone, and what it held was taken away.
    """
    found = store.read(
        lambda tx: {table: _by_id(tx, table) for table in ("executions", "calls", "approvals")}
    )
    runs, calls, asked = found["executions"], found["calls"], found["approvals"]
    intents: dict[str, tuple[str, str, bool]] = {}
    effects: set[str] = set()
    ended: set[str] = set()
    for line in (folder / "acks").read_text().splitlines():
        kind, id, *rest = line.split()
        if kind == "I":
            intents[id] = (rest[0], rest[1], rest[2] == "1")
        elif kind == "E":
            assert id in intents, f"an effect before its intent: {line}"
            assert id not in effects, f"an effect twice: {line}"
            effects.add(id)
        elif kind == "O":
            ended.add(id)
            assert calls[id] == "ok", f"a lost outcome: {line}, {calls.get(id)}"
        known: Any = {"C": runs, "F": runs, "I": calls, "E": calls, "O": calls, "P": asked, "D": asked}[kind]
        assert id in known, f"lost: {line}"
        assert kind != "F" or runs[id] == "completed", f"a lost end: {line}, {runs[id]}"
        assert kind != "D" or asked[id] == "approved", f"a lost answer: {line}, {asked[id]}"
    for id, (_, _, again) in intents.items():
        left = {"ok", "error"} if again else {"ok", "unknown"}
        assert id in ended or calls[id] in left, f"call {id} is {calls[id]}"
    once = Counter(intents[id][:2] for id in effects if not intents[id][2])
    assert all(times == 1 for times in once.values()), f"an effect of a step twice: {once.most_common(3)}"
    report = store.read(verify_chain)
    assert report.ok, report
    assert store.read(_open_calls_of_nobody) == 0
    return {
        "intents": len(intents),
        "unknown": Counter(calls.values())["unknown"],
        "completed": Counter(runs.values())["completed"],
        "events": report.count,
    }
