"""Operations on the record: runs with their calls and events."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from packhost.control.base import Parts, optional, text, whole
from packhost.control.evidence import evidence_of
from packhost.control.people import approval_json
from packhost.executions.request import shown
from packhost.journal import Record
from packhost.store.ops import approvals, calls, events, executions
from packhost.store.rows import CallRow, ExecutionSummary

PAGE = 1_000


async def runs_list(parts: Parts, params: Mapping[str, Any]) -> Any:
    """Runs, newest first, older than `before`, of one `principal`; with `all` also direct calls."""
    rows = parts.store.read(
        executions.listing,
        whole(params, "limit", 50),
        optional(params, "before"),
        direct=bool(params.get("all")),
        principal=optional(params, "principal"),
    )
    return {"runs": [_run_json(row) for row in rows]}


async def runs_show(parts: Parts, params: Mapping[str, Any]) -> Any:
    """One run: its request, state of affairs, calls, approvals and result.

    With `evidence` true also what its record proves, which takes the longer the longer the run.
    """
    row = parts.store.read(executions.get, text(params, "id"))
    made = parts.store.read(calls.of_execution, row.id)
    asked = [each for each in parts.store.read(approvals.listing, None, PAGE) if each.run_id == row.id]
    return {
        **_run_json(row),
        "spec": shown(row),
        "result": json.loads(row.result_json) if row.result_json else None,
        "calls": [_call_json(call) for call in made],
        "approvals": [approval_json(each) for each in asked],
        **({"evidence": evidence_of(parts, row)} if params.get("evidence") is True else {}),
    }


async def runs_events(parts: Parts, params: Mapping[str, Any]) -> Any:
    """A run's events after a cursor."""
    run_id = parts.store.read(executions.get, text(params, "id")).id
    after = whole(params, "after", 0, 2**53)
    page = parts.store.read(events.page, after, run_id, whole(params, "limit", 200, PAGE))
    return {"events": [record_json(record) for record in page], "next": page[-1].id if page else after}


async def runs_pause(parts: Parts, params: Mapping[str, Any]) -> Any:
    """A person pauses a run; only a person resumes it then. An `end_user` takes over no other's pause."""
    run_id, yields = text(params, "id"), params.get("end_user") is True
    reason = text(params, "reason", "")
    await parts.runs.pause_by_person(run_id, by=parts.principal, reason=reason, yields=yields)
    return await _after(parts, run_id)


async def runs_resume(parts: Parts, params: Mapping[str, Any]) -> Any:
    """A person lets a paused or interrupted run go on; an `end_user` none that another person paused."""
    run_id, yields = text(params, "id"), params.get("end_user") is True
    await parts.runs.resume_by_person(run_id, by=parts.principal, yields=yields)
    return await _after(parts, run_id)


async def runs_abort(parts: Parts, params: Mapping[str, Any]) -> Any:
    """A person ends a run now."""
    run_id = text(params, "id")
    await parts.runs.abort_by_person(run_id, by=parts.principal, reason=text(params, "reason", ""))
    return await _after(parts, run_id)


async def _after(parts: Parts, run_id: str) -> Any:
    return _run_json(parts.store.read(executions.get, run_id))


def record_json(record: Record) -> dict[str, Any]:
    """An event of the chain as it is exported."""
    return {**asdict(record), "data": json.loads(record.data) if record.data is not None else None}


def _run_json(row: ExecutionSummary) -> dict[str, Any]:
    return {
        "id": row.id,
        "kind": row.kind,
        "status": row.status,
        "outcome": row.outcome,
        "session_id": row.session_id,
        "principal": row.principal,
        "client": row.client,
        "parent": row.parent,
        "agent": row.agent,
        "waiting_on": row.waiting_on,
        "pause_requested": row.pause_requested,
        "paused_by": row.paused_by,
        "reason": row.reason,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
        "ended_at": row.ended_at,
    }


def _call_json(call: CallRow) -> dict[str, Any]:
    return {
        "id": call.id,
        "step": call.step,
        "tool": call.tool,
        "tool_version": call.tool_version,
        "arguments": json.loads(call.args_json),
        "status": call.status,
        "code": call.code,
        "tool_use_id": call.tool_use_id,
        "approval_id": call.approval_id,
        "grant_id": call.grant_id,
        "enforcement": call.enforcement,
        "result": _as_recorded(call.result_json) if call.result_json else None,
        "started_at": call.started_at,
        "ended_at": call.ended_at,
    }


def _as_recorded(text: str) -> Any:
    """A recorded result: JSON, or the envelope of untrusted output as it stands."""
    try:
        return json.loads(text)
    except ValueError:
        return text
