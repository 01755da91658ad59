"""Requests that their client named by a key, so that none is taken for another; kept for a day."""

from __future__ import annotations

from packhost.errors import Conflict
from packhost.store.base import Tx


class KeyTaken(Conflict):
    """The key stands for another request."""


KEPT = 86_400.0
"""Seconds after which a key may be used for something else."""


def claim(tx: Tx, principal: str, key: str, request_sha: str) -> None:
    """Note what a principal asked for under a key; the same again changes nothing.

    Raises `KeyTaken` when it stands for another request.
    """
    now = tx.now()
    tx.execute("DELETE FROM requests WHERE created_at<?", (now - KEPT,))
    row = tx.execute(
        "SELECT request_sha FROM requests WHERE principal=? AND idem_key=?", (principal, key)
    ).fetchone()
    if row is None:
        tx.execute(
            "INSERT INTO requests(principal, idem_key, request_sha, created_at) VALUES(?,?,?,?)",
            (principal, key, request_sha, now),
        )
    elif row[0] != request_sha:
        raise KeyTaken(f"the key `{key}` was used for another request", hint="use a new key for each request")
