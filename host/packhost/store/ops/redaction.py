"""Taking payloads out of the record: the chain stays whole, and that it was done is on it.

Event: `audit.redacted`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from packhost.errors import Conflict, NotFound
from packhost.journal import Record
from packhost.store.base import Reading, Tx
from packhost.store.ops import events
from packhost.store.ops.pruning import PRUNED_EVENT
from packhost.store.ops.traces import Payloads, rewrite, traces_of

REDACTED_EVENT = "audit.redacted"
_GONE = '{"redacted":true}'


def payloads_of(tx: Reading, event: int) -> Payloads:
    """What is redacted when the event is.

    Raises `NotFound`, and `Conflict` when its payload is gone already, it is itself a redaction or an
    approval that it belongs to is still open.
    """
    record = events.by_id(tx, event)
    if record is None:
        raise NotFound(f"there is no event {event}", hint="`packhost audit export` shows their numbers")
    if record.data is None:
        raise Conflict(f"the payload of event {event} is gone already", hint="there is nothing left to do")
    if record.type == REDACTED_EVENT:
        raise Conflict(f"event {event} is itself a redaction", hint="its reason stays on record")
    if record.type == PRUNED_EVENT:
        raise Conflict(f"event {event} says what was pruned", hint="without it the record proves nothing")
    calls = {record.call_id} if record.call_id else set()
    approvals = set(_approvals_in(record))
    for call in tuple(calls):
        rows = tx.execute("SELECT id FROM approvals WHERE consumed_by=?", (call,))
        approvals.update(row[0] for row in rows)
    for approval in approvals:
        row = tx.execute("SELECT consumed_by, status FROM approvals WHERE id=?", (approval,)).fetchone()
        if row is not None and row[1] == "pending":
            raise Conflict(
                f"approval `{approval}` still waits for a person, who must see it", hint="decide it first"
            )
        calls |= {row[0]} if row and row[0] else set()
    found = {record.id: record}
    for call in calls:
        found.update({one.id: one for one in events.of_call(tx, call)})
    for approval in approvals:
        found.update({one.id: one for one in events.mentioning(tx, "approval.", approval)})
    left = tuple(found[id] for id in sorted(found) if found[id].data is not None)
    return Payloads(left, tuple(sorted(calls)), tuple(sorted(approvals)))


def _approvals_in(record: Record) -> list[str]:
    data = json.loads(record.data or "{}")
    key = "id" if record.type.startswith("approval.") else "approval_id"
    return [data[key]] if isinstance(data.get(key), str) else []


def redact(
    tx: Tx, event: int, by: str, reason: str, *, run: bool = False, texts: Sequence[str] = ()
) -> tuple[int, ...]:
    """Remove the payload of an event and of all that hold the same; the numbers of those events.

    With `run` also from the whole run of the event whatever holds the same texts, or one of `texts`: see
    `traces_of`. Raises as `payloads_of` does, and as `traces_of`.
    """
    found = payloads_of(tx, event)
    traces = traces_of(tx, found, texts) if run else None
    records = {record.id for record in found.events}
    calls, approvals = set(found.calls), set(found.approvals)
    if traces is not None:
        records.update(traces.events)
        calls.update(traces.calls)
        approvals.update(traces.approvals)
    for id in records:
        tx.execute("UPDATE events SET data_json=NULL WHERE id=?", (id,))
    for call in calls:
        tx.execute("UPDATE calls SET args_json=?, result_json=NULL WHERE id=?", (_GONE, call))
    for approval in approvals:
        tx.execute(
            "UPDATE approvals SET args_json=?, told_json='{}', prompt='[REDACTED]' WHERE id=?",
            (_GONE, approval),
        )
    redacted = tuple(sorted(records))
    data: dict[str, Any] = {"events": list(redacted), "reason": reason}
    if traces is not None:
        rewrite(tx, traces)
        data |= {"calls": sorted(calls), "approvals": sorted(approvals), **traces.on_record}
    tx.emit(REDACTED_EVENT, data, actor=by)
    return redacted
