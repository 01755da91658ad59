"""Changes that join several of the store's own into one transaction."""

from __future__ import annotations

from collections.abc import Sequence

from packhost.errors import Conflict
from packhost.store.base import Reading, Tx
from packhost.store.ops import executions, sessions
from packhost.store.rows import DIRECT, ExecutionStatus, NewExecution

PERSON = "person:"
"""How `paused_by` begins when a person paused the run."""


def begin(tx: Tx, new: NewExecution, owner: str, ttl: float) -> int:
    """Create a run and take it at once; its epoch.

    Raises `Conflict` with `CONTINUATION_IN_PROGRESS` while another run of turns in the same session
    has not ended: two of them would write into one conversation.
    """
    row = tx.execute(
        "SELECT id, status FROM executions WHERE kind<>'call' AND session_id=?"
        " AND status IN ('queued','running','paused','interrupted') LIMIT 1",
        (new.session_id,),
    ).fetchone()
    if row is not None:
        raise Conflict(
            f"the session `{new.session_id}` has run `{row[0]}`, which is {row[1]}",
            code="CONTINUATION_IN_PROGRESS",
            hint="wait for it, resume it or abort it, or use another `session_id`",
            run_id=row[0],
            status=row[1],
        )
    executions.create(tx, new)
    return executions.claim(tx, new.id, owner, ttl, 0)


def save(tx: Tx, id: str, owner: str, epoch: int, state_json: str | None) -> tuple[bool, bool]:
    """Keep a run's state, when there is a new one; whether it is to pause, and to end.

    Raises `Conflict` when another holds the run.
    """
    if state_json is not None:
        executions.save_state(tx, id, owner, epoch, state_json)
    return wishes(tx, id)


def wishes(tx: Reading, id: str) -> tuple[bool, bool]:
    """Whether a run is to pause, and whether it is to end."""
    row = tx.execute("SELECT pause_requested, abort_requested FROM executions WHERE id=?", (id,)).fetchone()
    return bool(row[0]), bool(row[1])


def append(
    tx: Tx, id: str, owner: str, epoch: int, state_json: str, session_id: str, messages: Sequence[str]
) -> None:
    """Add to the history and keep the state that goes with it. Raises `Conflict` as `save`."""
    executions.save_state(tx, id, owner, epoch, state_json)
    sessions.append_messages(tx, session_id, id, messages)


def pause_for_person(tx: Tx, id: str, by: str, reason: str) -> ExecutionStatus:
    """Have a run pause until a person lets it go on, also one that paused for another reason.

    Raises `NotFound`, or `Conflict` when it has ended.
    """
    status = executions.request_pause(tx, id, by, reason)
    row = executions.get(tx, id)
    if row.paused_by != by:
        tx.execute("UPDATE executions SET paused_by=?, updated_at=? WHERE id=?", (by, tx.now(), id))
        tx.emit("run.pause_requested", {"reason": reason}, execution_id=id, actor=by)
    return status


def status(tx: Reading, id: str) -> ExecutionStatus:
    """A run's status alone."""
    found: ExecutionStatus = tx.execute("SELECT status FROM executions WHERE id=?", (id,)).fetchone()[0]
    return found


def abort(tx: Tx, id: str, by: str, reason: str) -> ExecutionStatus:
    """Ask a run of turns to end. Raises `NotFound`, or `Conflict` when it has ended or is a single call."""
    if executions.get(tx, id).kind == DIRECT:
        raise executions.conflict(tx, id)
    return executions.request_abort(tx, id, by, reason)
