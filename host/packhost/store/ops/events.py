"""The audit chain as it is read: pages, the whole, and its head."""

# ruff: noqa: S608  # only this module's constants are spliced into SQL; values are always bound

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from packhost.journal import GENESIS, Record
from packhost.store.base import Reading
from packhost.store.rows import Head

_COLUMNS = ", ".join({"data": "data_json"}.get(field.name, field.name) for field in fields(Record))


def page(
    tx: Reading, after: int = 0, execution_id: str | None = None, limit: int = 200
) -> tuple[Record, ...]:
    """Events after the one with id `after`, first to last; of one run, or of all."""
    if execution_id is None:
        rows = tx.execute(f"SELECT {_COLUMNS} FROM events WHERE id>? ORDER BY id LIMIT ?", (after, limit))
    else:
        rows = tx.execute(
            f"SELECT {_COLUMNS} FROM events WHERE execution_id=? AND id>? ORDER BY id LIMIT ?",
            (execution_id, after, limit),
        )
    return tuple(Record(*row) for row in rows)


def export(tx: Reading) -> Iterator[Record]:
    """Every event, first to last, one at a time; valid as long as `tx` is."""
    for row in tx.execute(f"SELECT {_COLUMNS} FROM events ORDER BY id"):
        yield Record(*row)


def by_id(tx: Reading, id: int) -> Record | None:
    """One event; `None` when there is none of that number."""
    row = tx.execute(f"SELECT {_COLUMNS} FROM events WHERE id=?", (id,)).fetchone()
    return None if row is None else Record(*row)


def of_call(tx: Reading, call_id: str) -> tuple[Record, ...]:
    """Every event of one call."""
    rows = tx.execute(f"SELECT {_COLUMNS} FROM events WHERE call_id=? ORDER BY id", (call_id,))
    return tuple(Record(*row) for row in rows)


def mentioning(tx: Reading, prefix: str, id: str) -> tuple[Record, ...]:
    """Every event whose type starts so and whose data has this `id`."""
    rows = tx.execute(
        f"SELECT {_COLUMNS} FROM events WHERE type LIKE ? AND data_json LIKE ? ORDER BY id",
        (f"{prefix}%", f'%"id":"{id}"%'),
    )
    return tuple(Record(*row) for row in rows)


def head(tx: Reading) -> Head:
    """The last event's id and hash."""
    row = tx.execute("SELECT id, hash FROM events ORDER BY id DESC LIMIT 1").fetchone()
    return Head(0, GENESIS) if row is None else Head(*row)
