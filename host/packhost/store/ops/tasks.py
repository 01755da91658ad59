"""Calls that outlive their request: what a client is told of one, whatever host it asks.

A row holds the request sealed, so that a host that comes after the one that had the call may make it again
under its own key; what came of it; and what it waits for.
"""

# ruff: noqa: S608  # only this module's constants are spliced into SQL; values are always bound

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from packhost.journal import canonical
from packhost.store.base import Reading, Tx

Status = Literal["working", "completed", "failed", "cancelled"]
KEPT_AFTER = 3_600.0
"""Seconds for which the outcome of a task stays at least, from its end on."""
_ABANDONED = 86_400.0
"""Seconds after its time that a task is kept whose end nobody ever wrote down."""


@dataclass(frozen=True, slots=True)
class NewTask:
    """A task as it is made; `ttl` in seconds, `asked` what it waits for, by key."""

    id: str
    principal: str
    client: str
    session_id: str
    tool: str
    idem_key: str
    request: str
    """The call, sealed."""
    owner: str
    ttl: float
    asked: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A task and where it stands."""

    id: str
    principal: str
    client: str
    session_id: str
    tool: str
    idem_key: str
    request: str
    owner: str
    status: Status
    asked_json: str
    wish_json: str | None
    result_json: str | None
    created_at: float
    updated_at: float
    expires_at: float

    @property
    def asked(self) -> dict[str, Any]:
        """What it waits for, by key."""
        found: dict[str, Any] = json.loads(self.asked_json)
        return found

    @property
    def wish(self) -> dict[str, Any]:
        """What another host was told for it: `cancel`, and the keys that were `dismissed`."""
        found: dict[str, Any] = json.loads(self.wish_json or "{}")
        return found


_COLUMNS = ", ".join(field.name for field in fields(TaskRow))


def create(tx: Tx, new: NewTask) -> TaskRow:
    """Make a task, or give the one that was made for the same key; takes away what has expired."""
    now = tx.now()
    tx.execute(
        "DELETE FROM tasks WHERE expires_at<=? AND (status<>'working' OR expires_at<=?)",
        (now, now - _ABANDONED),
    )
    tx.execute(
        "INSERT INTO tasks(id, workspace, principal, client, session_id, tool, idem_key, request, owner,"
        " status, asked_json, created_at, updated_at, expires_at)"
        " VALUES(?,?,?,?,?,?,?,?,?,'working',?,?,?,?) ON CONFLICT(idem_key) DO NOTHING",
        (
            new.id,
            tx.workspace,
            new.principal,
            new.client,
            new.session_id,
            new.tool,
            new.idem_key,
            new.request,
            new.owner,
            canonical(new.asked),
            now,
            now,
            now + new.ttl,
        ),
    )
    row = by_key(tx, new.idem_key)
    assert row is not None
    return row


def find(tx: Reading, id: str) -> TaskRow | None:
    """A task; `None` where there is none, or no more."""
    row = tx.execute(f"SELECT {_COLUMNS} FROM tasks WHERE id=?", (id,)).fetchone()
    found = None if row is None else TaskRow(*row)
    return None if found is None or _over(found, tx.now()) else found


def by_key(tx: Reading, idem_key: str) -> TaskRow | None:
    """The task of a call's own key."""
    row = tx.execute(f"SELECT {_COLUMNS} FROM tasks WHERE idem_key=?", (idem_key,)).fetchone()
    return None if row is None else TaskRow(*row)


def _over(row: TaskRow, now: float) -> bool:
    return row.expires_at <= now and row.status != "working"


def show(tx: Tx, id: str, owner: str, asked: Mapping[str, Any]) -> None:
    """Say what a task waits for now."""
    tx.execute(
        "UPDATE tasks SET asked_json=?, updated_at=? WHERE id=? AND owner=? AND status='working'",
        (canonical(asked), tx.now(), id, owner),
    )


def finish(tx: Tx, id: str, owner: str, status: Status, result_json: str | None) -> bool:
    """Keep what came of a task; whether it was still this owner's to end."""
    now = tx.now()
    row = tx.execute(
        "UPDATE tasks SET status=?, result_json=?, asked_json='{}', updated_at=?,"
        " expires_at=CASE WHEN expires_at>? THEN expires_at ELSE ? END"
        " WHERE id=? AND owner=? AND status='working' RETURNING id",
        (status, result_json, now, now + KEPT_AFTER, now + KEPT_AFTER, id, owner),
    ).fetchone()
    tx.touch(f"task:{id}")
    return row is not None


def take_over(tx: Tx, id: str, former: str, owner: str) -> bool:
    """Take a task of a host that is gone; whether nobody else did."""
    row = tx.execute(
        "UPDATE tasks SET owner=?, asked_json='{}', updated_at=? WHERE id=? AND owner=? AND status='working'"
        " RETURNING id",
        (owner, tx.now(), id, former),
    ).fetchone()
    return row is not None


def wish(tx: Tx, id: str, *, cancel: bool = False, dismissed: Sequence[str] = ()) -> None:
    """Tell the host that has the task what its client wants."""
    row = find(tx, id)
    if row is None or row.status != "working":
        return
    told = row.wish
    told["cancel"] = cancel or told.get("cancel", False)
    told["dismissed"] = sorted({*told.get("dismissed", ()), *dismissed})
    asked = {key: value for key, value in row.asked.items() if key not in dismissed}
    tx.execute(
        "UPDATE tasks SET wish_json=?, asked_json=?, updated_at=? WHERE id=?",
        (canonical(told), canonical(asked), tx.now(), id),
    )
    tx.touch(f"task:{id}")
