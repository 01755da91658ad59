"""What endpoints outside are told: a row a delivery, claimed by a host for a time, tried until it is taken.

A delivery's id is the same at every try, so that a receiver may tell that it has it already.
"""

# ruff: noqa: S608  # only this module's constants are spliced into SQL; values are always bound

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Literal

from packhost.errors import NotFound
from packhost.names import new_id
from packhost.store.base import Reading, Tx

TOPIC = "webhooks"
MOST = 10_000
"""Deliveries to one endpoint that wait at once; what comes beyond is written down and not sent."""
KEPT = 7 * 86_400.0
"""Seconds that a delivery that is over stays."""
TEST = "webhook.test"
Status = Literal["waiting", "delivered", "dead"]


@dataclass(frozen=True, slots=True)
class Telling:
    """What one endpoint is to be told of one event."""

    hook: str
    event_id: int
    type: str
    body: str


@dataclass(frozen=True, slots=True)
class Delivery:
    """A delivery and where it stands; `answered` is the last HTTP status, times in seconds."""

    id: str
    hook: str
    event_id: int
    type: str
    body: str
    status: Status
    attempts: int
    next_at: float
    answered: int | None
    error: str | None
    created_at: float
    updated_at: float


@dataclass(frozen=True, slots=True)
class Standing:
    """How an endpoint fares."""

    waiting: int
    delivered: int
    dead: int
    oldest: float | None
    """When the oldest that waits was made."""


_COLUMNS = ", ".join(field.name for field in fields(Delivery))


def cursors(tx: Reading, hooks: Iterable[str]) -> dict[str, int]:
    """The last event that was looked at for each endpoint; for one that is new the last that there is."""
    head = int(tx.execute("SELECT COALESCE(MAX(id), 0) FROM events").fetchone()[0])
    found = {}
    for hook in hooks:
        row = tx.execute(
            "SELECT event_id FROM webhook_cursor WHERE workspace=?", (f"{tx.workspace}:{hook}",)
        ).fetchone()
        found[hook] = head if row is None else int(row[0])
    return found


def advance(tx: Tx, seen: Mapping[str, int], tellings: Sequence[Telling]) -> None:
    """Note up to which event each endpoint was looked after, and what it is to be told.

    Noted twice, as by two hosts, it changes nothing.
    """
    now = tx.now()
    for telling in tellings:
        waits = tx.execute(
            "SELECT count(*) FROM webhook_deliveries WHERE hook=? AND status='waiting'", (telling.hook,)
        ).fetchone()[0]
        over = waits >= MOST
        _add(tx, telling, now, "dead" if over else "waiting", "too many wait already" if over else None)
    for hook, event_id in seen.items():
        tx.execute(
            "INSERT INTO webhook_cursor(workspace, event_id) VALUES(?,?)"
            " ON CONFLICT(workspace) DO UPDATE SET event_id=excluded.event_id"
            " WHERE webhook_cursor.event_id<excluded.event_id",
            (f"{tx.workspace}:{hook}", event_id),
        )
    tx.execute("DELETE FROM webhook_deliveries WHERE status<>'waiting' AND updated_at<?", (now - KEPT,))
    if tellings:
        tx.touch(TOPIC)


def _add(tx: Tx, telling: Telling, now: float, status: Status, error: str | None) -> str:
    id = new_id("msg")
    tx.execute(
        "INSERT INTO webhook_deliveries(id, workspace, hook, event_id, type, body, status, attempts,"
        " next_at, error, created_at, updated_at) VALUES(?,?,?,?,?,?,?,0,?,?,?,?)"
        " ON CONFLICT(hook, event_id) DO NOTHING",
        (
            id,
            tx.workspace,
            telling.hook,
            telling.event_id,
            telling.type,
            telling.body,
            status,
            now,
            error,
            now,
            now,
        ),
    )
    return id


def test(tx: Tx, hook: str, body: str) -> str:
    """Have an endpoint told of nothing but that it is told; the delivery's id."""
    row = tx.execute("SELECT MIN(event_id) FROM webhook_deliveries WHERE hook=?", (hook,)).fetchone()
    number = min(row[0] or 0, 0) - 1  # no event's number
    id = _add(tx, Telling(hook, number, TEST, body), tx.now(), "waiting", None)
    tx.touch(TOPIC)
    return id


def claim(tx: Tx, hook: str, owner: str, lease: float, limit: int) -> tuple[Delivery, ...]:
    """Take what is due for `lease` seconds, the oldest first: nobody else sends it meanwhile."""
    now = tx.now()
    rows = tx.execute(
        "UPDATE webhook_deliveries SET owner=?, lease_until=? WHERE id IN ("
        "SELECT id FROM webhook_deliveries WHERE hook=? AND status='waiting' AND next_at<=?"
        " AND (lease_until IS NULL OR lease_until<=?) ORDER BY next_at, id LIMIT ?)"
        f" AND (lease_until IS NULL OR lease_until<=?) RETURNING {_COLUMNS}",
        (owner, now + lease, hook, now, now, limit, now),
    ).fetchall()
    return tuple(sorted((Delivery(*row) for row in rows), key=lambda one: (one.next_at, one.id)))


def let_go(tx: Tx, owner: str) -> None:
    """Let go of what hosts had that are gone by now; nothing for whoever is no host itself."""
    now = tx.now()
    live = "SELECT id FROM replicas WHERE lease_until>?"
    tx.execute(
        "UPDATE webhook_deliveries SET owner=NULL, lease_until=NULL WHERE status='waiting'"
        f" AND owner IS NOT NULL AND owner NOT IN ({live}) AND ? IN ({live})",
        (now, owner, now),
    )


def next_due(tx: Reading, hook: str) -> float | None:
    """When something of an endpoint is to be sent; `None` where nothing waits."""
    row = tx.execute(
        "SELECT MIN(CASE WHEN lease_until IS NOT NULL AND lease_until>next_at THEN lease_until"
        " ELSE next_at END) FROM webhook_deliveries WHERE hook=? AND status='waiting'",
        (hook,),
    ).fetchone()
    return None if row is None or row[0] is None else float(row[0])


def delivered(tx: Tx, id: str, owner: str, answered: int) -> None:
    """Note that it was taken."""
    tx.execute(
        "UPDATE webhook_deliveries SET status='delivered', attempts=attempts+1, answered=?, error=NULL,"
        " owner=NULL, lease_until=NULL, updated_at=? WHERE id=? AND owner=? AND status='waiting'",
        (answered, tx.now(), id, owner),
    )
    tx.touch(TOPIC)


def failed(tx: Tx, id: str, owner: str, answered: int | None, error: str, again_in: float | None) -> None:
    """Note that it was not taken; it is tried again in so many seconds, or never."""
    now = tx.now()
    tx.execute(
        "UPDATE webhook_deliveries SET status=?, attempts=attempts+1, answered=?, error=?, next_at=?,"
        " owner=NULL, lease_until=NULL, updated_at=? WHERE id=? AND owner=? AND status='waiting'",
        (
            "dead" if again_in is None else "waiting",
            answered,
            error,
            now + (again_in or 0.0),
            now,
            id,
            owner,
        ),
    )
    tx.touch(TOPIC)


def retry(tx: Tx, hook: str | None, id: str | None) -> int:
    """Send what was given up anew: one delivery, or all of an endpoint; how many."""
    rows = tx.execute(
        "UPDATE webhook_deliveries SET status='waiting', attempts=0, next_at=?, owner=NULL, lease_until=NULL,"
        " updated_at=? WHERE status='dead' AND (id=? OR hook=?) RETURNING id",
        (tx.now(), tx.now(), id or "", hook or ""),
    ).fetchall()
    tx.touch(TOPIC)
    return len(rows)


def get(tx: Reading, id: str) -> Delivery:
    """A delivery. Raises `NotFound`."""
    row = tx.execute(f"SELECT {_COLUMNS} FROM webhook_deliveries WHERE id=?", (id,)).fetchone()
    if row is None:
        raise NotFound(f"there is no delivery `{id}`", hint="list them with `packhost webhooks list`")
    return Delivery(*row)


def listing(tx: Reading, hook: str, limit: int = 20) -> tuple[Delivery, ...]:
    """An endpoint's deliveries: those that were given up first, then those that wait, then the newest."""
    rows = tx.execute(
        f"SELECT {_COLUMNS} FROM webhook_deliveries WHERE hook=? ORDER BY"
        " CASE status WHEN 'dead' THEN 0 WHEN 'waiting' THEN 1 ELSE 2 END, id DESC LIMIT ?",
        (hook, limit),
    )
    return tuple(Delivery(*row) for row in rows)


def standing(tx: Reading, hook: str) -> Standing:
    """How an endpoint fares."""
    rows = tx.execute(
        "SELECT status, count(*), MIN(created_at) FROM webhook_deliveries WHERE hook=? GROUP BY status",
        (hook,),
    ).fetchall()
    found = {str(status): (int(count), float(since)) for status, count, since in rows}
    waiting, delivered, dead = (found.get(status, (0, 0.0))[0] for status in ("waiting", "delivered", "dead"))
    return Standing(waiting, delivered, dead, found["waiting"][1] if "waiting" in found else None)
