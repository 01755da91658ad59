"""Whose signatures count. Events: `operator.set`, `operator.removed`.

The row and the record in the state folder must name the same key: neither alone makes an operator.
"""

# ruff: noqa: S608  # only this module's constants are spliced into SQL; values are always bound

from __future__ import annotations

from dataclasses import fields

from packhost.errors import Conflict
from packhost.store.base import Reading, Tx
from packhost.store.rows import OperatorRow

_COLUMNS = ", ".join(field.name for field in fields(OperatorRow))


def current(tx: Reading) -> OperatorRow | None:
    """The present operator; `None` when none was set, or the last one was removed."""
    row = tx.execute(
        f"SELECT {_COLUMNS} FROM operators WHERE ended_at IS NULL ORDER BY id DESC LIMIT 1"
    ).fetchone()
    return None if row is None else OperatorRow(*row)


def succeed(
    tx: Tx, present: str | None, fingerprint: str | None, public_key: str, by: str, signature: str
) -> None:
    """Let one operator, or none, take over from the present one, both by fingerprint.

    Raises `Conflict` when the present one is another by now.
    """
    row = current(tx)
    if (row.fingerprint if row else None) != present:
        raise Conflict("the operator has changed meanwhile", hint="look at it: `packhost operator show`")
    now = tx.now()
    tx.execute("UPDATE operators SET ended_at=? WHERE ended_at IS NULL", (now,))
    data = {"from": present, "to": fingerprint, "signature": signature}
    if fingerprint is None:
        tx.emit("operator.removed", data, actor=by)
    else:
        tx.execute(
            "INSERT INTO operators(workspace, fingerprint, public_key, set_by, set_at) VALUES(?,?,?,?,?)",
            (tx.workspace, fingerprint, public_key, by, now),
        )
        tx.emit("operator.set", data, actor=by)
    tx.touch("operators")
