"""The lifecycle of a run: created, claimed, paused, aborted, finished, interrupted.

A run is held by one owner in one epoch; every write of a holder names both, and one that was
overtaken meets a `Conflict`. Events: `run.queued`, `run.running`, `run.state`, `run.waiting`,
`run.pause_requested`, `run.abort_requested` and `run.<status>`. A renewed lease leaves none.
"""

# ruff: noqa: S608  # only this module's constants are spliced into SQL; values are always bound

from __future__ import annotations

from dataclasses import fields
from typing import Any

from packhost.errors import Code, Conflict, NotFound
from packhost.journal import digest
from packhost.store.base import Reading, Tx
from packhost.store.ops import approvals, questions
from packhost.store.rows import (
    DIRECT,
    EndStatus,
    ExecutionRow,
    ExecutionStatus,
    ExecutionSummary,
    NewExecution,
)

STEERING = "steering"
"""The topic of what is asked of runs that another process may hold."""
INTERRUPTED = "interrupted"
"""The topic of runs that nobody holds any more and that may go on."""
WAITING = "waiting"
"""The topic of runs that begin to wait for a time."""
_SUMMARY = ", ".join(field.name for field in fields(ExecutionSummary))
_WHOLE = ", ".join(field.name for field in fields(ExecutionRow))
_FLAGS = (13, 15, 21)
_LIVE = "status IN ('running','queued')"
"""As the index of live runs says it, so that it is used, however many have ended."""
_HELD = "id=? AND owner=? AND epoch=? AND status='running'"


def insert(tx: Tx, new: NewExecution, status: ExecutionStatus, owner: str | None, epoch: int) -> None:
    """Write a run's row, and nothing else; `create` and a direct call's start build on it."""
    now = tx.now()
    tx.execute(
        "INSERT INTO executions(id, workspace, kind, session_id, principal, client, parent, agent, status,"
        " owner, epoch, created_at, updated_at, spec_json) VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
        (
            new.id,
            tx.workspace,
            new.kind,
            new.session_id,
            new.principal,
            new.client,
            new.parent,
            new.agent,
            status,
            owner,
            epoch,
            now,
            now,
            new.spec_json,
        ),
    )


def create(tx: Tx, new: NewExecution) -> None:
    """Queue a run, in epoch 0. Raises `Conflict` when its id is taken."""
    if tx.execute("SELECT 1 FROM executions WHERE id=?", (new.id,)).fetchone():
        raise Conflict(f"run `{new.id}` exists already", hint="use another id")
    insert(tx, new, "queued", None, 0)
    tx.emit(
        "run.queued",
        {
            "kind": new.kind,
            "session_id": new.session_id,
            "client": new.client,
            "parent": new.parent,
            "agent": new.agent,
            "spec_sha": digest(new.spec_json),
        },
        execution_id=new.id,
        actor=new.principal,
    )


def claim(tx: Tx, id: str, owner: str, ttl: float, expected_epoch: int, *, background: bool = False) -> int:
    """Take a queued, paused or interrupted run for `ttl` seconds; the new epoch.

    Clears what was asked of its former holder. Once in the `background` it stays there. Raises
    `NotFound`, or `Conflict` with the status and epoch found: `CONTINUATION_IN_PROGRESS` while somebody
    holds it.
    """
    now = tx.now()
    row = tx.execute(
        "UPDATE executions SET status='running', owner=?, epoch=epoch+1, lease_until=?, pause_requested=0,"
        " paused_by=NULL, waiting_on=NULL, reason=NULL, background=CASE WHEN ?=1 THEN 1 ELSE background END,"
        " updated_at=? WHERE id=? AND status IN ('queued','paused','interrupted') AND epoch=?"
        " RETURNING epoch",
        (owner, now + ttl, int(background), now, id, expected_epoch),
    ).fetchone()
    if row is None:
        raise conflict(tx, id)
    tx.emit("run.running", {"owner": owner, "epoch": row[0]}, execution_id=id, actor=owner)
    return int(row[0])


def renew(tx: Tx, owner: str, ttl: float) -> tuple[str, ...]:
    """Prolong every unexpired lease of `owner` by `ttl` seconds from now; the runs it still holds."""
    now = tx.now()
    rows = tx.execute(
        f"UPDATE executions SET lease_until=? WHERE {_LIVE} AND owner=? AND status='running'"
        " AND lease_until>? RETURNING id",
        (now + ttl, owner, now),
    ).fetchall()
    return tuple(row[0] for row in rows)


def save_state(tx: Tx, id: str, owner: str, epoch: int, state_json: str) -> None:
    """Keep what a resumption needs. Raises `Conflict` when another holds the run."""
    _held(tx, id, owner, epoch)
    tx.execute("UPDATE executions SET state_json=?, updated_at=? WHERE id=?", (state_json, tx.now(), id))
    tx.emit("run.state", {"state_sha": digest(state_json)}, execution_id=id, actor=owner)


def set_waiting(tx: Tx, id: str, owner: str, epoch: int, waiting_on: str | None) -> None:
    """Say what a running run waits for; `None` when it goes on. Raises `Conflict` as `save_state`."""
    _held(tx, id, owner, epoch)
    tx.execute("UPDATE executions SET waiting_on=?, updated_at=? WHERE id=?", (waiting_on, tx.now(), id))
    tx.emit("run.waiting", {"waiting_on": waiting_on}, execution_id=id, actor=owner)


def request_pause(tx: Tx, id: str, by: str, reason: str = "") -> ExecutionStatus:
    """Ask a run to pause; its status now. One that does not run stays as it is.

    Raises `NotFound`, or `Conflict` when it has ended or is being aborted.
    """
    row = get(tx, id)
    if row.ended or row.abort_requested or row.kind == DIRECT:
        raise conflict(tx, id)
    if row.status in ("paused", "interrupted") or row.pause_requested:
        return row.status
    tx.execute(
        "UPDATE executions SET pause_requested=1, paused_by=?, reason=?, updated_at=? WHERE id=?",
        (by, reason or None, tx.now(), id),
    )
    tx.emit("run.pause_requested", {"reason": reason}, execution_id=id, actor=by)
    return row.status


def mark_paused(
    tx: Tx,
    id: str,
    owner: str,
    epoch: int,
    *,
    state_json: str | None = None,
    waiting_on: str | None = None,
    reason: str | None = None,
) -> ExecutionStatus:
    """Let go of a run that paused; state and reason left out stay. Its status now.

    One that was asked to abort meanwhile ends instead, since nobody would be left to end it.
    Raises `Conflict` as `save_state`.
    """
    _held(tx, id, owner, epoch)
    if get(tx, id).abort_requested:
        _end(tx, id, "aborted", "aborted", None, reason, owner)
        return "aborted"
    tx.execute(
        "UPDATE executions SET status='paused', owner=NULL, lease_until=NULL, pause_requested=0,"
        " waiting_on=?, state_json=COALESCE(?, state_json), reason=COALESCE(?, reason),"
        " updated_at=? WHERE id=?",
        (waiting_on, state_json, reason, tx.now(), id),
    )
    tx.emit("run.paused", {"waiting_on": waiting_on, "reason": reason}, execution_id=id, actor=owner)
    if waiting_on is not None:
        tx.touch(WAITING)
    return "paused"


def hand_over(tx: Tx, id: str, owner: str, epoch: int, state_json: str | None = None) -> ExecutionStatus:
    """Let go of a run at a safe point so that another replica takes it at once; its status now.

    One that was asked to pause or to abort pauses or ends instead. Raises `Conflict` as `save_state`.
    """
    _held(tx, id, owner, epoch)
    row = get(tx, id)
    if row.pause_requested or row.abort_requested:
        return mark_paused(tx, id, owner, epoch, state_json=state_json)
    if state_json is not None and state_json != row.state_json:
        save_state(tx, id, owner, epoch, state_json)
    interrupt(tx, row, owner, handed_over=True)
    return "interrupted"


def request_abort(tx: Tx, id: str, by: str, reason: str = "") -> ExecutionStatus:
    """Ask a run to end; its status now. One that nobody holds is aborted at once.

    A run asked to abort starts no further call. Raises `NotFound`, or `Conflict` when it has ended.
    """
    row = get(tx, id)
    if row.ended:
        raise conflict(tx, id)
    if row.status != "running":
        _end(tx, id, "aborted", "aborted", None, reason or None, by)
        return "aborted"
    if not row.abort_requested:
        tx.execute(
            "UPDATE executions SET abort_requested=1, reason=?, updated_at=? WHERE id=?",
            (reason or None, tx.now(), id),
        )
        tx.emit("run.abort_requested", {"reason": reason}, execution_id=id, actor=by)
        tx.touch(STEERING)
    return row.status


def finish(
    tx: Tx,
    id: str,
    owner: str,
    epoch: int,
    status: EndStatus,
    outcome: str,
    result_json: str | None = None,
    reason: str | None = None,
) -> None:
    """End a run; what it still asked of a person is cancelled. Raises `Conflict` as `save_state`."""
    _held(tx, id, owner, epoch)
    _end(tx, id, status, outcome, result_json, reason, owner)


def interrupt_orphans(tx: Tx, me: str) -> tuple[str, ...]:
    """At start, where one host alone has the store: take away every live run that another left; their ids."""
    return tuple(interrupt(tx, row, me) for row in live(tx, "owner IS NULL OR owner<>?", (me,)))


def interrupt(tx: Tx, row: ExecutionSummary, by: str, *, handed_over: bool = False) -> str:
    """Take a live run away from who held it; its id.

    A run becomes `interrupted`. Its started calls become `unknown`, or `error` with `CANCELLED`
    where they may safely be called again. A direct call's run cannot be resumed: it ends failed. A
    run that was asked to abort ends aborted.
    """
    now, status, outcome = tx.now(), "interrupted", None
    unknown = _lose_calls(tx, row.id, now)
    if row.kind == DIRECT:
        status, outcome = "failed", "EFFECTS_UNKNOWN" if unknown else "CANCELLED"
    elif row.abort_requested:
        status, outcome = "aborted", "aborted"
    tx.execute(
        "UPDATE executions SET status=?, outcome=?, owner=NULL, lease_until=NULL, epoch=epoch+1,"
        " pause_requested=0, updated_at=?, ended_at=? WHERE id=?",
        (status, outcome, now, now if outcome else None, row.id),
    )
    data: dict[str, Any] = {"owner": row.owner, "outcome": outcome, "unknown_calls": unknown}
    if handed_over:
        data["handed_over"] = True
    tx.emit(f"run.{status}", data, execution_id=row.id, actor=by)
    if status == "aborted":
        approvals.cancel_of_run(tx, row.id, by)
        questions.cancel_of_run(tx, row.id, by)
    if status == "interrupted":
        tx.touch(INTERRUPTED)
    return row.id


def live(
    tx: Reading, whose: str, params: tuple[Any, ...], limit: int = 1_000_000_000
) -> tuple[ExecutionSummary, ...]:
    """Runs and direct calls that are under way, the one whose lease ends first before the others."""
    rows = tx.execute(
        f"SELECT {_SUMMARY} FROM executions WHERE {_LIVE} AND ({whose})"
        " ORDER BY COALESCE(lease_until, 0), id LIMIT ?",
        (*params, limit),
    ).fetchall()
    return tuple(ExecutionSummary(*_typed(row)) for row in rows)


def get(tx: Reading, id: str) -> ExecutionRow:
    """A run. Raises `NotFound`."""
    row = tx.execute(f"SELECT {_WHOLE} FROM executions WHERE id=?", (id,)).fetchone()
    if row is None:
        raise NotFound(f"there is no run `{id}`", hint="list runs with `packhost runs list`")
    return ExecutionRow(*_typed(row))


def listing(
    tx: Reading,
    limit: int = 50,
    before: str | None = None,
    kind: str | None = None,
    *,
    direct: bool = True,
    principal: str | None = None,
) -> tuple[ExecutionSummary, ...]:
    """Runs, newest first, older than the run `before`; of one kind or principal, or without direct calls."""
    wanted, params = ["id<?"], [before or "\x7f"]
    if kind is not None:
        wanted.append("kind=?")
        params.append(kind)
    if principal is not None:
        wanted.append("principal=?")
        params.append(principal)
    if not direct or (kind is not None and kind != DIRECT):
        wanted.append(f"kind<>'{DIRECT}'")
    rows = tx.execute(
        f"SELECT {_SUMMARY} FROM executions WHERE {' AND '.join(wanted)} ORDER BY id DESC LIMIT ?",
        (*params, limit),
    )
    return tuple(ExecutionSummary(*_typed(row)) for row in rows)


def _typed(row: tuple[Any, ...]) -> list[Any]:
    values = list(row)
    for index in _FLAGS:
        values[index] = bool(values[index])
    return values


def _held(tx: Tx, id: str, owner: str, epoch: int) -> None:
    if tx.execute(f"SELECT 1 FROM executions WHERE {_HELD}", (id, owner, epoch)).fetchone() is None:
        raise conflict(tx, id)


def _end(
    tx: Tx, id: str, status: EndStatus, outcome: str, result_json: str | None, reason: str | None, by: str
) -> None:
    now = tx.now()
    tx.execute(
        "UPDATE executions SET status=?, outcome=?, result_json=?, reason=COALESCE(?, reason), owner=NULL,"
        " lease_until=NULL, waiting_on=NULL, pause_requested=0, paused_by=NULL, updated_at=?, ended_at=?"
        " WHERE id=?",
        (status, outcome, result_json, reason, now, now, id),
    )
    data = {
        "outcome": outcome,
        "reason": reason,
        "result_sha": None if result_json is None else digest(result_json),
    }
    tx.emit(f"run.{status}", data, execution_id=id, actor=by)
    approvals.cancel_of_run(tx, id, by)
    questions.cancel_of_run(tx, id, by)


def _lose_calls(tx: Tx, id: str, now: float) -> list[str]:
    tx.execute(
        "UPDATE calls SET status='error', code='CANCELLED', ended_at=?"
        " WHERE execution_id=? AND status='started' AND idempotent=1",
        (now, id),
    )
    lost = tx.execute(
        "UPDATE calls SET status='unknown', code='EFFECTS_UNKNOWN', ended_at=?"
        " WHERE execution_id=? AND status='started' RETURNING id",
        (now, id),
    ).fetchall()
    return [row[0] for row in lost]


def conflict(tx: Reading, id: str) -> Conflict:
    """Why a run cannot be had, as the error to raise. Raises `NotFound` when there is none."""
    row = get(tx, id)
    code: Code = "RESUME_STATE_CHANGED"
    what, hint = f"is {row.status}", f"look at it with `packhost runs show {id}`"
    if row.kind == DIRECT:
        what, hint = "is one direct call", "only runs of several turns can be paused or resumed"
    elif row.ended:
        hint = f"read its result with `packhost runs show {id}`, or start a new run"
    elif row.abort_requested:
        what = "is being aborted"
    elif row.status == "running":
        code, what = "CONTINUATION_IN_PROGRESS", "is running already"
    return Conflict(f"run `{id}` {what}", code=code, hint=hint, status=row.status, epoch=row.epoch)
