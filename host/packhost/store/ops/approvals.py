"""Questions to people: one record a question, the first answer that decides wins, used once.

Events: `approval.requested`, `approval.answered`, `approval.approved`, `approval.denied`,
`approval.expired`, `approval.cancelled`; that one was used is in the call's `call.started`.
"""

# ruff: noqa: S608  # only this module's constants are spliced into SQL; values are always bound

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import Any

from packhost.errors import Conflict, NotFound
from packhost.journal import canonical
from packhost.rules.approvals import ApprovalStatus, Vote, tally
from packhost.store.base import Reading, Tx
from packhost.store.rows import ApprovalAnswer, ApprovalRow, NewApproval

_COLUMNS = ", ".join(field.name for field in fields(ApprovalRow))
PREVIEW = "preview"
"""The member of `told_json` that holds a whole preview, of which the prompt shows a part; in no event."""
_LIVE = "(status='pending' OR (status='approved' AND consumed_by IS NULL)) AND expires_at>?"


def request(tx: Tx, new: NewApproval) -> ApprovalRow:
    """Put a question, or attach to the live one with the same binding; the record that stands."""
    now = tx.now()
    live = find_live(tx, new.binding, now)
    if live is not None:
        return live
    tx.execute(
        "INSERT INTO approvals(id, workspace, execution_id, run_id, session_id, principal, client, tool,"
        " tool_version, binding, names_json, assurance, approvers_needed, prompt, args_json, status,"
        " answers_json, expires_at, created_at, told_json)"
        " VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,'pending','[]',?,?,?)",
        (
            new.id,
            tx.workspace,
            new.execution_id,
            new.run_id,
            new.session_id,
            new.principal,
            new.client,
            new.tool,
            new.tool_version,
            new.binding,
            canonical(new.names),
            new.assurance,
            new.approvers_needed,
            new.prompt,
            new.args_json,
            new.expires_at,
            now,
            new.told_json,
        ),
    )
    data = {
        "id": new.id,
        "tool": new.tool,
        "tool_version": new.tool_version,
        "names": new.names,
        "assurance": new.assurance,
        "approvers_needed": new.approvers_needed,
        "arguments": json.loads(new.args_json),
        "binding": new.binding,
        "client": new.client,
        "expires_at": new.expires_at,
        **{name: value for name, value in json.loads(new.told_json).items() if name != PREVIEW},
        "started_at": now,
        **({"subagent": dict(new.subagent)} if new.subagent else {}),
    }
    _record(tx, "approval.requested", new.id, data, new.run_id or new.execution_id, new.principal)
    return get(tx, new.id)


def told(row: ApprovalRow) -> dict[str, Any]:
    """Of the call that is asked for: how the run's model named it, its tool's kind, the run's turn, from 1.

    With them the seconds that a person has, when they were asked, and who may answer. What is not known is
    `None`.
    """
    known = json.loads(row.told_json)
    return {
        **{name: known.get(name) for name in ("tool_call_id", "tool_type", "iteration")},
        "timeout": known.get("timeout") or max(row.expires_at - row.created_at, 0.0),
        "started_at": row.created_at,
        "approver": "end-user" if known.get("approver") == "end-user" else "owner",
    }


def preview(row: ApprovalRow) -> str | None:
    """The whole of a preview that the prompt cuts, as it was when it was asked."""
    found = json.loads(row.told_json).get(PREVIEW)
    return found if isinstance(found, str) else None


def find_live(tx: Reading, binding: str, now: float) -> ApprovalRow | None:
    """The unexpired record for exactly this call that is pending, or approved and not yet used."""
    row = tx.execute(
        f"SELECT {_COLUMNS} FROM approvals WHERE binding=? AND {_LIVE} ORDER BY id LIMIT 1", (binding, now)
    ).fetchone()
    return None if row is None else ApprovalRow(*row)


def answer(tx: Tx, id: str, given: ApprovalAnswer) -> ApprovalRow:
    """Take a person's answer; the record after it, still pending when more people must agree.

    Raises `NotFound`, or `Conflict` when it was decided already (`data["status"]`,
    `data["decided_by"]`) or has expired (`APPROVAL_EXPIRED`).
    """
    row, now = get(tx, id), tx.now()
    if row.status != "pending" or row.expires_at <= now:
        raise _conflict(row, now)
    given = replace(given, at=given.at or now)
    answers = (*row.answers, given)
    votes = [Vote(each.by, each.verdict == "approve", each.assurance) for each in answers]
    status = tally(votes, row.approvers_needed, row.assurance)
    decided = status != "pending"
    tx.execute(
        "UPDATE approvals SET status=?, answers_json=?, decided_by=?, decided_channel=?, reason=?,"
        " decided_at=? WHERE id=?",
        (
            status,
            canonical([asdict(each) for each in answers]),
            given.by if decided else None,
            given.channel if decided else None,
            (given.reason or None) if decided else None,
            given.at if decided else None,
            id,
        ),
    )
    data = {
        "id": id,
        "tool": row.tool,
        "verdict": given.verdict,
        "channel": given.channel,
        "assurance": given.assurance,
        "reason": given.reason,
        "signature": given.signature,
        **({"role": given.role} if given.role else {}),
    }
    kind = f"approval.{status}" if decided else "approval.answered"
    _record(tx, kind, id, data, row.run_id or row.execution_id, given.by)
    return get(tx, id)


def consume(tx: Tx, id: str, binding: str, call_id: str, answers_json: str | None = None) -> None:
    """Use an approval up for one call; part of `calls.begin`.

    `answers_json` are the answers that whoever uses it has found good: with others it is not used.
    Raises `NotFound`, or `Conflict` with `data["status"]` and `data["consumed_by"]`.
    """
    now = tx.now()
    # the call's own row is the proof: that `consumed_by` was emptied makes no second use
    used = tx.execute("SELECT id FROM calls WHERE approval_id=? LIMIT 1", (id,)).fetchone()
    if used is not None:
        raise _conflict(replace(get(tx, id), consumed_by=used[0]), now)
    taken = tx.execute(
        "UPDATE approvals SET consumed_by=? WHERE id=? AND status='approved' AND consumed_by IS NULL"
        " AND binding=? AND expires_at>? AND answers_json=COALESCE(?, answers_json) RETURNING 1",
        (call_id, id, binding, now, answers_json),
    ).fetchone()
    if taken is None:
        row = get(tx, id)
        if answers_json not in (None, row.answers_json):
            raise Conflict(
                f"the answers to approval `{id}` changed while it was used",
                code="APPROVAL_REQUIRED",
                hint="make the call again to ask afresh",
                status=row.status,
                consumed_by=row.consumed_by,
            )
        if row.binding != binding:
            raise Conflict(
                f"approval `{id}` was given for another call",
                code="APPROVAL_REQUIRED",
                hint="ask for this call",
                status=row.status,
                consumed_by=row.consumed_by,
            )
        raise _conflict(row, now)
    tx.touch(f"approval:{id}")
    tx.touch("approvals")


def cancel(tx: Tx, id: str, by: str, reason: str = "") -> None:
    """Withdraw a pending question. Raises `NotFound`, or `Conflict` when it was decided."""
    row = get(tx, id)
    if row.status != "pending":
        raise _conflict(row, tx.now())
    _close(tx, row, "cancelled", by, reason)


def void(tx: Tx, id: str, by: str, reason: str) -> None:
    """Close an unused record, pending or approved, that can no longer count; nothing when it was closed."""
    row = get(tx, id)
    if row.consumed_by is None and row.status in ("pending", "approved"):
        _close(tx, row, "cancelled", by, reason)


def cancel_of_run(tx: Tx, run_id: str, by: str) -> tuple[str, ...]:
    """Withdraw what an ended run still asked; the ids."""
    rows = tx.execute(f"SELECT {_COLUMNS} FROM approvals WHERE run_id=? AND status='pending'", (run_id,))
    found = [ApprovalRow(*row) for row in rows.fetchall()]
    for row in found:
        _close(tx, row, "cancelled", by, "its run ended")
    return tuple(row.id for row in found)


def due(tx: Reading, now: float) -> bool:
    """Whether the time of a pending question is over; cheap, however many wait."""
    row = tx.execute("SELECT 1 FROM approvals WHERE status='pending' AND expires_at<=? LIMIT 1", (now,))
    return row.fetchone() is not None


def expire_due(tx: Tx) -> tuple[str, ...]:
    """Close every pending question whose time is over; the ids."""
    rows = tx.execute(
        f"SELECT {_COLUMNS} FROM approvals WHERE status='pending' AND expires_at<=? ORDER BY id", (tx.now(),)
    )
    found = [ApprovalRow(*row) for row in rows.fetchall()]
    for row in found:
        _close(tx, row, "expired", "host", "nobody answered in time")
    return tuple(row.id for row in found)


def denied_since(tx: Reading, binding: str, since: float) -> list[float]:
    """When this very call was denied, from `since` on, first to last."""
    rows = tx.execute(
        "SELECT decided_at FROM approvals WHERE binding=? AND status='denied' AND decided_at>=?"
        " ORDER BY decided_at",
        (binding, since),
    )
    return [row[0] for row in rows]


def waiting(tx: Reading, principal: str, client: str, now: float) -> int:
    """How many questions of a client wait for a person."""
    row = tx.execute(
        "SELECT count(*) FROM approvals WHERE status='pending' AND expires_at>? AND principal=? AND client=?",
        (now, principal, client),
    ).fetchone()
    return int(row[0])


def of_tool(tx: Reading, tool: str, since: float, limit: int = 1_000) -> tuple[ApprovalRow, ...]:
    """What people decided of a tool's calls from `since` on, newest first."""
    rows = tx.execute(
        f"SELECT {_COLUMNS} FROM approvals WHERE tool=? AND status IN ('approved','denied')"
        " AND decided_at>=? ORDER BY id DESC LIMIT ?",
        (tool, since, limit),
    )
    return tuple(ApprovalRow(*row) for row in rows)


def tools_approved(tx: Reading, since: float) -> tuple[str, ...]:
    """The tools of which people approved calls from `since` on."""
    rows = tx.execute(
        "SELECT DISTINCT tool FROM approvals WHERE status='approved' AND decided_at>=? ORDER BY tool",
        (since,),
    )
    return tuple(row[0] for row in rows)


def get(tx: Reading, id: str) -> ApprovalRow:
    """An approval. Raises `NotFound`."""
    row = tx.execute(f"SELECT {_COLUMNS} FROM approvals WHERE id=?", (id,)).fetchone()
    if row is None:
        raise NotFound(f"there is no approval `{id}`", hint="list them with `packhost approvals list`")
    return ApprovalRow(*row)


def listing(
    tx: Reading,
    status: ApprovalStatus | None = None,
    limit: int = 100,
    before: str | None = None,
    principal: str | None = None,
) -> tuple[ApprovalRow, ...]:
    """Approvals, newest first, older than the approval `before`; of one status or principal."""
    wanted, params = "id<?", [before or "\x7f"]
    if status is not None:
        wanted += " AND status=?"
        params.append(status)
    if principal is not None:
        wanted += " AND principal=?"
        params.append(principal)
    rows = tx.execute(
        f"SELECT {_COLUMNS} FROM approvals WHERE {wanted} ORDER BY id DESC LIMIT ?", (*params, limit)
    )
    return tuple(ApprovalRow(*row) for row in rows)


def _close(tx: Tx, row: ApprovalRow, status: ApprovalStatus, by: str, reason: str) -> None:
    tx.execute(
        "UPDATE approvals SET status=?, decided_by=?, reason=?, decided_at=? WHERE id=?",
        (status, by, reason or None, tx.now(), row.id),
    )
    data = {"id": row.id, "tool": row.tool, "reason": reason}
    _record(tx, f"approval.{status}", row.id, data, row.run_id or row.execution_id, by)


def _record(
    tx: Tx, kind: str, id: str, data: Mapping[str, object], execution_id: str | None, by: str
) -> None:
    tx.emit(kind, data, execution_id=execution_id, actor=by)
    tx.touch(f"approval:{id}")
    tx.touch("approvals")


def _conflict(row: ApprovalRow, now: float) -> Conflict:
    found: dict[str, Any] = {
        "status": row.status,
        "decided_by": row.decided_by,
        "consumed_by": row.consumed_by,
    }
    if row.consumed_by is not None:
        text = f"approval `{row.id}` was used by call `{row.consumed_by}`"
        return Conflict(text, hint="read that call's outcome, or ask again", **found)
    if row.status == "expired" or (row.status in ("pending", "approved") and row.expires_at <= now):
        text = f"approval `{row.id}` has expired"
        return Conflict(text, code="APPROVAL_EXPIRED", hint="make the call again to ask afresh", **found)
    if row.status == "denied":
        text = f"approval `{row.id}` was denied by `{row.decided_by}`"
        return Conflict(text, code="APPROVAL_DENIED", hint="make the call again to ask afresh", **found)
    if row.status == "pending":
        text = f"approval `{row.id}` was not answered yet"
        return Conflict(
            text, code="APPROVAL_REQUIRED", hint=f"decide it: `packhost approvals show {row.id}`", **found
        )
    return Conflict(f"approval `{row.id}` is {row.status}", hint="make the call again to ask afresh", **found)
