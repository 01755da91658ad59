"""Recorded calls as questions about a policy need them: what was called, by whom, and what it met."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from packhost.store.base import Reading

_SELECT = (
    "SELECT e.id, e.ts, e.type, e.execution_id, e.data_json, x.principal, x.client, x.session_id"
    " FROM events e LEFT JOIN executions x ON x.id = e.execution_id"
    " WHERE e.id>? AND e.ts>=? AND e.type IN ('call.started','call.refused')"
    " AND e.data_json IS NOT NULL AND (CAST(? AS TEXT) IS NULL OR e.execution_id=?) ORDER BY e.id LIMIT ?"
)


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A call of the record; `arguments` in their display form, `None` when they were not admitted.

    `met` is `asked` when a person or a grant allowed it; `code` is a refusal's.
    """

    event: int
    at: float
    run_id: str | None
    tool: str
    arguments: Mapping[str, Any] | None
    principal: str
    client: str
    session_id: str
    met: Literal["allowed", "asked", "refused"]
    code: str | None


def recorded_calls(
    tx: Reading, after: int = 0, since: float = 0.0, run_id: str | None = None, limit: int = 500
) -> tuple[RecordedCall, ...]:
    """Calls after the event `after`, first to last; those whose record was redacted are left out."""
    rows = tx.execute(_SELECT, (after, since, run_id, run_id, limit))
    return tuple(_call(*row) for row in rows)


def _call(
    event: int,
    at: float,
    type: str,
    run_id: str | None,
    text: str,
    principal: str | None,
    client: str | None,
    session_id: str | None,
) -> RecordedCall:
    data = json.loads(text)
    asked = data.get("approval_id") or data.get("grant_id")
    refused = type == "call.refused"
    return RecordedCall(
        event=event,
        at=at,
        run_id=run_id,
        tool=data["tool"],
        arguments=data.get("arguments"),
        principal=data.get("principal") or principal or "",
        client=data.get("client") or client or "",
        session_id=data.get("session_id") or session_id or "",
        met="refused" if refused else "asked" if asked else "allowed",
        code=data.get("code"),
    )
