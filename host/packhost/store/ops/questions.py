"""Forms that a person fills in before a call: one record a call, answered once, used once.

Events: `question.asked`, `question.accepted`, `question.declined`, `question.cancelled`,
`question.expired`; none holds what the person gave.
"""

# ruff: noqa: S608  # only this module's constants are spliced into SQL; values are always bound

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from packhost.errors import Conflict, NotFound
from packhost.journal import canonical
from packhost.store.base import Reading, Tx

Status = Literal["pending", "accepted", "declined", "cancelled", "expired"]
KEPT = 7 * 86400.0
"""Seconds that a record that is over stays, for whoever asks what came of it."""


@dataclass(frozen=True, slots=True)
class NewQuestion:
    """A form to be filled in; `binding` is the keyed digest of the very call that it is for.

    `run_id` is set where a run makes the call, `tool_use_id` with it; `told` holds what events may show.
    """

    id: str
    session_id: str
    principal: str
    client: str
    tool: str
    tool_version: str
    binding: str
    prompt: str
    message: str
    schema_json: str
    expires_at: float
    told: Mapping[str, Any]
    run_id: str | None = None
    tool_use_id: str | None = None


@dataclass(frozen=True, slots=True)
class QuestionRow:
    """A form and what became of it; `consumed_by` is the call that used the answer up."""

    id: str
    workspace: str
    run_id: str | None
    tool_use_id: str | None
    session_id: str
    principal: str
    client: str
    tool: str
    tool_version: str
    binding: str
    prompt: str
    message: str
    schema_json: str
    told_json: str
    status: Status
    content_json: str | None
    answered_by: str | None
    channel: str | None
    created_at: float
    expires_at: float
    consumed_by: str | None

    @property
    def schema(self) -> dict[str, Any]:
        """The fields, as clients take them."""
        found: dict[str, Any] = json.loads(self.schema_json)
        return found

    @property
    def content(self) -> dict[str, Any]:
        """What the person gave."""
        found: dict[str, Any] = json.loads(self.content_json or "{}")
        return found

    @property
    def told(self) -> dict[str, Any]:
        """What whoever follows the run may know of the call."""
        found: dict[str, Any] = json.loads(self.told_json)
        return found


_COLUMNS = ", ".join(field.name for field in fields(QuestionRow))
_LIVE = "(status='pending' OR (status='accepted' AND consumed_by IS NULL)) AND expires_at>?"


def ask(tx: Tx, new: NewQuestion) -> QuestionRow:
    """Put a form, or attach to the live one for the same call; the record that stands."""
    now = tx.now()
    tx.execute("DELETE FROM questions WHERE expires_at<=?", (now - KEPT,))
    live = find_live(tx, new.binding, now)
    if live is not None:
        return live
    tx.execute(
        "INSERT INTO questions(id, workspace, run_id, tool_use_id, session_id, principal, client, tool,"
        " tool_version, binding, prompt, message, schema_json, told_json, status, created_at, expires_at)"
        " VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,'pending',?,?)",
        (
            new.id,
            tx.workspace,
            new.run_id,
            new.tool_use_id,
            new.session_id,
            new.principal,
            new.client,
            new.tool,
            new.tool_version,
            new.binding,
            new.prompt,
            new.message,
            new.schema_json,
            canonical(new.told),
            now,
            new.expires_at,
        ),
    )
    data = {**new.told, "id": new.id, "expires_at": new.expires_at}
    _record(tx, "asked", new.id, data, new.run_id, new.principal)
    return get(tx, new.id)


def find_live(tx: Reading, binding: str, now: float) -> QuestionRow | None:
    """The unexpired record for exactly this call that is open, or answered and not yet used."""
    row = tx.execute(
        f"SELECT {_COLUMNS} FROM questions WHERE binding=? AND {_LIVE} ORDER BY id LIMIT 1", (binding, now)
    ).fetchone()
    return None if row is None else QuestionRow(*row)


def answer(
    tx: Tx,
    id: str,
    status: Literal["accepted", "declined", "cancelled"],
    content: Mapping[str, Any] | None,
    by: str,
    channel: str,
    good_for: float,
) -> QuestionRow:
    """Take a person's answer, which was checked; it is good for `good_for` seconds.

    Raises `NotFound`, or `Conflict` when it was answered already or has expired.
    """
    row, now = get(tx, id), tx.now()
    if row.status != "pending" or row.expires_at <= now:
        raise _over(row, now)
    text = None if content is None else canonical(content)
    ends = row.expires_at if content is None else now + good_for
    tx.execute(
        "UPDATE questions SET status=?, content_json=?, answered_by=?, channel=?, expires_at=? WHERE id=?",
        (status, text, by, channel, ends, id),
    )
    data = {"id": id, "tool": row.tool, "channel": channel}
    _record(tx, status, id, data, row.run_id, by)
    return get(tx, id)


def use(tx: Tx, id: str, binding: str, call_id: str) -> None:
    """Use an answer up for one call. Raises `NotFound`, or `Conflict` where it cannot be used."""
    taken = tx.execute(
        "UPDATE questions SET consumed_by=? WHERE id=? AND status='accepted' AND consumed_by IS NULL"
        " AND binding=? AND expires_at>? RETURNING 1",
        (call_id, id, binding, tx.now()),
    ).fetchone()
    if taken is None:
        raise _over(get(tx, id), tx.now())


def cancel_of_run(tx: Tx, run_id: str, by: str) -> None:
    """Withdraw what an ended run still asked."""
    _close(tx, "run_id=?", (run_id,), "cancelled", by)


def withdraw(tx: Tx, id: str, by: str) -> None:
    """Withdraw one question: whatever asked it is gone."""
    _close(tx, "id=?", (id,), "cancelled", by)


def expire_due(tx: Tx) -> None:
    """Close every open form whose time is over."""
    _close(tx, "expires_at<=?", (tx.now(),), "expired", "host")


def due(tx: Reading, now: float) -> bool:
    """Whether the time of an open form is over."""
    row = tx.execute("SELECT 1 FROM questions WHERE status='pending' AND expires_at<=? LIMIT 1", (now,))
    return row.fetchone() is not None


def get(tx: Reading, id: str) -> QuestionRow:
    """A form. Raises `NotFound`."""
    row = tx.execute(f"SELECT {_COLUMNS} FROM questions WHERE id=?", (id,)).fetchone()
    if row is None:
        raise NotFound(f"there is no question `{id[:80]}`", hint="list them with `packhost questions list`")
    return QuestionRow(*row)


def listing(
    tx: Reading,
    status: Status | None = "pending",
    limit: int = 100,
    principal: str | None = None,
    before: str | None = None,
) -> tuple[QuestionRow, ...]:
    """Forms, newest first, older than the form `before`; of one status, of one principal, or all."""
    wanted, params = ["id<?"], list[Any]([before or "\x7f"])
    for column, value in (("status", status), ("principal", principal)):
        if value is not None:
            wanted.append(f"{column}=?")
            params.append(value)
    rows = tx.execute(
        f"SELECT {_COLUMNS} FROM questions WHERE {' AND '.join(wanted)} ORDER BY id DESC LIMIT ?",
        (*params, limit),
    )
    return tuple(QuestionRow(*row) for row in rows)


def _close(tx: Tx, which: str, params: tuple[Any, ...], status: Status, by: str) -> None:
    rows = tx.execute(f"SELECT {_COLUMNS} FROM questions WHERE status='pending' AND {which}", params)
    for row in [QuestionRow(*one) for one in rows.fetchall()]:
        tx.execute("UPDATE questions SET status=? WHERE id=?", (status, row.id))
        _record(tx, status, row.id, {"id": row.id, "tool": row.tool}, row.run_id, by)


def _record(tx: Tx, what: str, id: str, data: Mapping[str, Any], run_id: str | None, by: str) -> None:
    tx.emit(f"question.{what}", data, execution_id=run_id, actor=by)
    tx.touch(f"question:{id}")
    tx.touch("approvals")  # whoever looks for what waits for people looks for both


def _over(row: QuestionRow, now: float) -> Conflict:
    known: dict[str, Any] = {"status": row.status, "consumed_by": row.consumed_by}
    if row.status in ("pending", "accepted") and row.expires_at <= now:
        said = f"question `{row.id}` has expired"
        return Conflict(said, code="APPROVAL_EXPIRED", hint="make the call again to ask afresh", **known)
    if row.consumed_by is not None:
        said = f"the answer to question `{row.id}` was used by call `{row.consumed_by}`"
    else:
        said = f"question `{row.id}` is {row.status} already"
    return Conflict(said, hint="make the call again to ask afresh", **known)
