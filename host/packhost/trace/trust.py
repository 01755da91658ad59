"""What goes back to the provider unchanged, what may not be trusted, and what must not be written down."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from packhost.trace.findings import Findings
from packhost.trace.model import Group, Mapped, Reply, Trace, unreadable
from packhost.trace.schema import pointer
from packhost.trace.strict import Doubled, fingerprint
from packhost.trace.thinking import Thought, compare, thoughts

MAX_BITS = 14_000
"""What a whole number may have: as many as a reader of JSON takes."""
MAX_DEPTH = 200
"""Levels of nesting of a trace that is read at all."""
ENVELOPE = "UNTRUSTED_TOOL_OUTPUT"
REQUIRED = {"messages": ("x-api-key", "anthropic-version"), "chat_completions": ("authorization",)}
"""Headers that a request must have; a bearer token stands for a key in both protocols."""
_KEYS = frozenset({"x-api-key", "authorization", "proxy-authorization", "api-key"})
_SECRET = re.compile(
    r"\bsk-[A-Za-z0-9_-]{20}|\bgh[pousr]_[A-Za-z0-9]{30}|\bgithub_pat_[A-Za-z0-9_]{30}|\bAKIA[0-9A-Z]{16}\b"
    r"|\bxox[abprs]-[A-Za-z0-9-]{10}|\bAIza[0-9A-Za-z_-]{30}|\bBearer [A-Za-z0-9._~+/-]{20}"
    r"|-----BEGIN (?:[A-Z]+ ){0,3}PRIVATE KEY-----"
)


def check_trust(trace: Trace, findings: Findings) -> None:
    """Add the issues of the group `Provider state and trust`."""
    for reply in trace.replies:
        _reasoning(reply, findings)
    _envelopes(trace, findings)
    _requests(trace, findings)


def survey(raw: Any, findings: Findings) -> None:
    """Walk the whole trace once: secrets in it, nesting, keys that stand twice outside a call's input.

    Raises `TraceUnreadable` for the latter two: nobody can say what such a trace means. So it does for
    a number that no file could hold.
    """
    left: list[tuple[Any, Any, int, bool]] = [(raw, None, 0, False)]
    while left:
        value, place, depth, inside = left.pop()
        if isinstance(value, str):
            if _SECRET.search(value):
                findings.add("SECRET_IN_TRACE", _path(place), "the text has the form of a key or token")
            continue
        if isinstance(value, int) and value.bit_length() > MAX_BITS:
            raise unreadable(_path(place), "is a number of too many digits")
        if not isinstance(value, dict | list):
            continue
        if depth > MAX_DEPTH:
            raise unreadable("", f"it is nested deeper than {MAX_DEPTH} levels")
        if isinstance(value, Doubled) and not inside:
            raise unreadable(_path(place), f"holds the key `{pointer(value.keys_twice[0])[:80]}` twice")
        members = value.items() if isinstance(value, dict) else enumerate(value)
        for key, one in members:
            left.append((one, (place, key), depth + 1, inside or key == "input"))


def _path(place: Any) -> str:
    steps = []
    while place is not None:
        place, key = place
        steps.append(pointer(key))
    return "".join(f"/{step}" for step in reversed(steps))


def _reasoning(reply: Reply, findings: Findings) -> None:
    content = reply.raw.get("content")
    for place, block in enumerate(content if isinstance(content, list) else ()):
        if isinstance(block, Mapping) and block.get("type") == "thinking" and not block.get("signature"):
            path = f"{reply.path}/content/{place}"
            findings.add("SIGNATURE_LOST", path, "thinking without a signature", turn=reply.turn, block=place)
    details = reply.raw.get("reasoning_details")
    seen: set[tuple[str, int]] = set()
    for place, raw in enumerate(details if isinstance(details, list) else ()):
        index = raw.get("index") if isinstance(raw, Mapping) else None
        if type(index) is not int:
            continue
        key = (str(raw.get("type")), index)
        if key in seen:
            path = f"{reply.path}/reasoning_details/{place}"
            detail = f"a further fragment of item {index}"
            findings.add("REASONING_UNMERGED", path, detail, turn=reply.turn, block=place)
        seen.add(key)


def _envelopes(trace: Trace, findings: Findings) -> None:
    for step in trace.steps:
        for result in step.results if isinstance(step, Group) else ():
            call = trace.known.get(result.id) if isinstance(result.id, str) else None
            tool = trace.tools.get(call.name) if call is not None and isinstance(call.name, str) else None
            if tool is not None and tool.untrusted and not result.is_error and ENVELOPE not in result.text:
                detail = f"the output of `{tool.name}` is not in its envelope"
                turn = call.turn if call is not None else 0
                findings.add(
                    "UNTRUSTED_UNWRAPPED", result.path, detail, turn=turn, block=result.block, id=result.id
                )


def _requests(trace: Trace, findings: Findings) -> None:
    first: dict[str, str] = {}
    kept = _Kept(trace.raw["messages"])
    for path, turn, request in _every_request(trace):
        _headers(trace, request, path, turn, findings)
        _max_tokens(trace, request, path, turn, findings)
        for member in ("system", "tools"):
            if member in request:
                now = fingerprint(request[member])
                if first.setdefault(member, now) != now:
                    findings.add("PREFIX_MUTATED", path, f"`{member}` was changed in the run", turn=turn)
        _prefix(kept, request, path, turn, findings)


def _every_request(trace: Trace) -> Iterator[tuple[str, int, Mapped]]:
    stated = trace.raw.get("request")
    if isinstance(stated, Mapping):
        yield "/request", 0, stated
    turn = 1
    for event in trace.events or ():
        if event.type == "request":
            yield event.path, turn, event.raw
        turn += event.type == "response"


def _headers(trace: Trace, request: Mapped, path: str, turn: int, findings: Findings) -> None:
    given = request.get("headers")
    if not isinstance(given, Mapping):
        return
    headers = {str(name).lower(): value for name, value in given.items()}
    for name in REQUIRED[trace.protocol]:
        if not headers.get(name) and not (name in _KEYS and headers.get("authorization")):
            findings.add("HEADER_MISSING", f"{path}/headers", f"`{name}` was not sent", turn=turn)
    for name in _KEYS & headers.keys():
        value = headers[name]
        if isinstance(value, str) and len(value) >= 16 and not _masked(value) and not _SECRET.search(value):
            findings.add("SECRET_IN_TRACE", f"{path}/headers", f"`{name}` holds a value", turn=turn)


def _masked(value: str) -> bool:
    return "redacted" in value.lower() or "***" in value or "xxx" in value.lower()


def _max_tokens(trace: Trace, request: Mapped, path: str, turn: int, findings: Findings) -> None:
    value = request.get("max_tokens")
    required = trace.protocol == "messages" and (path == "/request" or "headers" in request)
    if value is None and not required:
        return
    if type(value) is not int or value < 1:
        findings.add("MAX_TOKENS_INVALID", path, "`max_tokens` is no positive whole number", turn=turn)


class _Kept:
    """The messages of the trace, each looked at once however often it was sent."""

    def __init__(self, messages: Sequence[Mapped]) -> None:
        self.messages = messages
        self._prints: dict[int, str] = {}
        self._thoughts: dict[int, list[Thought]] = {}

    def print_of(self, place: int) -> str:
        if place not in self._prints:
            self._prints[place] = fingerprint(_bare(self.messages[place]))
        return self._prints[place]

    def thoughts_of(self, place: int) -> list[Thought]:
        if place not in self._thoughts:
            self._thoughts[place] = thoughts(self.messages[place])
        return self._thoughts[place]


def _prefix(kept: _Kept, request: Mapped, path: str, turn: int, findings: Findings) -> None:
    """What was sent, against the messages of the trace at the same places; the first that differs counts."""
    sent = request.get("messages")
    for place, message in enumerate(sent if isinstance(sent, list) else ()):
        where = f"{path}/messages/{place}"
        if place >= len(kept.messages) or not isinstance(message, Mapping):
            findings.add("PREFIX_MUTATED", where, "the history holds no such message", turn=turn)
            return
        if fingerprint(_bare(message)) != kept.print_of(place):
            before = findings.counts["error"]
            compare(kept.thoughts_of(place), thoughts(message), where, turn, findings)
            if findings.counts["error"] == before:
                findings.add("PREFIX_MUTATED", where, "the message is not what the history holds", turn=turn)
            return


_NOTES = frozenset({"stop_reason", "finish_reason", "usage", "requested_tools", "supplied"})


def _bare(message: Mapped) -> Mapped:
    """A message without what a trace adds to it."""
    bare = {name: value for name, value in message.items() if name not in _NOTES}
    if bare.get("role") == "tool":
        bare.pop("is_error", None)
    return bare
