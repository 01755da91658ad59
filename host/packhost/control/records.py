"""Operations on the record: runs with their calls and events, and the audit chain."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import anyio

from packhost.control.base import Parts, text, whole
from packhost.control.evidence import evidence_of
from packhost.control.people import approval_json
from packhost.errors import InvalidInput
from packhost.journal import Record
from packhost.store.audit import ChainReport, verify_chain
from packhost.store.base import Store
from packhost.store.ops import approvals, calls, events, executions
from packhost.store.ops.redaction import payloads_of, redact
from packhost.store.rows import CallRow, ExecutionSummary
from packhost.store.seals import Anchor, export_line

PAGE = 1_000


async def runs_list(parts: Parts, params: Mapping[str, Any]) -> Any:
    """Runs, newest first; with `all` also the calls that were made directly."""
    limit = whole(params, "limit", 50)
    rows = parts.store.read(executions.listing, limit, direct=bool(params.get("all")))
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
        "spec": json.loads(row.spec_json),
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
    """A person pauses a run; only a person resumes it then."""
    run_id = text(params, "id")
    await parts.runs.pause_by_person(run_id, by=parts.principal, reason=text(params, "reason", ""))
    return await _after(parts, run_id)


async def runs_resume(parts: Parts, params: Mapping[str, Any]) -> Any:
    """A person lets a paused or interrupted run go on."""
    run_id = text(params, "id")
    await parts.runs.resume_by_person(run_id, by=parts.principal)
    return await _after(parts, run_id)


async def runs_abort(parts: Parts, params: Mapping[str, Any]) -> Any:
    """A person ends a run now."""
    run_id = text(params, "id")
    await parts.runs.abort_by_person(run_id, by=parts.principal, reason=text(params, "reason", ""))
    return await _after(parts, run_id)


async def _after(parts: Parts, run_id: str) -> Any:
    return _run_json(parts.store.read(executions.get, run_id))


async def audit_head(parts: Parts, params: Mapping[str, Any]) -> Any:
    """The end of the chain: what to keep elsewhere, to prove later that nothing was cut off."""
    await parts.store.flush()
    head = parts.store.read(events.head)
    last = parts.store.read(events.by_id, head.id)
    return {"id": head.id, "hash": head.hash, "time": last.ts if last else None, "count": head.id}


async def audit_verify(parts: Parts, params: Mapping[str, Any]) -> Any:
    """Walk the whole chain; names the first link that does not hold, and the `anchors` that it misses."""
    await parts.store.flush()
    given = params.get("anchors", [])
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
        raise InvalidInput("`anchors` is no list of objects", hint="give `hash` and `id` of each")
    anchors = [Anchor(text(one, "hash"), whole(one, "id", 0, 2**53)) for one in given]
    report = await anyio.to_thread.run_sync(_verify, parts.store, anchors)
    return {
        "ok": report.ok,
        "events": report.count,
        "head": report.head_hash,
        "redacted": report.redacted,
        "anchors": len(anchors),
        "missed": list(report.missed),
        "first_bad": report.broken.id if report.broken else None,
        "reason": report.broken.reason if report.broken else None,
    }


def _verify(store: Store, anchors: Sequence[Anchor]) -> ChainReport:
    with store.snapshot() as view:
        return verify_chain(view, anchors)


async def audit_export(parts: Parts, params: Mapping[str, Any]) -> Any:
    """A page of the chain, in order; `next` is the cursor of the page after it.

    With `raw` each line is text, in which `data` stands as it was hashed.
    """
    await parts.store.flush()
    after = whole(params, "after", 0, 2**53)
    page = parts.store.read(events.page, after, None, whole(params, "limit", 500, PAGE))
    form = export_line if params.get("raw") is True else record_json
    return {"lines": [form(record) for record in page], "next": page[-1].id if page else None}


async def audit_redact(parts: Parts, params: Mapping[str, Any]) -> Any:
    """Remove the payload of an event, and of those that hold the same; with `look` only name them."""
    event = whole(params, "event", 0, 2**53)
    await parts.store.flush()
    if params.get("look") is True:
        found = parts.store.read(payloads_of, event)
        return {"events": [{"id": one.id, "type": one.type, "data": one.data} for one in found.events]}
    reason = text(params, "reason").strip()
    if not reason:
        raise InvalidInput("a redaction needs a reason", hint="say why the payload is removed")
    redacted = await parts.store.write(redact, event, parts.principal, reason)
    return {"events": list(redacted), "reason": reason}


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
