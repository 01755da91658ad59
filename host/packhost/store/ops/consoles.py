"""Who is signed in to a console, and the passkeys that speak for the operator.

Of a session's secret only the digest is stored; like a token's it is 256 random bits. A passkey's row
proves nothing by itself: the operator's signature over it does. Events: `console.entered`, `console.left`,
`passkey.added`, `passkey.removed`.
"""

# ruff: noqa: S608  # only this module's constants are spliced into SQL; values are always bound

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final, Literal

from packhost.errors import Conflict, NotFound
from packhost.journal import canonical
from packhost.rules.identities import Right, Role
from packhost.store.base import Reading, Tx

Way = Literal["ticket", "token", "foreign-token", "passphrase", "passkey"]
"""How somebody signed in; `foreign-token` by a token from another account's process, or by a proxy's."""
LONGEST: Final = 12 * 3_600.0
"""Seconds after which a session ends, whatever is done in it."""
IDLE: Final = 3_600.0
"""Seconds after which one ends in which nothing was done."""
_KEPT: Final = 7 * 86_400.0
"""Seconds for which an ended session can still be seen."""


@dataclass(frozen=True, slots=True)
class ConsoleRow:
    """One session; `token_id` is the token's that it was opened with, and that it ends with."""

    id: str
    principal: str
    role: Role
    scopes_json: str
    way: Way
    token_id: str | None
    created_at: float
    seen_at: float
    expires_at: float
    ended_at: float | None

    @property
    def scopes(self) -> tuple[Right, ...]:
        """What may be done in it."""
        return tuple(json.loads(self.scopes_json))


@dataclass(frozen=True, slots=True)
class PasskeyRow:
    """An authenticator's public half, base64url, with the operator's signature over all of it."""

    id: str
    credential: str
    public_key: str
    rp_id: str
    name: str
    added_by: str
    added_at: float
    signature: str


_SESSION = ", ".join(field.name for field in fields(ConsoleRow))
_PASSKEY = ", ".join(field.name for field in fields(PasskeyRow))
_LIVE = (
    "ended_at IS NULL AND expires_at>? AND seen_at>? AND (token_id IS NULL OR EXISTS("
    "SELECT 1 FROM tokens WHERE tokens.id=console_sessions.token_id AND tokens.revoked_at IS NULL"
    " AND (tokens.expires_at IS NULL OR tokens.expires_at>?)))"
)


def enter(
    tx: Tx,
    id: str,
    secret_sha: str,
    *,
    principal: str,
    role: Role,
    scopes: Sequence[Right],
    way: Way,
    token_id: str | None = None,
) -> ConsoleRow:
    """Open a session; those that ended long ago are forgotten."""
    now = tx.now()
    tx.execute("DELETE FROM console_sessions WHERE expires_at<?", (now - _KEPT,))
    tx.execute(
        "INSERT INTO console_sessions(id, workspace, secret_sha, principal, role, scopes_json, way, token_id,"
        " created_at, seen_at, expires_at) VALUES(?,?,?,?,?,?,?,?,?,?,?)",
        (
            id,
            tx.workspace,
            secret_sha,
            principal,
            role,
            canonical(sorted(scopes)),
            way,
            token_id,
            now,
            now,
            now + LONGEST,
        ),
    )
    tx.emit("console.entered", {"id": id, "role": role, "way": way, "token_id": token_id}, actor=principal)
    return get(tx, id)


def by_digest(tx: Reading, secret_sha: str) -> ConsoleRow | None:
    """The session with this digest; `None` also for one that is over, or whose token counts no more."""
    now = tx.now()
    row = tx.execute(
        f"SELECT {_SESSION} FROM console_sessions WHERE secret_sha=? AND {_LIVE}",
        (secret_sha, now, now - IDLE, now),
    ).fetchone()
    return None if row is None else ConsoleRow(*row)


def seen(tx: Tx, id: str) -> None:
    """Note that something was done in a session; leaves no event."""
    tx.execute("UPDATE console_sessions SET seen_at=? WHERE id=?", (tx.now(), id))


def leave(tx: Tx, id: str, by: str) -> None:
    """End a session; nothing when it was over. Raises `NotFound`."""
    if get(tx, id).ended_at is None:
        tx.execute("UPDATE console_sessions SET ended_at=? WHERE id=?", (tx.now(), id))
        tx.emit("console.left", {"id": id}, actor=by)


def get(tx: Reading, id: str) -> ConsoleRow:
    """A session. Raises `NotFound`."""
    row = tx.execute(f"SELECT {_SESSION} FROM console_sessions WHERE id=?", (id,)).fetchone()
    if row is None:
        raise NotFound(f"there is no session `{id}` of a console", hint="it may have ended long ago")
    return ConsoleRow(*row)


def live(tx: Reading) -> tuple[ConsoleRow, ...]:
    """The sessions that count, newest first."""
    now = tx.now()
    rows = tx.execute(
        f"SELECT {_SESSION} FROM console_sessions WHERE {_LIVE} ORDER BY id DESC LIMIT 200",
        (now, now - IDLE, now),
    )
    return tuple(ConsoleRow(*row) for row in rows)


def add_passkey(tx: Tx, new: PasskeyRow) -> PasskeyRow:
    """Keep a passkey that was checked. Raises `Conflict` when it is known already."""
    if tx.execute("SELECT 1 FROM passkeys WHERE credential=?", (new.credential,)).fetchone() is not None:
        raise Conflict("this passkey is set up already", hint="remove it first")
    names = [field.name for field in fields(PasskeyRow)]
    tx.execute(
        f"INSERT INTO passkeys(workspace, {_PASSKEY}) VALUES(?{',?' * len(names)})",
        (tx.workspace, *(getattr(new, name) for name in names)),
    )
    data = {"id": new.id, "name": new.name, "credential": new.credential, "rp_id": new.rp_id}
    tx.emit("passkey.added", {**data, "signature": new.signature}, actor=new.added_by)
    return new


def remove_passkey(tx: Tx, id: str, by: str) -> PasskeyRow:
    """Forget a passkey whole, so that nothing is left to be marked as good again. Raises `NotFound`."""
    row = next((one for one in passkeys(tx) if one.id == id), None)
    if row is None:
        raise NotFound(f"there is no passkey `{id}`", hint="it may have been removed already")
    tx.execute("DELETE FROM passkeys WHERE id=?", (id,))
    tx.emit("passkey.removed", {"id": id, "name": row.name, "credential": row.credential}, actor=by)
    return row


def passkeys(tx: Reading) -> tuple[PasskeyRow, ...]:
    """Every passkey, oldest first; whether one counts is for its signature to say."""
    return tuple(PasskeyRow(*row) for row in tx.execute(f"SELECT {_PASSKEY} FROM passkeys ORDER BY id"))


def waiting(tx: Reading) -> int:
    """How many questions wait for a person, approvals and others."""
    now = tx.now()
    row = tx.execute(
        "SELECT (SELECT count(*) FROM approvals WHERE status='pending' AND expires_at>?)"
        " + (SELECT count(*) FROM questions WHERE status='pending' AND expires_at>?)",
        (now, now),
    ).fetchone()
    return int(row[0])
