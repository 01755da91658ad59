"""Operations that look things up for people: events of the record, and the whole of a cut preview."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio.to_thread

from packhost.control.base import Parts, optional, text, whole
from packhost.control.records import record_json
from packhost.errors import InvalidInput, NotFound
from packhost.store.ops import approvals, events
from packhost.store.ops.events import Wanted

_LAST = 2**53
PAGE = 200
LOOKED_AT = 20_000
"""Events that one request looks at: a search over a long record goes on from where it stopped."""


async def audit_search(parts: Parts, params: Mapping[str, Any]) -> Any:
    """Events, newest first: those that hold `text`, of a `type` or its beginning, a `run`, a span of time.

    `since` and `until` are seconds since the epoch. `next` is the `before` to go on from; `None` at the
    beginning of the record. A page may be short, or empty, while there is a `next`.
    """
    await parts.store.flush()
    wanted = Wanted(
        text=optional(params, "text") or "",
        type=optional(params, "type") or "",
        run=optional(params, "run") or "",
        since=_moment(params, "since", 0.0),
        until=_moment(params, "until", 1e12),
    )
    before, limit = whole(params, "before", _LAST, _LAST), whole(params, "limit", 50, PAGE)
    page = await anyio.to_thread.run_sync(_search, parts, wanted, before, max(limit, 1))
    return {"events": [record_json(record) for record in page.found], "next": page.next}


def _search(parts: Parts, wanted: Wanted, before: int, limit: int) -> events.Page:
    with parts.store.snapshot() as view:
        return events.search(view, wanted, before, limit, LOOKED_AT)


async def audit_event(parts: Parts, params: Mapping[str, Any]) -> Any:
    """One event of the record, whole."""
    await parts.store.flush()
    id = whole(params, "id", 0, _LAST)
    found = parts.store.read(events.by_id, id)
    if found is None:
        raise NotFound(f"there is no event {id}", hint="it was never written, or is pruned by now")
    return record_json(found)


async def approvals_preview(parts: Parts, params: Mapping[str, Any]) -> Any:
    """What a call would do, whole, as it was when it was asked; `None` where the prompt shows it all."""
    row = parts.store.read(approvals.get, text(params, "id"))
    return {"id": row.id, "preview": approvals.preview(row)}


def _moment(params: Mapping[str, Any], name: str, default: float) -> float:
    value = params.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput(f"`{name}` is not a number", hint="give seconds since the epoch")
    return float(value)
