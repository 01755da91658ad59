"""A task as the protocol shows it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, Final

from mcp import types

from packhost.server.errand import Errand
from packhost.store.ops.tasks import TaskRow

EXTENSION: Final = "io.modelcontextprotocol/tasks"
TTL: Final = 86_400.0
"""Seconds that a task is kept, from its making on; what came of it stays for an hour at least."""
POLL: Final = 500
"""Milliseconds between two looks of a client."""
NOTIFICATION: Final = "notifications/tasks"


def shown(row: TaskRow, errand: Errand | None = None) -> dict[str, Any]:
    """What a call is answered that has become a task."""
    status = row.status if row.status != "working" or not _asks(row, errand) else "input_required"
    return {"resultType": "task", **_base(row, errand, status)}


def detail_of(
    row: TaskRow,
    errand: Errand | None,
    result: dict[str, Any] | None = None,
    error: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """How a task stands: with what it asks, or what came of it."""
    if result is None and row.status == "completed":
        result = json.loads(row.result_json or "{}")
    if result is not None:
        return {**_base(row, errand, "completed"), "result": result}
    if row.status == "failed" or error is not None:
        unread = {"code": types.INTERNAL_ERROR, "message": "the task cannot be read any more"}
        error = error or (json.loads(row.result_json) if row.result_json else unread)
        return {**_base(row, None, "failed"), "error": error}
    if row.status == "cancelled" or (errand is not None and errand.status == "cancelled"):
        return _base(row, None, "cancelled")
    asked = row.asked if errand is None else errand.asked()
    if not asked:
        return _base(row, errand, "working")
    return {**_base(row, errand, "input_required"), "inputRequests": asked}


def _asks(row: TaskRow, errand: Errand | None) -> bool:
    return bool(row.asked if errand is None else errand.asked())


def _base(row: TaskRow, errand: Errand | None, status: str) -> dict[str, Any]:
    base = {
        "taskId": row.id,
        "status": status,
        "createdAt": _iso(row.created_at),
        "lastUpdatedAt": _iso(max(row.updated_at, errand.updated) if errand is not None else row.updated_at),
        "ttlMs": round((row.expires_at - row.created_at) * 1000),
        "pollIntervalMs": POLL,
    }
    if errand is not None and errand.message and status in ("working", "input_required"):
        base["statusMessage"] = errand.message
    return base


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
