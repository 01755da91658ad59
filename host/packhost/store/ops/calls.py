"""Calls: the intent before the effect, the outcome after it, and refusals.

Events: `call.started`, `call.ok`, `call.error`, `call.unknown`, `call.refused`. A direct call's
run is created and ended with it and leaves no events of its own.
"""

# ruff: noqa: S608  # only this module's constants are spliced into SQL; values are always bound

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from packhost.errors import Conflict, NotFound
from packhost.journal import canonical, digest
from packhost.store.base import Reading, Tx
from packhost.store.ops import approvals, executions, grants
from packhost.store.rows import DIRECT, CallEnd, CallRow, NewCall, RefusedCall

_COLUMNS = ", ".join(field.name for field in fields(CallRow))
_IDEMPOTENT = 8
_FENCED = "id=? AND owner=? AND epoch=? AND status='running' AND abort_requested=0"
_INSERT = (
    "INSERT INTO calls(id, execution_id, step, epoch, tool, tool_version, args_json, args_digest, idempotent,"
    " idem_key, tool_use_id, approval_id, grant_id, enforcement, status, started_at)"
    " VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,'started',?)"
)


def begin(tx: Tx, new: NewCall, fence: Callable[[], None] | None = None) -> int:
    """Record the intent of a call, before its effect; its step.

    Uses up the approval and the grant that it names, and creates a direct call's run.
    Raises `Conflict` when the approval was used (`data["consumed_by"]`), decided otherwise or
    expired, the grant is spent, the run is held by another or being aborted, or the idempotency
    key was used by a call that may not be repeated (`data["call_id"]`). Raises what `fence` raises,
    which is asked first: whether something that was queued before the intent is written.
    """
    if fence is not None:
        fence()
    if new.idem_key is not None:
        _unused(tx, new.idem_key, new)
    if new.execution is None:
        _fence(tx, new)
    step = new.step
    if step is None:
        step = 1 if new.execution is not None else _next_step(tx, new.execution_id)
    if new.grant_id is not None:
        grants.check(tx, new.grant_id)
    if new.approval_id is not None:
        approvals.consume(tx, new.approval_id, new.binding or "", new.id, new.answers_json)
    if new.grant_id is not None:
        grants.use(tx, new.grant_id)
    if new.execution is not None:
        executions.insert(tx, new.execution, "running", new.owner, new.epoch)
    tx.execute(
        _INSERT,
        (
            new.id,
            new.execution_id,
            step,
            new.epoch,
            new.tool,
            new.tool_version,
            new.args_json,
            new.args_digest,
            new.idempotent,
            new.idem_key,
            new.tool_use_id,
            new.approval_id,
            new.grant_id,
            new.enforcement,
            tx.now(),
        ),
    )
    tx.emit(
        "call.started", _intent(new, step), execution_id=new.execution_id, call_id=new.id, actor=new.actor
    )
    return step


def end(
    tx: Tx,
    call_id: str,
    status: CallEnd,
    code: str | None = None,
    result_json: str | None = None,
    *,
    finish_execution: bool = False,
) -> None:
    """Record how a call ended; with `finish_execution` the direct call's run ends with it.

    A fact about the world, so taken even from a holder that was overtaken, and after the call was
    already given up as `unknown`. Raises `NotFound`, or `Conflict` when its end is known.
    """
    now = tx.now()
    row = tx.execute(
        "UPDATE calls SET status=?, code=?, result_json=?, ended_at=? WHERE id=?"
        " AND status IN ('started','unknown') RETURNING execution_id, tool, enforcement",
        (status, code, result_json, now, call_id),
    ).fetchone()
    if row is None:
        found = by_id(tx, call_id)
        raise Conflict(
            f"call `{call_id}` ended already", hint="its first outcome stands", status=found.status
        )
    execution_id, tool, enforcement = row
    if finish_execution:
        tx.execute(
            "UPDATE executions SET status=?, outcome=?, owner=NULL, lease_until=NULL, updated_at=?,"
            f" ended_at=? WHERE id=? AND kind='{DIRECT}'",
            ("completed" if status == "ok" else "failed", code or status, now, now, execution_id),
        )
    data = {
        "tool": tool,
        "code": code,
        "enforcement": enforcement,
        "result_sha": None if result_json is None else digest(result_json),
    }
    tx.emit(f"call.{status}", data, execution_id=execution_id, call_id=call_id, actor="host")


def record_refusal(tx: Tx, refused: RefusedCall) -> None:
    """Leave an event for a call that did not start, and no row."""
    data = {
        **json.loads(refused.detail_json),
        "tool": refused.tool,
        "tool_version": refused.tool_version,
        "arguments": None if refused.args_json is None else json.loads(refused.args_json),
        "code": refused.code,
        "message": refused.message,
        "session_id": refused.session_id,
        "principal": refused.principal,
        "client": refused.client,
        "approval_id": refused.approval_id,
    }
    tx.emit("call.refused", data, execution_id=refused.execution_id, actor=refused.actor)


def of_execution(tx: Reading, execution_id: str) -> tuple[CallRow, ...]:
    """A run's calls in the order of their steps."""
    rows = tx.execute(f"SELECT {_COLUMNS} FROM calls WHERE execution_id=? ORDER BY step", (execution_id,))
    return tuple(_row(row) for row in rows)


def of_tool(tx: Reading, tool: str, since: float, limit: int = 1_000) -> tuple[CallRow, ...]:
    """A tool's calls that were started from `since` on, newest first."""
    rows = tx.execute(
        f"SELECT {_COLUMNS} FROM calls WHERE tool=? AND started_at>=? ORDER BY started_at DESC LIMIT ?",
        (tool, since, limit),
    )
    return tuple(_row(row) for row in rows)


def by_id(tx: Reading, call_id: str) -> CallRow:
    """A call. Raises `NotFound`."""
    row = tx.execute(f"SELECT {_COLUMNS} FROM calls WHERE id=?", (call_id,)).fetchone()
    if row is None:
        raise NotFound(f"there is no call `{call_id}`", hint="find it with `packhost runs events`")
    return _row(row)


def by_key(tx: Reading, idem_key: str) -> CallRow | None:
    """The call that was made last under a key."""
    row = tx.execute(f"SELECT {_COLUMNS} FROM calls WHERE idem_key=?", (idem_key,)).fetchone()
    return None if row is None else _row(row)


def repeatable(row: CallRow) -> bool:
    """Whether a call did not do anything, or may be made again without doing it twice."""
    if row.status == "error" and row.code == "CANCELLED":
        return row.idempotent or row.result_json is None
    return row.idempotent and row.status in ("started", "unknown")


def runs_of(tx: Reading, execution_id: str) -> tuple[str, ...]:
    """The runs that a direct call started, in order."""
    rows = tx.execute(
        f"SELECT id FROM executions WHERE kind<>'{DIRECT}' AND parent=? ORDER BY id", (execution_id,)
    )
    return tuple(row[0] for row in rows)


def _row(row: tuple[Any, ...]) -> CallRow:
    values = list(row)
    values[_IDEMPOTENT] = bool(values[_IDEMPOTENT])
    return CallRow(*values)


def _unused(tx: Tx, idem_key: str, new: NewCall) -> None:
    row = by_key(tx, idem_key)
    if row is None:
        return
    if row.idempotent or repeatable(row):  # made again, it takes the key over
        tx.execute("UPDATE calls SET idem_key=NULL WHERE id=?", (row.id,))
        return
    if (row.tool, row.args_digest) != (new.tool, new.args_digest):
        raise Conflict(
            f"the idempotency key `{idem_key}` was used for another call, of `{row.tool}`",
            code="INVALID_INPUT",
            hint="use a new key for each call",
        )
    raise Conflict(
        f"the idempotency key `{idem_key}` was used by call `{row.id}`",
        code="CONTINUATION_IN_PROGRESS" if row.status == "started" else None,
        hint="read that call's outcome, or use a new key",
        call_id=row.id,
        status=row.status,
    )


def _fence(tx: Tx, new: NewCall) -> None:
    held = tx.execute(f"SELECT 1 FROM executions WHERE {_FENCED}", (new.execution_id, new.owner, new.epoch))
    if held.fetchone() is None:
        raise executions.conflict(tx, new.execution_id)


def _next_step(tx: Tx, execution_id: str) -> int:
    row = tx.execute("SELECT COALESCE(MAX(step), 0) + 1 FROM calls WHERE execution_id=?", (execution_id,))
    return int(row.fetchone()[0])


def _intent(new: NewCall, step: int) -> str:
    """The event's data, around the arguments' text as it is: it is not parsed again."""
    first = canonical({"approval_id": new.approval_id, "args_digest": new.args_digest})
    rest = {
        "enforcement": new.enforcement,
        "grant_id": new.grant_id,
        "idempotent": new.idempotent,
        "step": step,
        "tool": new.tool,
        "tool_use_id": new.tool_use_id,
        "tool_version": new.tool_version,
    }
    if new.execution is not None:
        rest["client"] = new.execution.client
        rest["session_id"] = new.execution.session_id
    if new.inputs_json is not None:
        rest["inputs"] = json.loads(new.inputs_json)
    return f'{first[:-1]},"arguments":{new.args_json},{canonical(rest)[1:]}'
