"""The audit chain as it is read: pages, the whole, and its head."""

# ruff: noqa: S608  # only this module's constants are spliced into SQL; values are always bound

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Literal

from packhost.errors import NotFound
from packhost.journal import GENESIS, Record
from packhost.store.base import Reading
from packhost.store.rows import Head

CursorState = Literal["kept", "pruned", "ahead"]
NOTHING = Head(0, GENESIS)
_AT_ONCE = 128
"""Rows that are fetched together where their data may be long."""
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


def of_run(
    tx: Reading, execution_id: str, after: int = 0, count: int = 512, size: int = 262_144
) -> tuple[tuple[Any, ...], ...]:
    """Events of a run after the one with id `after`: id, type, actor, call id, time and data as text.

    Ends after `count` events, or with the first that brings their data beyond `size` characters, so that
    whoever passes them on holds no more.
    """
    found: list[tuple[Any, ...]] = []
    most, whole = min(_AT_ONCE, count), size
    while size > 0 and len(found) < count:
        rows = tx.execute(
            "SELECT id, type, actor, call_id, ts, data_json FROM events WHERE execution_id=? AND id>?"
            " ORDER BY id LIMIT ?",
            (execution_id, after, most),
        ).fetchall()
        for row in rows:
            found.append(tuple(row))
            size -= len(row[5] or "")
            if size <= 0:
                break
        if len(rows) < most:
            break
        after = found[-1][0]
        # as many as those so far let expect to fit, so that short ones take two statements
        fitting = len(found) * size // max(whole - size, 1)
        most = min(max(_AT_ONCE, fitting), count - len(found))
    return tuple(found)


def standing(tx: Reading, execution_id: str) -> tuple[str, int]:
    """A run's status, and the last of its events that was pruned; 0 for none."""
    row = tx.execute("SELECT status, events_pruned FROM executions WHERE id=?", (execution_id,)).fetchone()
    return str(row[0]), int(row[1])


def export(tx: Reading, last: int | None = None) -> Iterator[Record]:
    """Every event that is kept, first to `last`, one at a time; valid as long as `tx` is."""
    upto = 2**62 if last is None else last
    for row in tx.execute(f"SELECT {_COLUMNS} FROM events WHERE id<=? ORDER BY id", (upto,)):
        yield Record(*row)


def seam(tx: Reading) -> Head:
    """What was before the first event that is kept: its id and hash; id 0 where nothing was pruned."""
    row = tx.execute("SELECT id, prev FROM events ORDER BY id LIMIT 1").fetchone()
    return NOTHING if row is None else Head(row[0] - 1, row[1])


def cursor_state(tx: Reading, after: int, execution_id: str | None = None) -> CursorState:
    """Whether everything after the event `after` can still be read, of one run or of all.

    `pruned`: at least one event that comes after it is gone. `ahead`: no such event was ever written here.
    Raises `NotFound` when there is no such run, or no longer.
    """
    if after > head(tx).id:
        return "ahead"
    if execution_id is None:
        return "pruned" if after < seam(tx).id else "kept"
    row = tx.execute("SELECT events_pruned FROM executions WHERE id=?", (execution_id,)).fetchone()
    if row is None:
        raise NotFound(f"there is no run `{execution_id}`", hint="list runs with `packhost runs list`")
    return "pruned" if after < row[0] else "kept"


def by_id(tx: Reading, id: int) -> Record | None:
    """One event; `None` when there is none of that number."""
    row = tx.execute(f"SELECT {_COLUMNS} FROM events WHERE id=?", (id,)).fetchone()
    return None if row is None else Record(*row)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is looked for in the record; `type` may end in `*`; times in seconds since the epoch."""

    text: str = ""
    type: str = ""
    run: str = ""
    since: float = 0.0
    until: float = 1e12


@dataclass(frozen=True, slots=True)
class Page:
    """What was found, newest first, and where to go on; `next` is `None` at the beginning of the record."""

    found: tuple[Record, ...]
    next: int | None


def search(tx: Reading, wanted: Wanted, before: int, limit: int, most: int) -> Page:
    """Events older than the event `before`, newest first: at most `limit`, of the `most` that are looked at.

    `text` is looked for without regard to case in what an event holds, its type, actor and call.
    """
    first, start = seam(tx).id + 1, min(before, head(tx).id + 1)
    low = max(first, start - most)
    where = "id>=? AND id<? AND ts>=? AND ts<=?"
    params: list[Any] = [low, start, wanted.since, wanted.until]
    if wanted.type:
        where += " AND type LIKE ? ESCAPE '!'"
        params.append(_like(wanted.type.removesuffix("*")) + ("%" if wanted.type.endswith("*") else ""))
    if wanted.run:
        where += " AND execution_id=?"
        params.append(wanted.run)
    if wanted.text:
        held = f"%{_like(json.dumps(wanted.text)[1:-1].lower())}%"
        named = f"%{_like(wanted.text.lower())}%"
        where += (
            " AND (lower(data_json) LIKE ? ESCAPE '!' OR lower(type) LIKE ? ESCAPE '!'"
            " OR lower(actor) LIKE ? ESCAPE '!' OR lower(call_id) LIKE ? ESCAPE '!')"
        )
        params += [held, named, named, named]
    rows = tx.execute(
        f"SELECT {_COLUMNS} FROM events WHERE {where} ORDER BY id DESC LIMIT ?", (*params, limit)
    ).fetchall()
    found = tuple(Record(*row) for row in rows)
    rest = found[-1].id if len(found) == limit else low
    return Page(found, rest if rest > first else None)


def _like(text: str) -> str:
    """Text as it stands in a pattern of `LIKE`, whose own signs are escaped by `!`."""
    return text.replace("!", "!!").replace("%", "!%").replace("_", "!_")


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
    return NOTHING if row is None else Head(*row)
