"""Replies against the limits of one reply, and the whole trace against the run's budgets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from packhost.trace.correlation import LIMIT
from packhost.trace.findings import Findings
from packhost.trace.model import Call, Event, Reply, Trace, number
from packhost.trace.sse import size_of

_WORK = frozenset({"request", "dispatch"})
_IDLE = {"pause": "resume", "interrupt": "resume", "approval_asked": "approval"}
"""What begins a time in which nobody works, and what ends it."""


def check_budgets(trace: Trace, findings: Findings) -> None:
    """Add the issues of the group `Limits and budgets`, but for those of raw streams."""
    _reply_limits(trace, findings)
    _event_limits(trace, findings)
    _turns(trace, findings)
    _calls(trace, findings)
    _tokens(trace, findings)
    _clock(trace, findings)
    _count(trace, "retry", "BUDGET_RETRIES", trace.limit("retries", "retry_attempts"), findings)
    _admission(trace, findings)


def _reply_limits(trace: Trace, findings: Findings) -> None:
    measures: tuple[tuple[str, Callable[[Reply], int], float | None], ...] = (
        ("LIMIT_BLOCKS", lambda reply: reply.blocks, trace.reply_limit("content_blocks", "blocks")),
        ("LIMIT_TOOL_CALLS", lambda reply: len(reply.calls), trace.reply_limit("tool_calls")),
        (
            "LIMIT_ARGUMENT_BYTES",
            lambda reply: sum(map(_argument_bytes, reply.calls)),
            trace.reply_limit("argument_bytes"),
        ),
    )
    for code, measure, most in measures:
        for reply in trace.replies if most is not None else ():
            if most is not None and not reply.supplied and (amount := measure(reply)) > most:
                detail = f"{amount} where {most:g} are allowed"
                findings.add(code, reply.path, detail, turn=reply.turn)


def _argument_bytes(call: Call) -> int:
    return len(call.input.encode("utf-8", "replace")) if isinstance(call.input, str) else size_of(call.input)


def _event_limits(trace: Trace, findings: Findings) -> None:
    most = {
        "bytes": ("LIMIT_RESPONSE_BYTES", trace.reply_limit("response_bytes")),
        "snapshots": ("LIMIT_SNAPSHOTS", trace.reply_limit("snapshots")),
    }
    turn = 0
    for event in trace.events or ():
        if event.type != "response":
            continue
        turn += 1
        for member, (code, allowed) in most.items():
            amount = event.number(member)
            if allowed is not None and amount is not None and amount > allowed:
                findings.add(code, event.path, f"{amount:g} where {allowed:g} are allowed", turn=turn)


def _turns(trace: Trace, findings: Findings) -> None:
    most = trace.limit("turns", "api_turns", "iterations")
    own = [reply for reply in trace.replies if not reply.supplied]
    if most is not None and len(own) > most:
        over = own[int(most)] if most >= 0 else own[0]
        findings.add("BUDGET_TURNS", over.path, f"{len(own)} turns of {most:g}", turn=over.turn)


def _calls(trace: Trace, findings: Findings) -> None:
    most = trace.limit("tool_calls")
    own = {call.id for reply in trace.replies if not reply.supplied for call in _named(reply.calls)}
    ran = len(trace.dispatched) if trace.events is not None else len(trace.dispatched & own)
    if most is not None and ran > most:
        path = "/events" if trace.events is not None else "/messages"
        findings.add("BUDGET_TOOL_CALLS", path, f"{ran} calls were run of {most:g}", turn=len(trace.replies))


def _named(calls: Iterable[Call]) -> Iterable[Call]:
    return (call for call in calls if isinstance(call.id, str))


def _tokens(trace: Trace, findings: Findings) -> None:
    most = trace.limit("tokens", "total_tokens")
    if most is None:
        return
    used, spent_in = 0.0, None
    for reply in trace.replies:
        usage = reply.raw.get("usage")
        if reply.supplied or not isinstance(usage, dict):
            continue
        if spent_in is not None:
            detail = f"a turn began after {used:g} of {most:g} tokens"
            findings.add("BUDGET_TOKENS", reply.path, detail, turn=reply.turn)
            return
        used += sum(number(usage.get(name)) or 0.0 for name in _TOKENS)
        spent_in = reply if used >= most else None
    if spent_in is not None and used > most:
        detail = f"the last reply brought it to {used:g} of {most:g} tokens"
        findings.add("BUDGET_TOKENS", spent_in.path, detail, turn=spent_in.turn, severity="warning")


_TOKENS = (
    "input_tokens",
    "output_tokens",
    "prompt_tokens",
    "completion_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
)


def _clock(trace: Trace, findings: Findings) -> None:
    most = trace.limit("wall_clock", "wall_clock_seconds", "wall_clock_s", "seconds")
    worked, last, waits_for = 0.0, None, None
    over = None
    for event in trace.events or () if most is not None else ():
        at = event.number("at")
        if at is None or most is None:
            continue
        idle = last is None or waits_for is not None or event.type == "interrupt"
        worked += 0.0 if idle else at - (last or 0.0)
        last = at
        waits_for = None if event.type == waits_for else _IDLE.get(event.type, waits_for)
        if worked > most:
            over = event
            if event.type in _WORK:
                detail = f"`{event.type}` after {worked:g} of {most:g} seconds"
                findings.add("BUDGET_WALL_CLOCK", event.path, detail, turn=len(trace.replies))
                return
    if over is not None:
        detail = f"the last step ran to {worked:g} of {most:g} seconds"
        findings.add("BUDGET_WALL_CLOCK", over.path, detail, turn=len(trace.replies), severity="warning")


def _count(trace: Trace, kind: str, code: str, most: float | None, findings: Findings) -> None:
    if most is None:
        return
    found = [event for event in trace.events or () if event.type == kind or event.raw.get(kind) is True]
    if len(found) > most:
        findings.add(
            code, found[-1].path, f"{len(found)} where {most:g} are allowed", turn=len(trace.replies)
        )


def _admission(trace: Trace, findings: Findings) -> None:
    if trace.events is not None:
        refused = set(_refused_batches(trace.events))
    else:
        refused = {id for id, one in trace.answers.items() if one.is_error and one.text.startswith(LIMIT)}
    for reply in trace.replies:
        ids = {call.id for call in _named(reply.calls)}
        if ids & refused and ids & trace.dispatched - refused:
            detail = "some calls of the batch were run, others refused for a limit"
            findings.add("BATCH_PARTIAL_ADMISSION", reply.path, detail, turn=reply.turn)


def _refused_batches(events: Iterable[Event]) -> Iterator[str]:
    """Calls whose whole batch was refused; a single call can meet other limits."""
    for event in events:
        id = event.text("id")
        if event.type == "refused" and event.raw.get("batch") is True and id is not None:
            yield id
