"""Bearer tokens: made, found by their digest, used, revoked. Events: `token.added`, `token.revoked`.

A token is 256 random bits, so a plain SHA-256 of it is as good as unguessable: a slow hash guards
what people choose, and would cost each request what it costs a thief. Only the digest is stored.
"""

# ruff: noqa: S608  # only this module's constants are spliced into SQL; values are always bound

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from packhost.errors import Conflict, NotFound
from packhost.journal import canonical
from packhost.rules.identities import Right, Role
from packhost.store.base import Reading, Tx
from packhost.store.rows import TokenRow

_COLUMNS = ", ".join(field.name for field in fields(TokenRow))


def add(
    tx: Tx,
    id: str,
    token_sha: str,
    *,
    name: str,
    role: Role,
    principal: str,
    scopes: Sequence[Right],
    expires_in: float | None,
    by: str,
) -> TokenRow:
    """Keep a new token; the record. `expires_in` is in seconds from now, `None` for never."""
    now = tx.now()
    expires_at = None if expires_in is None else now + expires_in
    tx.execute(
        "INSERT INTO tokens(id, workspace, token_sha, name, role, principal, scopes_json, created_by,"
        " created_at, expires_at) VALUES(?,?,?,?,?,?,?,?,?,?)",
        (id, tx.workspace, token_sha, name, role, principal, canonical(scopes), by, now, expires_at),
    )
    data = {
        "id": id,
        "name": name,
        "role": role,
        "principal": principal,
        "scopes": list(scopes),
        "expires_at": expires_at,
    }
    tx.emit("token.added", data, actor=by)
    return get(tx, id)


def revoke(tx: Tx, id: str, by: str) -> TokenRow:
    """Take a token back; the record. Raises `NotFound`, or `Conflict` when it was revoked."""
    if get(tx, id).revoked_at is not None:
        raise Conflict(f"token `{id}` was revoked already", hint="nothing is left to do")
    tx.execute("UPDATE tokens SET revoked_at=?, revoked_by=? WHERE id=?", (tx.now(), by, id))
    tx.emit("token.revoked", {"id": id}, actor=by)
    return get(tx, id)


def used(tx: Tx, id: str) -> None:
    """Note that a token was used; leaves no event."""
    tx.execute("UPDATE tokens SET last_used_at=? WHERE id=?", (tx.now(), id))


def by_digest(tx: Reading, token_sha: str) -> TokenRow | None:
    """The live token with this digest; `None` also for one that expired or was revoked."""
    row = tx.execute(
        f"SELECT {_COLUMNS} FROM tokens WHERE token_sha=? AND revoked_at IS NULL"
        " AND (expires_at IS NULL OR expires_at>?)",
        (token_sha, tx.now()),
    ).fetchone()
    return None if row is None else TokenRow(*row)


def counts(tx: Reading, id: str) -> bool:
    """Whether a token is neither revoked nor expired."""
    row = tx.execute(
        "SELECT 1 FROM tokens WHERE id=? AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at>?)",
        (id, tx.now()),
    ).fetchone()
    return row is not None


def get(tx: Reading, id: str) -> TokenRow:
    """A token. Raises `NotFound`."""
    row = tx.execute(f"SELECT {_COLUMNS} FROM tokens WHERE id=?", (id,)).fetchone()
    if row is None:
        raise NotFound(f"there is no token `{id}`", hint="list them with `packhost tokens list`")
    return TokenRow(*row)


def listing(tx: Reading, limit: int = 100) -> tuple[TokenRow, ...]:
    """Tokens, newest first, also those that count no more."""
    rows = tx.execute(f"SELECT {_COLUMNS} FROM tokens ORDER BY id DESC LIMIT ?", (limit,))
    return tuple(TokenRow(*row) for row in rows)
