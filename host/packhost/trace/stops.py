"""The stop reason decides, and it has to fit what the reply holds and what followed from it."""

from __future__ import annotations

from packhost.trace.findings import Findings
from packhost.trace.model import STOPS, Group, Reply, Trace

_UNREPORTED = frozenset({"unsupported", "protocol_error", "cancelled", "client_disconnect"})
"""Outcomes that own up to a paused turn."""


def check_stops(trace: Trace, findings: Findings) -> None:
    """Add the issues of the group `Stop state`."""
    for place, step in enumerate(trace.steps):
        if not isinstance(step, Reply) or step.supplied:
            continue
        _reason(step, findings)
        _conflict(step, findings)
        _dispatches(trace, step, findings)
        if step.stop == "paused":
            _paused(trace, place, step, findings)
    _completion(trace, findings)


def _say(findings: Findings, code: str, reply: Reply, detail: str) -> None:
    findings.add(code, reply.path, detail, turn=reply.turn)


def _reason(reply: Reply, findings: Findings) -> None:
    if reply.stop == "missing":
        _say(findings, "STOP_MISSING", reply, "the reply has neither `stop_reason` nor `finish_reason`")
    elif reply.stop == "unknown":
        _say(findings, "STOP_UNKNOWN", reply, f"the stop reason {reply.stop_text} is not known")
    elif reply.stop == "tools" and not reply.calls:
        _say(findings, "STOP_TOOL_WITHOUT_CALLS", reply, f"`{reply.stop_text}` without a call")
    elif reply.stop == "final" and reply.calls:
        detail = f"the reply asks for tools and stops with `{reply.stop_text}`"
        _say(findings, "CALLS_WITHOUT_TOOL_STOP", reply, detail)


def _conflict(reply: Reply, findings: Findings) -> None:
    first, second = reply.raw.get("stop_reason"), reply.raw.get("finish_reason")
    if first is None or second is None:
        return
    one = STOPS["messages"].get(first) if isinstance(first, str) else None
    other = STOPS["chat_completions"].get(second) if isinstance(second, str) else None
    if one != other:
        _say(findings, "STOP_CONFLICT", reply, "`stop_reason` and `finish_reason` disagree")


def _dispatches(trace: Trace, reply: Reply, findings: Findings) -> None:
    codes = {"incomplete": "DISPATCH_AFTER_INCOMPLETE", "refused": "DISPATCH_AFTER_REFUSAL"}
    code = codes.get(reply.stop)
    for call in reply.calls if code is not None else ():
        if code is not None and isinstance(call.id, str) and call.id in trace.dispatched:
            detail = f"the call was run although the reply stopped with `{reply.stop_text}`"
            findings.add(code, call.path, detail, turn=reply.turn, block=call.block, id=call.id)


def _paused(trace: Trace, place: int, reply: Reply, findings: Findings) -> None:
    after = trace.steps[place + 1] if place + 1 < len(trace.steps) else None
    continued = isinstance(after, Reply)
    if not continued and (isinstance(after, Group) or trace.outcome not in _UNREPORTED):
        detail = "the paused turn was neither continued by sending it back nor reported"
        _say(findings, "PAUSE_TURN_UNHANDLED", reply, detail)


def _completion(trace: Trace, findings: Findings) -> None:
    last = trace.replies[-1] if trace.replies else None
    stopped = _last_stop(trace) or (last.stop if last is not None and not last.supplied else None)
    if trace.outcome == "completed" and stopped != "final":
        path = last.path if last is not None else "/messages"
        turn = last.turn if last is not None else 0
        detail = "the run was called completed, its last reply's stop reason is not a final one"
        findings.add("COMPLETION_FROM_PROSE", path, detail, turn=turn)


def _last_stop(trace: Trace) -> str | None:
    """What the last reply came to by the events; a reply without content leaves no message."""
    for event in reversed(trace.events or ()):
        reason = event.raw.get("stop_reason") if event.type == "response" else None
        if isinstance(reason, str):
            return STOPS[trace.protocol].get(reason, "unknown")
    return None
