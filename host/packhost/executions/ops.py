"""Changes that join several of the store's own into one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from packhost.errors import Conflict, PackhostError
from packhost.store.base import Reading, Tx
from packhost.store.ops import executions, sessions
from packhost.store.rows import DIRECT, ExecutionRow, ExecutionStatus, NewExecution

PERSON = "person:"
"""How `paused_by` begins when a person paused the run."""
HOST = "host:"
"""How whoever resumes begins, where a host does so by itself."""
TIME = "time:"
"""How `waiting_on` begins when the run goes on by itself at a time."""
DEEPEST = 16
"""So many runs may wait for each other, one below the other."""
_LAST_TIME = 253_000_000_000.0
"""In the year 9987: no driver's arithmetic makes a run that cannot be written down."""


def begin(tx: Tx, new: NewExecution, owner: str, ttl: float, background: bool = False) -> int:
    """Create a run and take it at once; its epoch.

    Raises `Conflict` with `CONTINUATION_IN_PROGRESS` while another run of turns in the same session
    has not ended: two of them would write into one conversation. A run's branches are sessions whose
    names begin with its own.
    """
    row = tx.execute(
        "SELECT id, status FROM executions WHERE kind<>'call' AND (session_id=? OR id=?)"
        " AND status IN ('queued','running','paused','interrupted') LIMIT 1",
        (new.session_id, new.session_id.partition(".")[0]),
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
    return executions.claim(tx, new.id, owner, ttl, 0, background=background)


def check_depth(tx: Reading, id: str) -> None:
    """Hold a run that starts another to how deep runs may be below each other.

    Those above count that have not ended. Raises `PackhostError` with `LIMIT_EXCEEDED`.
    """
    above: str | None = id
    for _ in range(DEEPEST):
        row = tx.execute("SELECT parent, status FROM executions WHERE id=?", (above,)).fetchone()
        if row is None or row[1] in ("completed", "failed", "aborted"):
            return
        above = row[0]
        if above is None:
            return
    raise PackhostError(
        f"runs are {DEEPEST} deep below each other already",
        code="LIMIT_EXCEEDED",
        hint="look whether a flow or a subagent calls itself, or start it with `background`",
    )


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


def pause(tx: Tx, id: str, by: str, reason: str) -> ExecutionStatus:
    """Ask a run to pause, or hold one that waits for a time.

    Raises `NotFound`, or `Conflict` when it has ended.
    """
    status = executions.request_pause(tx, id, by, reason)
    row = executions.get(tx, id)
    if status == "paused" and row.paused_by is None and (row.waiting_on or "").startswith(TIME):
        _hold(tx, id, by, reason)
    return status


def pause_for_person(tx: Tx, id: str, by: str, reason: str, yields: bool = False) -> ExecutionStatus:
    """Have a run pause until a person lets it go on, also one that paused for another reason.

    Whoever `yields`, an end user, leaves another person's pause theirs.

    Raises `NotFound`, or `Conflict` when it has ended.
    """
    status = executions.request_pause(tx, id, by, reason)
    paused_by = executions.get(tx, id).paused_by or ""
    if paused_by != by and not (yields and paused_by.startswith(PERSON)):
        _hold(tx, id, by, reason)
    return status


def _hold(tx: Tx, id: str, by: str, reason: str) -> None:
    tx.execute("UPDATE executions SET paused_by=?, updated_at=? WHERE id=?", (by, tx.now(), id))
    tx.emit("run.pause_requested", {"reason": reason}, execution_id=id, actor=by)


def check_person(row: ExecutionRow, by: str, yields: bool = False) -> None:
    """Raise `PackhostError` with `APPROVAL_REQUIRED` where a person paused a run and no person resumes it.

    Whoever `yields` lets go on what they paused themselves, and no other person's.
    Asked in the transaction that lets it go on, so that no pause of a person's is passed by an instant.
    """
    paused_by = row.paused_by or ""
    if row.ended or not paused_by.startswith(PERSON) or paused_by == by:
        return
    if by.startswith((PERSON, HOST)) and not yields:
        return
    raise PackhostError(
        f"a person paused run `{row.id}`",
        code="APPROVAL_REQUIRED",
        hint=f"only a person lets it go on: `packhost runs resume {row.id}`",
    )


def withdraw_pause(tx: Tx, id: str, by: str, yields: bool = False) -> bool:
    """Take back a pause that a running run has not reached; whether there was one.

    Raises `NotFound`, `Conflict` when the run is being ended, and what `check_person` raises.
    """
    row = executions.get(tx, id)
    if row.status != "running" or not row.pause_requested:
        return False
    check_person(row, by, yields)
    if row.abort_requested:
        raise executions.conflict(tx, id)
    tx.execute(
        "UPDATE executions SET pause_requested=0, paused_by=NULL, reason=NULL, updated_at=? WHERE id=?",
        (tx.now(), id),
    )
    tx.emit("run.pause_withdrawn", {}, execution_id=id, actor=by)
    return True


def time_text(at: float) -> str:
    """`waiting_on` of a run that waits for a time, in seconds since the epoch."""
    held = datetime.fromtimestamp(min(max(at, 0.0), _LAST_TIME), UTC)
    return f"{TIME}{held.isoformat(timespec='milliseconds')}"


def waiting_for_time(
    tx: Reading, after: tuple[str, str] = ("", ""), limit: int = 32
) -> tuple[tuple[str, str], ...]:
    """Paused runs that go on at a time, unless somebody paused them, the first due before the others.

    So many after one of them; of each `waiting_on`, for `time_of`, and id.
    """
    rows = tx.execute(
        "SELECT waiting_on, id FROM executions WHERE status='paused' AND paused_by IS NULL AND kind<>'call'"
        " AND waiting_on>='time:' AND waiting_on<'time;' AND (waiting_on, id)>(?, ?)"
        " ORDER BY waiting_on, id LIMIT ?",
        (*after, limit),
    ).fetchall()
    return tuple((row[0], row[1]) for row in rows)


def time_of(waiting_on: str) -> float:
    """The time that `time_text` wrote."""
    return datetime.fromisoformat(waiting_on.removeprefix(TIME)).timestamp()


def to_abort(tx: Reading, owner: str) -> tuple[tuple[str, str], ...]:
    """Runs of a host that are to end: id and reason."""
    rows = tx.execute(
        "SELECT id, reason FROM executions WHERE status IN ('running','queued') AND owner=?"
        " AND abort_requested=1",
        (owner,),
    ).fetchall()
    return tuple((row[0], row[1] or "") for row in rows)


def wake(tx: Tx, ids: Sequence[str]) -> None:
    """Have runs that wait at a safe point look again."""
    for id in ids:
        tx.touch(f"run:{id}")


def status(tx: Reading, id: str) -> ExecutionStatus:
    """A run's status alone."""
    found: ExecutionStatus = tx.execute("SELECT status FROM executions WHERE id=?", (id,)).fetchone()[0]
    return found


def abort(tx: Tx, id: str, by: str, reason: str) -> ExecutionStatus:
    """Ask a run of turns to end. Raises `NotFound`, or `Conflict` when it has ended or is a single call."""
    if executions.get(tx, id).kind == DIRECT:
        raise executions.conflict(tx, id)
    return executions.request_abort(tx, id, by, reason)
