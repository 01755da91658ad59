"""Binary results, kept for a while. An asset belongs to a principal and a family of sessions.

Event: `asset.kept`, without the content.
"""

from __future__ import annotations

from dataclasses import fields

from packhost.errors import PackhostError
from packhost.store.base import Reading, Tx
from packhost.store.rows import AssetRow

_COLUMNS = ", ".join(field.name for field in fields(AssetRow))
_DEEPEST = 64


def keep(
    tx: Tx,
    id: str,
    session_id: str,
    principal: str,
    media_type: str,
    data: str,
    size: int,
    sha: str,
    lifetime: float,
    total: int,
) -> AssetRow:
    """Keep one; those whose time is over go first. Raises `PackhostError` with `LIMIT_EXCEEDED`."""
    now = tx.now()
    tx.execute("DELETE FROM assets WHERE expires_at<=?", (now,))
    held = tx.execute("SELECT COALESCE(SUM(size), 0) FROM assets WHERE principal=?", (principal,)).fetchone()
    if int(held[0]) + size > total:
        raise PackhostError(
            f"more than {total} bytes of binary results are kept",
            code="LIMIT_EXCEEDED",
            hint="wait, or ask for less",
        )
    root = root_of(tx, session_id)
    row = AssetRow(id, tx.workspace, root, principal, media_type, size, sha, data, now, now + lifetime)
    marks = ",".join("?" * len(fields(AssetRow)))
    tx.execute(
        f"INSERT INTO assets({_COLUMNS}) VALUES({marks})",
        tuple(getattr(row, field.name) for field in fields(AssetRow)),
    )
    told = {"id": id, "session_id": session_id, "media_type": media_type, "size": size, "sha256": sha}
    tx.emit("asset.kept", told, actor=principal)
    return row


def find(tx: Reading, id: str, session_id: str, principal: str) -> AssetRow | None:
    """The asset, where it is this principal's, of this family of sessions, and its time is not over."""
    row = tx.execute(
        f"SELECT {_COLUMNS} FROM assets WHERE id=? AND principal=? AND session_root=? AND expires_at>?",  # noqa: S608
        (id, principal, root_of(tx, session_id), tx.now()),
    ).fetchone()
    return None if row is None else AssetRow(*row)


def root_of(tx: Reading, session_id: str) -> str:
    """The first session of a family: the one that no other opened."""
    for _ in range(_DEEPEST):
        row = tx.execute("SELECT parent FROM sessions WHERE id=?", (session_id,)).fetchone()
        if row is None or row[0] is None:
            return session_id
        session_id = str(row[0])
    return session_id
