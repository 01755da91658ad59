"""The hosts that share a store, and what becomes of the runs of one that is gone.

A replica registers, renews itself together with its runs, and leaves. One whose lease has passed is
gone: whatever it held is taken away, and it may write nothing for it any more, since each run's epoch
has moved on. Events where several may share the store: `replica.joined`, `replica.left`,
`replica.lost`; `run.held_back` for a run that does not go on by itself any more.
"""

# ruff: noqa: S608  # only this module's constants are spliced into SQL; values are always bound

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields

from packhost.errors import ConfigInvalid
from packhost.store.base import Reading, Tx
from packhost.store.ops import executions
from packhost.store.rows import DIRECT

REPLICAS = "replicas"
"""The topic of replicas that come and go."""
BATCH = 32
"""So many runs at most are taken away in one transaction, so that others get their turn."""
IN_A_ROW = 5
"""A run that was interrupted so often without having got on is not resumed by itself once more."""


@dataclass(frozen=True, slots=True)
class NewReplica:
    """A host about to take part; `key_sha` stands for its host key, `settings_sha` for what it accepted.

    One that is not `serving` is there for a single command, and leaves no event when it comes and goes.
    """

    id: str
    host: str
    pid: int
    version: str
    key_sha: str
    settings_sha: str
    serving: bool = True


@dataclass(frozen=True, slots=True)
class ReplicaRow:
    """A host that takes part, as long as its lease lasts; a `draining` one takes up nothing new."""

    id: str
    workspace: str
    host: str
    pid: int
    version: str
    settings_sha: str
    started_at: float
    seen_at: float
    lease_until: float
    draining: bool


_COLUMNS = ", ".join(field.name for field in fields(ReplicaRow))
_LIVE = "SELECT id FROM replicas WHERE lease_until>?"
_GONE = f"lease_until<=? OR (owner IS NOT NULL AND owner NOT IN ({_LIVE}))"
_PROGRESS = frozenset({"call.ok", "call.error", "session.messages"})
_LOOK_BACK = 500


@dataclass(frozen=True, slots=True)
class Reaped:
    """What one reaping took away; `more` where its batch was full."""

    runs: tuple[str, ...]
    more: bool


def join(tx: Tx, new: NewReplica, ttl: float, *, shared: bool) -> tuple[ReplicaRow, ...]:
    """Take part for `ttl` seconds; the others that do.

    Whatever was still held under this id is taken away first: a replica that comes back has let go of
    it. Where the store is not `shared`, everything of any other is taken away too.

    Raises `ConfigInvalid` when the others have another host key.
    """
    if shared:
        _same_key(tx, new.key_sha)
    for held in executions.live(tx, "owner=?", (new.id,)):
        executions.interrupt(tx, held, new.id)
    tx.execute("DELETE FROM replicas WHERE id=?", (new.id,))
    if not shared:
        executions.interrupt_orphans(tx, new.id)
        tx.execute("DELETE FROM replicas")
    now = tx.now()
    tx.execute(
        "INSERT INTO replicas(id, workspace, host, pid, version, settings_sha, started_at, seen_at,"
        " lease_until, draining) VALUES(?,?,?,?,?,?,?,?,?,0)",
        (new.id, tx.workspace, new.host, new.pid, new.version, new.settings_sha, now, now, now + ttl),
    )
    if shared and new.serving:
        said = {"id": new.id, "host": new.host, "pid": new.pid, "version": new.version}
        tx.emit("replica.joined", said, actor=new.id)
    tx.touch(REPLICAS)
    return tuple(other for other in listing(tx) if other.id != new.id)


def _same_key(tx: Tx, key_sha: str) -> None:
    row = tx.execute("SELECT key_sha FROM host_keys WHERE workspace=?", (tx.workspace,)).fetchone()
    if row is None:
        tx.execute(
            "INSERT INTO host_keys(workspace, key_sha, set_at) VALUES(?,?,?)",
            (tx.workspace, key_sha, tx.now()),
        )
    elif row[0] != key_sha:
        raise ConfigInvalid(
            "this host's key is not the one of the hosts that use this store",
            hint="copy `host.key` from the state folder of one of them, or name it by PACKHOST_HOST_KEY_FILE",
        )


def renew(tx: Tx, id: str, ttl: float, settings_sha: str = "") -> tuple[str, ...] | None:
    """Prolong a replica's lease and those of its runs by `ttl` seconds from now; the runs it still holds.

    `None` when its own lease has passed: it must stop what it does and join again.
    """
    now = tx.now()
    row = tx.execute(
        "UPDATE replicas SET seen_at=?, lease_until=?, settings_sha=COALESCE(NULLIF(?, ''), settings_sha)"
        " WHERE id=? AND lease_until>? RETURNING id",
        (now, now + ttl, settings_sha, id, now),
    ).fetchone()
    return None if row is None else executions.renew(tx, id, ttl)


def drain(tx: Tx, id: str) -> None:
    """Say that a replica takes up nothing new."""
    tx.execute("UPDATE replicas SET draining=1 WHERE id=?", (id,))
    tx.touch(REPLICAS)


def leave(tx: Tx, id: str, *, told: bool) -> tuple[str, ...]:
    """Take part no longer; whatever is still held is handed over. The runs.

    It leaves an event where it was `told` of at its coming.
    """
    left = tuple(
        executions.interrupt(tx, row, id, handed_over=True) for row in executions.live(tx, "owner=?", (id,))
    )
    row = tx.execute("DELETE FROM replicas WHERE id=? RETURNING id", (id,)).fetchone()
    if told and row is not None:
        tx.emit("replica.left", {"id": id, "runs": list(left)}, actor=id)
    tx.touch(REPLICAS)
    return left


def overdue(tx: Reading) -> bool:
    """Whether there is something to reap; cheap, for a look before a write."""
    now = tx.now()
    row = tx.execute(
        "SELECT 1 WHERE EXISTS(SELECT 1 FROM replicas WHERE lease_until<=?)"
        f" OR EXISTS(SELECT 1 FROM executions WHERE status IN ('running','queued') AND ({_GONE}))",
        (now, now, now),
    ).fetchone()
    return row is not None


def reap(tx: Tx, by: str, limit: int = BATCH) -> Reaped:
    """Take away what no live replica holds: runs whose lease has passed, and whatever a lost replica held.

    `limit` runs at most, those that are overdue for longest first; a lost replica is forgotten once
    nothing of it is left. Two that reap at once, or one that does so again, change nothing more.
    """
    now = tx.now()
    found = executions.live(tx, _GONE, (now, now), limit)
    for row in found:
        executions.interrupt(tx, row, by)
    more = len(found) == limit
    if not more:
        lost = tx.execute(
            "DELETE FROM replicas WHERE lease_until<=? RETURNING id, host, pid, seen_at", (now,)
        ).fetchall()
        for id, host, pid, seen_at in lost:
            tx.emit("replica.lost", {"id": id, "host": host, "pid": pid, "seen_at": seen_at}, actor=by)
        if lost:
            tx.touch(REPLICAS)
    return Reaped(tuple(row.id for row in found), more)


def listing(tx: Reading) -> tuple[ReplicaRow, ...]:
    """The replicas that are registered, the first to come before the others."""
    rows = tx.execute(f"SELECT {_COLUMNS} FROM replicas ORDER BY started_at, id")
    return tuple(ReplicaRow(*(*row[:-1], bool(row[-1]))) for row in rows)


def resumable(tx: Reading, kinds: Collection[str], limit: int = BATCH) -> tuple[tuple[str, int], ...]:
    """Interrupted runs of these kinds that go on by themselves, the oldest first: id and epoch.

    Those in the background that nobody asked to pause.
    """
    marks = ",".join("?" for _ in kinds)
    rows = tx.execute(
        "SELECT id, epoch FROM executions WHERE status='interrupted' AND background=1 AND paused_by IS NULL"
        f" AND kind<>'{DIRECT}' AND kind IN ({marks or 'NULL'}) ORDER BY id LIMIT ?",
        (*kinds, limit),
    ).fetchall()
    return tuple((row[0], row[1]) for row in rows)


def futile(tx: Reading, id: str) -> bool:
    """Whether a run was interrupted again and again without having got on: what ends its hosts may be it."""
    rows = tx.execute(
        "SELECT type, data_json FROM events WHERE execution_id=? ORDER BY id DESC LIMIT ?", (id, _LOOK_BACK)
    ).fetchall()
    return fruitless(rows) >= IN_A_ROW


def fruitless(newest_first: Sequence[tuple[str, str | None]]) -> int:
    """How many interruptions stand before the last thing that a run got done; handing over is none."""
    count = 0
    for kind, data in newest_first:
        if kind in _PROGRESS:
            break
        if kind == "run.interrupted" and not json.loads(data or "{}").get("handed_over"):
            count += 1
    return count


def hold_back(tx: Tx, id: str, epoch: int, by: str) -> None:
    """Have an interrupted run wait until somebody resumes it; nothing when it has moved on."""
    reason = f"interrupted {IN_A_ROW} times in a row without getting on"
    row = tx.execute(
        "UPDATE executions SET background=0, reason=?, updated_at=? WHERE id=? AND epoch=?"
        " AND status='interrupted' AND background=1 RETURNING id",
        (reason, tx.now(), id, epoch),
    ).fetchone()
    if row is not None:
        tx.emit("run.held_back", {"reason": reason}, execution_id=id, actor=by)
