"""What an endpoint is told of an event: few facts, nothing secret, and where to look."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from packhost.errors import NotFound
from packhost.gate.display import label
from packhost.journal import Record, canonical
from packhost.store.base import Reading
from packhost.store.ops import approvals, executions, questions
from packhost.store.ops.webhooks import Telling
from packhost.store.rows import DIRECT
from packhost.workspace.hooks import WebhookSettings

_TYPES: Final[Mapping[str, str]] = {
    "approval.requested": "approval.requested",
    **dict.fromkeys(
        ("approval.approved", "approval.denied", "approval.expired", "approval.cancelled"), "approval.decided"
    ),
    "question.asked": "question.asked",
    **dict.fromkeys(
        ("question.accepted", "question.declined", "question.cancelled", "question.expired"),
        "question.answered",
    ),
    **{f"run.{end}": f"run.{end}" for end in ("paused", "interrupted", "completed", "failed", "aborted")},
}
_LINE: Final = 200


def tellings(
    tx: Reading,
    records: tuple[Record, ...],
    hooks: Mapping[str, WebhookSettings],
    seen: Mapping[str, int],
    console: str | None,
    redact: Callable[[str], str],
) -> list[Telling]:
    """What is to be told of these events, to whom; `seen` are those up to which each was told."""
    found = []
    for record in records:
        type = _TYPES.get(record.type)
        wanted = [
            (name, hook) for name, hook in hooks.items() if type in hook.events and record.id > seen[name]
        ]
        data = _data(tx, record) if wanted else None
        if type is None or data is None:
            continue
        for name, hook in wanted:
            body = body_of(type, record.ts, _for(hook, data, hook.console or console))
            found.append(Telling(name, record.id, type, redact(body)))
    return found


def body_of(type: str, at: float, data: Mapping[str, Any]) -> str:
    """The body of a delivery."""
    return canonical({"type": type, "timestamp": _iso(at), "data": data})


def _data(tx: Reading, record: Record) -> dict[str, Any] | None:
    """The facts of an event; `None` for one of which nobody is told."""
    told: dict[str, Any] = json.loads(record.data) if record.data else {}
    kind = record.type.partition(".")[0]
    try:
        if kind == "approval":
            return _approval(tx, record, str(told.get("id", "")))
        if kind == "question":
            return _question(tx, str(told.get("id", "")))
        return _run(tx, record, told)
    except NotFound:
        return None  # pruned meanwhile


def _approval(tx: Reading, record: Record, id: str) -> dict[str, Any]:
    row = approvals.get(tx, id)
    lines = row.prompt.split("\n")
    preview = [line for line in lines[:2] if line.startswith(("Allow ", "Would do: "))]
    status = "pending" if record.type == "approval.requested" else record.type.partition(".")[2]
    return {
        "id": row.id,
        "status": status,
        "tool": row.tool,
        "asked_by": row.client,
        "principal": row.principal,
        "session_id": row.session_id,
        "run_id": row.run_id,
        "assurance": row.assurance,
        "approvers_needed": row.approvers_needed,
        "expires_at": _iso(row.expires_at),
        "decided_by": None if status == "pending" else record.actor,
        "preview": [label(line, _LINE) for line in preview],
        "page": f"/console/approvals/{row.id}",
    }


def _question(tx: Reading, id: str) -> dict[str, Any]:
    row = questions.get(tx, id)
    return {
        "id": row.id,
        "status": row.status,
        "tool": row.tool,
        "asked_by": row.client,
        "principal": row.principal,
        "session_id": row.session_id,
        "run_id": row.run_id,
        "expires_at": _iso(row.expires_at),
        "preview": [label(row.message, _LINE)],
        "page": f"/console/questions/{row.id}",
    }


def _run(tx: Reading, record: Record, told: Mapping[str, Any]) -> dict[str, Any] | None:
    row = executions.get(tx, record.execution_id or "")
    if row.kind == DIRECT:
        return None
    return {
        "id": row.id,
        "status": record.type.partition(".")[2],
        "kind": row.kind,
        "outcome": told.get("outcome"),
        "waiting_on": told.get("waiting_on"),
        "principal": row.principal,
        "asked_by": row.client,
        "session_id": row.session_id,
        "page": f"/console/runs/{row.id}",
    }


def _for(hook: WebhookSettings, data: Mapping[str, Any], console: str | None) -> dict[str, Any]:
    """The facts as this endpoint gets them."""
    told = dict(data)
    page = told.pop("page")
    if not hook.preview:
        told.pop("preview", None)
    return {**told, "url": f"{console.rstrip('/')}{page}" if console else None}


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
