"""A run as a trace, and what its record proves: each call with its result, intent, approval and outcome."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from typing import Any

from packhost.control.base import Parts, text
from packhost.errors import InvalidInput, NotFound
from packhost.executions.offers import offer
from packhost.executions.request import request_of
from packhost.journal import Record
from packhost.kinds.record import RecordedApproval, RecordedEvent, RecordedMessage, RunRecord
from packhost.store.base import Reading
from packhost.store.ops import approvals, calls, events, executions, sessions
from packhost.store.rows import CallRow, ExecutionRow

log = logging.getLogger("packhost.evidence")
PAGE = 1_000


async def runs_trace(parts: Parts, params: Mapping[str, Any]) -> Any:
    """A run as a trace for `packhost trace check`; of a workflow the `node` that is named."""
    row = parts.store.read(executions.get, text(params, "id"))
    await parts.store.flush()
    found = _branches(row)
    node = text(params, "node", "")
    if node not in found:
        names = ", ".join(f"`{one}`" for one in found if one) or "the run has none"
        raise InvalidInput(
            f"run `{row.id}` has no node `{node}`" if node else f"run `{row.id}` is a workflow",
            hint=f"name one of its nodes: {names}",
        )
    return _trace(parts, row, node)


def evidence_of(parts: Parts, row: ExecutionRow) -> dict[str, Any] | None:
    """What the record proves of a run; `None` for one that nobody can write as a trace.

    `correlation` has a line for every call that a reply asked for; `issues` are what the trace
    validator finds, `coverage_gaps` what it could not judge and what is no longer on record.
    """
    if row.kind not in parts.trace_writers:
        return None
    made = {call.tool_use_id: call for call in parts.store.read(calls.of_execution, row.id)}
    lines: list[dict[str, Any]] = []
    issues: list[dict[str, Any]] = []
    used: dict[str, float] = {}
    for node in _branches(row):
        named = {"node": node} if node else {}
        prefix = f"{node}/" if node else ""
        try:
            trace = _trace(parts, row, node)
        except Exception as error:  # a pack's own code: the rest of what is known of the run is shown
            log.exception("run %s cannot be written as a trace", row.id)
            issues.append({**named, **_gap("NO_TRACE", f"it cannot be written as a trace: {error}")})
            continue
        lines += [{**named, **line} for line in _correlation(trace, made, prefix)]
        issues += [{**named, **issue} for issue in _judged(trace)]
        for name, amount in trace["used"].items():
            used[name] = used.get(name, 0) + amount
    removed = parts.store.read(_redacted, row.id)
    issues += [
        _gap("EVENT_REDACTED", f"the data of event {one} was removed from the record") for one in removed
    ]
    return {
        "correlation": lines,
        "budgets": _budgets(request_of(row).spec.get("limits", {}), used),
        "issues": [issue for issue in issues if issue["severity"] != "gap"],
        "coverage_gaps": [issue for issue in issues if issue["severity"] == "gap"],
    }


def _branches(row: ExecutionRow) -> list[str]:
    """The branches that have begun, or the run itself where it has none."""
    state = json.loads(row.state_json) if row.state_json else {}
    return list(state["branches"]) if state.get("branches") else [""]


def _trace(parts: Parts, row: ExecutionRow, branch: str) -> dict[str, Any]:
    writer = parts.trace_writers.get(row.kind)
    if writer is None:
        raise NotFound(
            f"nothing here writes runs of the kind `{row.kind}` as traces",
            hint="enable the pack that drives them; a direct call is no run of turns",
        )
    return writer(_record(parts, row, branch))


def _record(parts: Parts, row: ExecutionRow, branch: str) -> RunRecord:
    tools = [entry.tool for entry in parts.configuration().catalog.listed()]
    with parts.store.snapshot() as view:
        return RunRecord(
            id=row.id,
            kind=row.kind,
            status=row.status,
            outcome=row.outcome,
            spec=request_of(row).spec,
            state=json.loads(row.state_json) if row.state_json else {},
            result=json.loads(row.result_json) if row.result_json else None,
            branch=branch,
            messages=_conversation(view, row, branch),
            events=_events(view, row.id),
            approvals=_approvals(view, row.id),
            tools=[offer(tool) for tool in tools],
            untrusted=frozenset(tool.id.wire for tool in tools if tool.spec.untrusted_output),
        )


def _conversation(view: Reading, row: ExecutionRow, branch: str) -> list[RecordedMessage]:
    """The messages up to the last one of the run's own."""
    session = f"{row.id}.{branch}" if branch else row.session_id
    found = sessions.history(view, session) if sessions.find(view, session) is not None else ()
    last = max((place for place, one in enumerate(found) if one.run_id == row.id), default=-1)
    return [RecordedMessage(one.run_id == row.id, one.message) for one in found[: last + 1]]


def _every_event(view: Reading, run_id: str) -> Iterator[Record]:
    after = 0
    while page := events.page(view, after, run_id, PAGE):
        yield from page
        after = page[-1].id


def _events(view: Reading, run_id: str) -> list[RecordedEvent]:
    """The events of a run whose data is still on record."""
    return [
        RecordedEvent(one.type, one.ts, one.call_id, json.loads(one.data))
        for one in _every_event(view, run_id)
        if one.data is not None
    ]


def _redacted(view: Reading, run_id: str) -> list[int]:
    return [one.id for one in _every_event(view, run_id) if one.data is None]


def _approvals(view: Reading, run_id: str) -> list[RecordedApproval]:
    used = [call.approval_id for call in calls.of_execution(view, run_id) if call.approval_id is not None]
    rows = [approvals.get(view, one) for one in used]
    return [RecordedApproval(one.id, one.tool, one.arguments, one.status) for one in rows]


def _correlation(
    trace: Mapping[str, Any], made: Mapping[str | None, CallRow], prefix: str
) -> list[dict[str, Any]]:
    asked: dict[str, str] = {}
    for event in trace["events"]:
        if event["type"] == "response":
            asked.update({call["id"]: call["name"] for call in event["requested"]})
    results = _results(trace["messages"])
    by_caller = _made_by_caller(trace["events"])
    lines = []
    for id, name in asked.items():
        call = made.get(f"{prefix}{id}")
        lines.append(
            {
                "tool_use_id": id,
                "tool": name,
                "result": results.get(id),
                "intent": call.id if call is not None else None,
                "approval": (call.approval_id or call.grant_id) if call is not None else None,
                "outcome": _outcome(call) if id not in by_caller else by_caller[id],
            }
        )
    return lines


def _made_by_caller(events: Any) -> dict[str, str]:
    """How the calls stand that a run's caller is to make, by their ids."""
    found: dict[str, str] = {}
    for event in events:
        if event["type"] == "dispatch" and event.get("by") == "caller":
            found[event["id"]] = "waits for its caller"
        elif event["type"] == "result" and event["id"] in found:
            found[event["id"]] = "made by its caller"
    return found


def _outcome(call: CallRow | None) -> str:
    """How the call itself ended, whatever the model was told."""
    if call is None:
        return "not run"
    return call.status if call.code is None else f"{call.status}: {call.code}"


def _results(messages: Any) -> dict[str, str]:
    """Whether each call's result says that it went well, in either protocol."""
    found: dict[str, str] = {}
    for message in messages:
        content = message.get("content")
        blocks = content if isinstance(content, list) else []
        for one in (message, *blocks):
            id = one.get("tool_use_id", one.get("tool_call_id"))
            if isinstance(id, str):
                found[id] = "error" if one.get("is_error") else "ok"
    return found


def _budgets(limits: Mapping[str, Any], used: Mapping[str, float]) -> dict[str, Any]:
    return {
        name: {"used": amount, "limit": limits.get(f"max_{name}", limits.get(name))}
        for name, amount in used.items()
    }


def _gap(code: str, detail: str) -> dict[str, Any]:
    """A gap of the record itself, in the form of an issue."""
    place = {"turn": 0, "block_index": None, "path": ""}
    return {"code": code, "severity": "gap", **place, "detail": detail}


def _judged(trace: Mapping[str, Any]) -> list[dict[str, Any]]:
    from packhost.trace import check  # a host that starts has no use for the validator

    return [issue.as_json() for issue in check(trace).issues]
