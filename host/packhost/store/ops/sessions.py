"""Conversations: history, and the autonomy level. Events: `session.opened`, `session.level`,
`session.messages`. That a raise is over is an event as well, once `fall_back` has written it down."""

# ruff: noqa: S608  # only this module's constants are spliced into SQL; values are always bound

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from packhost.errors import Conflict, NotFound
from packhost.journal import digest
from packhost.rules.autonomy import Level, lowest, rank
from packhost.store.base import Reading, Tx
from packhost.store.rows import MessageRow, SessionRow

_ALL = 1 << 62
_COLUMNS = ", ".join(field.name for field in fields(SessionRow))


def open(tx: Tx, id: str, principal: str, client: str, level: Level, parent: str | None = None) -> SessionRow:
    """The session of that id, made with `level` at its first mention.

    Raises `NotFound` when it belongs to another principal or client.
    """
    row = find(tx, id)
    if row is not None:
        if (row.principal, row.client) != (principal, client):
            raise NotFound(f"there is no session `{id}` of this client", hint="use another session id")
        return row
    now = tx.now()
    tx.execute(
        "INSERT INTO sessions(id, workspace, principal, client, parent, level, created_at, updated_at)"
        " VALUES(?,?,?,?,?,?,?,?)",
        (id, tx.workspace, principal, client, parent, level, now, now),
    )
    tx.emit("session.opened", {"id": id, "client": client, "parent": parent, "level": level}, actor=principal)
    _touch(tx, id)
    return get(tx, id)


def set_level(
    tx: Tx,
    id: str,
    level: Level,
    expires_at: float | None,
    by: str,
    reason: str = "",
    *,
    no_higher: bool = False,
    below: bool = False,
) -> SessionRow:
    """Set a session's level; with `expires_at` it then falls back to the lasting one before it.

    Whether the level may be set is for the caller to decide; with `no_higher` it is only ever lowered,
    whatever was written since they looked. With `below` every session opened from it comes down along with
    it. Raises `NotFound`, or `Conflict` for that.
    """
    row, now = get(tx, id), tx.now()
    if no_higher and rank(level) > rank(row.level_at(now)):
        raise Conflict(
            f"session `{id}` was lowered below `{level}` meanwhile", hint="nothing is left to lower"
        )
    before: Level | None = None
    if expires_at is not None:
        lasting = row.level if row.level_before is None else row.level_before
        before = lasting
    _write_level(tx, row, level, expires_at, before, now, by, reason)
    if below:
        lower_children(tx, id, level, by, reason)
    return get(tx, id)


def lower_children(tx: Tx, id: str, level: Level, by: str, reason: str = "") -> tuple[str, ...]:
    """Bring every session opened from this one, at any depth, down to `level`; those that changed."""
    rows = tx.execute(
        "WITH RECURSIVE below(id) AS (SELECT id FROM sessions WHERE parent=?"
        " UNION SELECT s.id FROM sessions s JOIN below b ON s.parent=b.id)"
        f" SELECT {_COLUMNS} FROM sessions WHERE id IN (SELECT id FROM below) AND id<>? ORDER BY id",
        (id, id),
    ).fetchall()
    now, changed = tx.now(), []
    for row in (SessionRow(*values) for values in rows):
        held = row.level_at(now)
        lower, before = lowest(held, level), row.level_before
        if before is not None:
            before = lowest(before, level)
        if (lower, before) != (held, row.level_before):
            _write_level(tx, row, lower, row.level_expires_at, before, now, by, reason)
            changed.append(row.id)
    return tuple(changed)


def due(tx: Reading, now: float) -> bool:
    """Whether a raise is over that nobody has written down."""
    row = tx.execute("SELECT 1 FROM sessions WHERE level_expires_at<=? LIMIT 1", (now,)).fetchone()
    return row is not None


def fall_back(tx: Tx) -> tuple[str, ...]:
    """Write down each raise that is over, and lower what was opened from those sessions; their ids."""
    now = tx.now()
    rows = tx.execute(
        f"SELECT {_COLUMNS} FROM sessions WHERE level_expires_at<=? ORDER BY id", (now,)
    ).fetchall()
    found = [SessionRow(*row) for row in rows]
    for row in found:
        fallen = row.level_at(now)
        _write_level(tx, row, fallen, None, None, now, "host", "its time is over", expired=True)
        lower_children(tx, row.id, fallen, "host", f"the time of `{row.id}` is over")
    return tuple(row.id for row in found)


def append_messages(tx: Tx, session_id: str, run_id: str | None, messages: Sequence[str]) -> int:
    """Add messages (each as JSON text) to a session's history; the last `seq`. Raises `NotFound`."""
    get(tx, session_id)
    row = tx.execute("SELECT MAX(seq) FROM session_messages WHERE session_id=?", (session_id,)).fetchone()
    first = (row[0] or 0) + 1
    for seq, message in enumerate(messages, first):
        tx.execute(
            "INSERT INTO session_messages(session_id, seq, run_id, message_json) VALUES(?,?,?,?)",
            (session_id, seq, run_id, message),
        )
    last = first + len(messages) - 1
    if messages:
        tx.execute("UPDATE sessions SET updated_at=? WHERE id=?", (tx.now(), session_id))
        data = {"id": session_id, "first": first, "last": last, "sha": digest("\n".join(messages))}
        tx.emit("session.messages", data, execution_id=run_id, actor="host")
        _touch(tx, session_id)
    return last


def history(tx: Reading, session_id: str, after: int = 0, limit: int = -1) -> tuple[MessageRow, ...]:
    """A session's messages after the one with `seq` `after`, first to last; `limit` below 0 means all."""
    rows = tx.execute(
        "SELECT session_id, seq, run_id, message_json FROM session_messages WHERE session_id=? AND seq>?"
        " ORDER BY seq LIMIT ?",
        (session_id, after, limit if limit >= 0 else _ALL),
    )
    return tuple(MessageRow(*row) for row in rows)


def find(tx: Reading, id: str) -> SessionRow | None:
    """A session, or `None` when it was never mentioned."""
    row = tx.execute(f"SELECT {_COLUMNS} FROM sessions WHERE id=?", (id,)).fetchone()
    return None if row is None else SessionRow(*row)


def get(tx: Reading, id: str) -> SessionRow:
    """A session. Raises `NotFound`."""
    row = find(tx, id)
    if row is None:
        raise NotFound(f"there is no session `{id}`", hint="list sessions with `packhost sessions list`")
    return row


def listing(tx: Reading, limit: int = 50) -> tuple[SessionRow, ...]:
    """Sessions, the last used first."""
    rows = tx.execute(f"SELECT {_COLUMNS} FROM sessions ORDER BY updated_at DESC, id LIMIT ?", (limit,))
    return tuple(SessionRow(*row) for row in rows)


def _write_level(
    tx: Tx,
    row: SessionRow,
    level: Level,
    expires_at: float | None,
    before: Level | None,
    now: float,
    by: str,
    reason: str,
    *,
    expired: bool = False,
) -> None:
    tx.execute(
        "UPDATE sessions SET level=?, level_expires_at=?, level_before=?, updated_at=? WHERE id=?",
        (level, expires_at, before, now, row.id),
    )
    data = {
        "id": row.id,
        "from": row.level if expired else row.level_at(now),
        "to": level,
        "expires_at": expires_at,
        "before": before,
        "reason": reason,
    }
    tx.emit("session.level", data, actor=by)
    _touch(tx, row.id)


def _touch(tx: Tx, id: str) -> None:
    tx.touch(f"session:{id}")
    tx.touch("sessions")
