"""Letting go of what is old: the first part of the chain, and the rows of runs that ended long ago.

Only a beginning of the chain is ever removed. That it will be is an event of the chain first, with the
number and the hash of its last record, so that what is kept proves on its own what came before it; then the
events go in small steps. Ended in the middle, the rest is taken up by the next pruning.

Events: `audit.pruned` before events are removed, `store.pruned` before rows are.
"""

# ruff: noqa: S608  # only this module's constants are spliced into SQL; values are always bound

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from packhost.errors import Conflict
from packhost.journal import Record
from packhost.rules.autonomy import Level, rank
from packhost.store.base import Reading, Tx
from packhost.store.ops import events
from packhost.store.rows import SessionRow

PRUNED_EVENT: Final = "audit.pruned"
ROWS_EVENT: Final = "store.pruned"
_ENDED: Final = "status IN ('completed','failed','aborted')"
_LIVE: Final = (
    "SELECT x.id, (SELECT MIN(e.id) FROM events e WHERE e.execution_id=x.id) FROM executions x"
    f" WHERE NOT x.{_ENDED}"
)
_SETTLED: Final = "(status IN ('denied','expired','cancelled') OR consumed_by IS NOT NULL OR expires_at<?)"
_DECIDED: Final = f"created_at<? AND COALESCE(decided_at, created_at)<? AND status<>'pending' AND {_SETTLED}"
_OVER: Final = "created_at<? AND expires_at<?"
_SKEW: Final = 60.0
_SPENT: Final = "(revoked_at<? OR expires_at<? OR (uses>=max_uses AND created_at<?))"


@dataclass(frozen=True, slots=True)
class Pruning:
    """A removal on record: the events from `first` to `last` went, the last of them with `last_hash`.

    `id` is the number of the event that says so.
    """

    id: int
    first: int
    last: int
    last_hash: str
    at: float
    by: str
    reason: str
    exported: str | None
    signed_at: float = 0.0
    signature: str = ""
    """An operator's, over exactly this; empty where there was none."""


@dataclass(frozen=True, slots=True)
class EventsPlan:
    """The beginning of the chain that may go; nothing when `last` is before `first`.

    `held_by` says what the removal stops at, where something younger than the time asked for is not it.
    """

    first: int
    last: int
    last_hash: str = ""
    held_by: str = ""

    @property
    def count(self) -> int:
        """How many events go."""
        return max(0, self.last - self.first + 1)


@dataclass(frozen=True, slots=True)
class RowsPlan:
    """The rows that may go, by id; later runs than `newest` may use a session."""

    before: float
    runs: tuple[str, ...] = ()
    approvals: tuple[str, ...] = ()
    grants: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    questions: tuple[str, ...] = ()
    calls: int = 0
    messages: int = 0
    newest: str = field(default="", repr=False)

    @property
    def counts(self) -> dict[str, int]:
        """How many rows of each sort."""
        return {
            "runs": len(self.runs),
            "calls": self.calls,
            "approvals": len(self.approvals),
            "grants": len(self.grants),
            "questions": len(self.questions),
            "sessions": len(self.sessions),
            "messages": self.messages,
        }


def plan_events(tx: Reading, before: float) -> EventsPlan:
    """Which events may go: all of them older than `before`, up to the first event of a run that goes on.

    An event dated in the future, by a clock that was wrong, holds nothing back.
    """
    first, head = events.seam(tx).id + 1, events.head(tx).id
    young = tx.execute("SELECT id FROM events WHERE ts>=? AND ts<=? ORDER BY id LIMIT 1", (before, tx.now()))
    row = young.fetchone()
    last, held = (row[0] - 1 if row else head), ""
    for run, begin in tx.execute(_LIVE):
        if begin is not None and begin <= last:
            last, held = begin - 1, f"run `{run}` has not ended"
    record = events.by_id(tx, last) if last >= first else None
    return EventsPlan(first, last, record.hash if record else "", held)


def plan_rows(tx: Reading, before: float, opening: Level) -> RowsPlan:
    """Which rows may go: those of runs that ended before `before`, and what nothing else needs any more.

    A run stays while one that it started goes on, an approval and a grant while they can be used or a call
    names them, a session while it has a run, or is held below the level `opening` that a new one has.
    """
    now = tx.now()
    parents = tx.execute(f"SELECT DISTINCT parent FROM executions WHERE parent IS NOT NULL AND NOT {_ENDED}")
    needed = {row[0] for row in parents}
    found = tx.execute(f"SELECT id FROM executions WHERE {_ENDED} AND ended_at<? ORDER BY id", (before,))
    runs = tuple(row[0] for row in found if row[0] not in needed)
    gone = set(runs)
    used = _named(tx, "approval_id", gone)
    rows = tx.execute(f"SELECT id FROM approvals WHERE {_DECIDED} ORDER BY id", (before, before, now))
    approvals = tuple(row[0] for row in rows if row[0] not in used)
    used = _named(tx, "grant_id", gone)
    rows = tx.execute(f"SELECT id FROM grants WHERE {_SPENT} ORDER BY id", (before, before, before))
    grants = tuple(row[0] for row in rows if row[0] not in used)
    over = tx.execute(f"SELECT id FROM questions WHERE {_OVER} ORDER BY id", (before, now))
    questions = tuple(row[0] for row in over)
    sessions = _idle_sessions(tx, before, gone, opening)
    made = tx.execute("SELECT execution_id, COUNT(*) FROM calls GROUP BY execution_id")
    calls = sum(row[1] for row in made if row[0] in gone)
    messages = _count(tx, sessions)
    # clocks of several hosts differ a little: what is younger than this is looked through again
    settled = tx.execute(
        "SELECT id FROM executions WHERE created_at<? ORDER BY id DESC LIMIT 1", (now - _SKEW,)
    )
    newest = settled.fetchone()
    last = newest[0] if newest else ""
    return RowsPlan(before, runs, approvals, grants, sessions, questions, calls, messages, last)


def _named(tx: Reading, column: str, gone: set[str]) -> set[str]:
    """What calls name that stay."""
    rows = tx.execute(f"SELECT {column}, execution_id FROM calls WHERE {column} IS NOT NULL")
    return {row[0] for row in rows if row[1] not in gone}


def _idle_sessions(tx: Reading, before: float, gone: set[str], opening: Level) -> tuple[str, ...]:
    """Sessions that nothing needs; those opened from one another go together or not at all."""
    pairs = tx.execute("SELECT session_id, id FROM executions")
    busy = {row[0] for row in pairs if row[1] not in gone}
    columns = ", ".join(SessionRow.__dataclass_fields__)
    every = [SessionRow(*row) for row in tx.execute(f"SELECT {columns} FROM sessions ORDER BY id")]
    group: dict[str, str] = {row.id: row.id for row in every}

    def top(id: str) -> str:
        while group[id] != id:
            group[id] = id = group[group[id]]
        return id

    for row in every:
        if row.parent in group:
            group[top(row.id)] = top(row.parent)
    now = tx.now()
    kept = {
        top(row.id)
        for row in every
        if row.id in busy or row.updated_at >= before or rank(row.level_at(now)) < rank(opening)
    }
    return tuple(row.id for row in every if top(row.id) not in kept)


def _count(tx: Reading, sessions: Sequence[str]) -> int:
    wanted = set(sessions)
    rows = tx.execute("SELECT session_id, COUNT(*) FROM session_messages GROUP BY session_id")
    return sum(row[1] for row in rows if row[0] in wanted)


def announce(
    tx: Tx,
    plan: EventsPlan,
    before: float,
    by: str,
    reason: str,
    exported: str | None,
    signed: tuple[float, str] | None = None,
) -> int:
    """Put on record that the planned events go; the number of the event that says so.

    `exported` is the SHA-256 of a file that holds them, `signed` when and how an operator signed.
    Raises `Conflict` when the chain has changed since.
    """
    record = events.by_id(tx, plan.last)
    if not plan.count or events.seam(tx).id + 1 != plan.first or record is None:
        raise Conflict("the record was pruned meanwhile", hint="look again, then prune")
    if unfinished(tx) is not None:
        raise Conflict("a pruning that was begun is not done", hint="`packhost store prune` ends it first")
    if record.hash != plan.last_hash:
        raise Conflict(f"event {plan.last} is not the one that was planned", hint="verify the record first")
    data = {
        "first": plan.first,
        "last": plan.last,
        "last_hash": plan.last_hash,
        "count": plan.count,
        "before": before,
        "reason": reason,
        "export_sha256": exported,
        **({"signed_at": signed[0], "signature": signed[1]} if signed is not None else {}),
    }
    return tx.emit(PRUNED_EVENT, data, actor=by)


def prunings(tx: Reading) -> tuple[Pruning, ...]:
    """The removals on record that are kept, first to last."""
    rows = tx.execute("SELECT id FROM events WHERE type='audit.pruned' ORDER BY id").fetchall()
    found = (events.by_id(tx, row[0]) for row in rows)
    return tuple(one for record in found if record is not None and (one := pruning_of(record)) is not None)


def pruning_of(record: Record) -> Pruning | None:
    """What an event says was removed; `None` when it says nothing that could be."""
    try:
        data: Mapping[str, Any] = json.loads(record.data or "{}")
        first, last, hash = int(data["first"]), int(data["last"]), str(data["last_hash"])
    except (ValueError, KeyError, TypeError):
        return None
    if not 0 < first <= last < record.id:
        return None
    reason, exported = str(data.get("reason", "")), data.get("export_sha256")
    at, signature = data.get("signed_at"), str(data.get("signature", ""))
    signed_at = float(at) if isinstance(at, int | float) else 0.0
    return Pruning(
        record.id, first, last, hash, record.ts, record.actor, reason, exported, signed_at, signature
    )


def unfinished(tx: Reading) -> Pruning | None:
    """A removal on record some of whose events are still there."""
    row = tx.execute("SELECT id FROM events WHERE type='audit.pruned' ORDER BY id DESC LIMIT 1").fetchone()
    record = events.by_id(tx, row[0]) if row else None
    said = pruning_of(record) if record is not None else None
    return said if said is not None and events.seam(tx).id < said.last else None


def drop_events(tx: Tx, announced: int, limit: int) -> int:
    """Remove at most `limit` of the events that the event `announced` names; how many went.

    Raises `Conflict` when it names none, or not what is there.
    """
    record = events.by_id(tx, announced)
    said = pruning_of(record) if record is not None and record.type == PRUNED_EVENT else None
    if said is None:
        raise Conflict(f"event {announced} announces no pruning", hint="`packhost audit verify`")
    first = events.seam(tx).id + 1
    upto = min(said.last, first + limit - 1)
    if upto < first:
        return 0
    last = events.by_id(tx, said.last)
    if last is None or last.hash != said.last_hash:
        raise Conflict(f"event {said.last} is not the one that was announced", hint="`packhost audit verify`")
    runs = tx.execute(
        "SELECT execution_id, MAX(id) FROM events WHERE id<=? AND execution_id IS NOT NULL"
        " GROUP BY execution_id",
        (upto,),
    ).fetchall()
    for run, newest in runs:
        tx.execute("UPDATE executions SET events_pruned=? WHERE id=?", (newest, run))
        tx.touch(f"run:{run}")
    tx.execute("DELETE FROM events WHERE id<=?", (upto,))
    tx.touch("events")
    return upto - first + 1


def announce_rows(tx: Tx, plan: RowsPlan, by: str, reason: str) -> None:
    """Put on record that rows go, and how many."""
    tx.emit(ROWS_EVENT, {**plan.counts, "before": plan.before, "reason": reason}, actor=by)


def drop_runs(tx: Tx, ids: Iterable[str], before: float) -> int:
    """Remove runs with their calls, of those that ended before `before`; how many went."""
    gone = 0
    for id in ids:
        ended = tx.execute(f"SELECT 1 FROM executions WHERE id=? AND {_ENDED} AND ended_at<?", (id, before))
        if ended.fetchone() is not None:
            tx.execute("DELETE FROM calls WHERE execution_id=?", (id,))
            tx.execute("DELETE FROM executions WHERE id=?", (id,))
            gone += 1
    return gone


def drop_approvals(tx: Tx, ids: Iterable[str], before: float) -> int:
    """Remove decided approvals that no call names; how many went."""
    now = tx.now()
    sql = (
        f"DELETE FROM approvals WHERE id=? AND {_DECIDED}"
        " AND NOT EXISTS (SELECT 1 FROM calls WHERE approval_id=approvals.id) RETURNING id"
    )
    return sum(tx.execute(sql, (id, before, before, now)).fetchone() is not None for id in ids)


def drop_grants(tx: Tx, ids: Iterable[str], before: float) -> int:
    """Remove grants that cannot be used any more and that no call names; how many went."""
    sql = (
        f"DELETE FROM grants WHERE id=? AND {_SPENT}"
        " AND NOT EXISTS (SELECT 1 FROM calls WHERE grant_id=grants.id) RETURNING id"
    )
    return sum(tx.execute(sql, (id, before, before, before)).fetchone() is not None for id in ids)


def drop_questions(tx: Tx, ids: Iterable[str], before: float) -> int:
    """Remove questions whose time is over, however they ended; how many went."""
    sql, now = f"DELETE FROM questions WHERE id=? AND {_OVER} RETURNING id", tx.now()
    return sum(tx.execute(sql, (id, before, now)).fetchone() is not None for id in ids)


def drop_sessions(tx: Tx, ids: Iterable[str], before: float, newest: str) -> int:
    """Remove sessions with their messages that nobody has used since they were looked at; how many went."""
    taken = {row[0] for row in tx.execute("SELECT session_id FROM executions WHERE id>?", (newest,))}
    gone = 0
    for id in ids:
        idle = tx.execute("SELECT 1 FROM sessions WHERE id=? AND updated_at<?", (id, before)).fetchone()
        if idle is not None and id not in taken:
            tx.execute("DELETE FROM session_messages WHERE session_id=?", (id,))
            tx.execute("DELETE FROM sessions WHERE id=?", (id,))
            tx.touch(f"session:{id}")
            gone += 1
    tx.touch("sessions")
    return gone
