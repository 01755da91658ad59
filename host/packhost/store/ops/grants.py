"""Standing permissions: given, used, revoked. Events: `grant.added`, `grant.revoked`; a use is in
its call's `call.started`."""

# ruff: noqa: S608  # only this module's constants are spliced into SQL; values are always bound

from __future__ import annotations

import json
from dataclasses import fields

from packhost.errors import Conflict, NotFound
from packhost.store.base import Reading, Tx
from packhost.store.rows import GrantRow, NewGrant

_COLUMNS = ", ".join(field.name for field in fields(GrantRow))
_LIVE = "revoked_at IS NULL AND (expires_at IS NULL OR expires_at>?) AND (max_uses IS NULL OR uses<max_uses)"


def add(tx: Tx, new: NewGrant) -> GrantRow:
    """Give a grant; the record. Raises `Conflict` when its id is taken."""
    if tx.execute("SELECT 1 FROM grants WHERE id=?", (new.id,)).fetchone():
        raise Conflict(f"grant `{new.id}` exists already", hint="use another id")
    tx.execute(
        "INSERT INTO grants(id, workspace, principal, agent, tool, tool_version, match_json, created_by,"
        " created_at, expires_at, uses, max_uses, hidden) VALUES(?,?,?,?,?,?,?,?,?,?,0,?,?)",
        (
            new.id,
            tx.workspace,
            new.principal,
            new.agent,
            new.tool,
            new.tool_version,
            new.match_json,
            new.created_by,
            tx.now(),
            new.expires_at,
            new.max_uses,
            new.hidden,
        ),
    )
    data = {
        "id": new.id,
        "tool": new.tool,
        "tool_version": new.tool_version,
        "match": json.loads(new.match_json),
        "principal": new.principal,
        "agent": new.agent,
        "expires_at": new.expires_at,
        "max_uses": new.max_uses,
        "note": new.note,
    }
    tx.emit("grant.added", data, actor=new.created_by)
    tx.touch("grants")
    return get(tx, new.id)


def revoke(tx: Tx, id: str, by: str) -> GrantRow:
    """Take a grant back; the record. Raises `NotFound`, or `Conflict` when it was revoked."""
    row = get(tx, id)
    if row.revoked_at is not None:
        raise Conflict(f"grant `{id}` was revoked already", hint="nothing is left to do")
    tx.execute("UPDATE grants SET revoked_at=? WHERE id=?", (tx.now(), id))
    tx.emit("grant.revoked", {"id": id, "tool": row.tool}, actor=by)
    tx.touch("grants")
    return get(tx, id)


def check(tx: Reading, id: str) -> None:
    """Raise `Conflict` unless the grant can be used now; `NotFound` when there is none."""
    if tx.execute(f"SELECT 1 FROM grants WHERE id=? AND {_LIVE}", (id, tx.now())).fetchone() is None:
        get(tx, id)
        raise Conflict(
            f"grant `{id}` no longer holds", code="APPROVAL_REQUIRED", hint="make the call again to be asked"
        )


def use(tx: Tx, id: str) -> None:
    """Count one use; part of `calls.begin`, after `check`."""
    tx.execute("UPDATE grants SET uses=uses+1 WHERE id=?", (id,))


def for_tool(tx: Reading, tool: str, now: float) -> tuple[GrantRow, ...]:
    """The live grants for a tool (`pack:tool`), oldest first; whom and what they cover is for the rules."""
    rows = tx.execute(f"SELECT {_COLUMNS} FROM grants WHERE tool=? AND {_LIVE} ORDER BY id", (tool, now))
    return tuple(GrantRow(*row) for row in rows)


def get(tx: Reading, id: str) -> GrantRow:
    """A grant. Raises `NotFound`."""
    row = tx.execute(f"SELECT {_COLUMNS} FROM grants WHERE id=?", (id,)).fetchone()
    if row is None:
        raise NotFound(f"there is no grant `{id}`", hint="list them with `packhost grants list --all`")
    return GrantRow(*row)


def listing(
    tx: Reading, *, live: bool = True, limit: int = 100, before: str | None = None
) -> tuple[GrantRow, ...]:
    """Grants, newest first, older than the grant `before`; with `live` only those that can be used now."""
    older = before or "\x7f"
    if live:
        rows = tx.execute(
            f"SELECT {_COLUMNS} FROM grants WHERE {_LIVE} AND id<? ORDER BY id DESC LIMIT ?",
            (tx.now(), older, limit),
        )
    else:
        rows = tx.execute(
            f"SELECT {_COLUMNS} FROM grants WHERE id<? ORDER BY id DESC LIMIT ?", (older, limit)
        )
    return tuple(GrantRow(*row) for row in rows)
