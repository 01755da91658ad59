"""The JSON of a trace to a `Trace`; what cannot be read as one raises, what is odd inside is an issue."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from packhost.trace.findings import Findings, shown
from packhost.trace.model import (
    ROLES,
    STOPS,
    Call,
    Event,
    Group,
    Mapped,
    Protocol,
    Reply,
    Result,
    Stop,
    Stream,
    Tool,
    Trace,
    TraceUnreadable,
    text_of,
    unreadable,
)
from packhost.trace.strict import pairs

MAX_FILE = 64 * 1024 * 1024
"""Bytes of a trace that is read at all."""

_KNOWN_BLOCKS = frozenset(
    {
        "text", "image", "document", "thinking", "redacted_thinking", "tool_use", "tool_result",
        "server_tool_use", "mcp_tool_use", "search_result", "container_upload",
        "image_url", "input_audio", "file", "refusal",
    }
)  # fmt: skip
_SERVER_CALLS = frozenset({"server_tool_use", "mcp_tool_use"})


def load(data: bytes) -> Any:
    """The JSON of a file. Raises `TraceUnreadable`."""
    if len(data) > MAX_FILE:
        raise TraceUnreadable(f"it has more than {MAX_FILE} bytes")
    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=pairs)
    except UnicodeDecodeError:
        raise TraceUnreadable("it is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise TraceUnreadable(f"it is not JSON: {error.msg.lower()} in line {error.lineno}") from None
    except (RecursionError, ValueError):
        raise TraceUnreadable("it is JSON that cannot be held: too deep, or a number too long") from None


def read_trace(raw: Any, findings: Findings) -> Trace:
    """The trace. Raises `TraceUnreadable` where its frame does not hold."""
    if not isinstance(raw, Mapping):
        raise TraceUnreadable("a trace is an object")
    protocol: Protocol
    given = raw.get("protocol")
    if given == "messages":
        protocol = "messages"
    elif given == "chat_completions":
        protocol = "chat_completions"
    else:
        raise TraceUnreadable("`protocol` is neither `messages` nor `chat_completions`")
    budgets = raw.get("budgets", {})
    if not isinstance(budgets, Mapping):
        raise unreadable("/budgets", "is no object")
    reader = _Reader(protocol, findings)
    trace = Trace(
        protocol=protocol,
        raw=raw,
        tools=reader.tools(raw),
        steps=[reader.step(index, message) for index, message in _messages(raw)],
        events=_events(raw),
        streams=list(_streams(raw, reader.turn)),
        budgets=budgets,
        outcomes=(),
    )
    ends = [
        text for event in trace.events or () if event.type == "outcome" and (text := event.text("outcome"))
    ]
    stated = raw.get("outcome")
    trace.outcomes = [*ends, stated] if isinstance(stated, str) and stated not in ends else ends
    _relate(trace)
    return trace


def _messages(raw: Mapped) -> Iterator[tuple[int, Mapped]]:
    messages = raw.get("messages")
    if not isinstance(messages, list):
        raise unreadable("/messages", "is no list")
    for index, message in enumerate(messages):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise unreadable(f"/messages/{index}", "is no message with a role")
        yield index, message


def _events(raw: Mapped) -> list[Event] | None:
    given = raw.get("events")
    if given is None:
        return None
    if not isinstance(given, list):
        raise unreadable("/events", "is no list")
    events = []
    for index, one in enumerate(given):
        if not isinstance(one, Mapping) or not isinstance(one.get("type"), str):
            raise unreadable(f"/events/{index}", "is no event with a type")
        events.append(Event(one["type"], one, f"/events/{index}"))
    return events


def _streams(raw: Mapped, turns: int) -> Iterator[Stream]:
    given = raw.get("stream")
    if given is None:
        return
    if not isinstance(given, list):
        raise unreadable("/stream", "is no list")
    if all(isinstance(one, str) for one in given):
        yield Stream(turns, given, "/stream")
        return
    for index, one in enumerate(given):
        lines = one.get("lines") if isinstance(one, Mapping) else None
        if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
            raise unreadable(f"/stream/{index}", "is neither a line nor an object with `lines`")
        turn = one.get("turn", turns)
        yield Stream(turn if type(turn) is int and 0 < turn <= turns else 0, lines, f"/stream/{index}/lines")


def _relate(trace: Trace) -> None:
    trace.replies = [step for step in trace.steps if isinstance(step, Reply)]
    for step in trace.steps:
        if isinstance(step, Reply):
            for call in step.calls:
                if isinstance(call.id, str):
                    trace.known[call.id] = call
        for result in step.stray if isinstance(step, Reply) else step.results:
            if isinstance(result.id, str):
                trace.answers.setdefault(result.id, result)
    if trace.events is None:
        trace.dispatched = {id for id, result in trace.answers.items() if not result.is_error}
        return
    for event in trace.events:
        id = event.text("id")
        if id is not None and event.type == "dispatch":
            trace.dispatched.add(id)
        elif id is not None and event.type == "result" and event.raw.get("exception") is True:
            trace.raised.add(id)


@dataclass
class _Reader:
    protocol: Protocol
    findings: Findings
    turn: int = 0
    """Replies so far."""
    _seen: set[str] = field(default_factory=set)

    def tools(self, raw: Mapped) -> dict[str, Tool]:
        given = raw.get("tools", [])
        if not isinstance(given, list):
            raise unreadable("/tools", "is no list")
        found: dict[str, Tool] = {}
        for index, one in enumerate(given):
            path = f"/tools/{index}"
            if not isinstance(one, Mapping):
                raise unreadable(path, "is no object")
            inner, schema = one, "input_schema"
            if self.protocol == "chat_completions" and isinstance(one.get("function"), Mapping):
                inner, schema, path = one["function"], "parameters", f"{path}/function"
            name = inner.get("name")
            flag = one.get("eager_input_streaming", inner.get("eager_input_streaming", False))
            if not isinstance(flag, bool):
                self.findings.add("EAGER_FLAG_NOT_BOOLEAN", path, f"it is {shown(flag)}; give true or false")
            if isinstance(name, str):
                strict, untrusted, idempotent = (one.get(m, inner.get(m)) is True for m in _MARKS)
                where, declared = f"{path}/{schema}", inner.get(schema, True)
                found[name] = Tool(name, declared, strict, untrusted, idempotent, where)
        return found

    def step(self, index: int, message: Mapped) -> Reply | Group:
        path = f"/messages/{index}"
        role = message["role"]
        if role == "assistant":
            self.turn += 1
            return self._reply(message, path)
        if role not in ROLES[self.protocol]:
            self._unknown(path, f"the role {shown(role)} is not known")
        if role in ("tool", "function"):
            return self._tool_message(message, path)
        results = list(self._results(message, path, proper=role == "user" and self.protocol == "messages"))
        if "tool_call_id" in message:
            results.append(self._whole(message, path, proper=False))
        blocks = message.get("content")
        plain = not isinstance(blocks, list) or len(blocks) > len(results)
        return Group(path, results, plain)

    def _tool_message(self, message: Mapped, path: str) -> Group:
        proper = self.protocol == "chat_completions" and message["role"] == "tool"
        return Group(path, [self._whole(message, path, proper=proper)], plain=False)

    def _whole(self, message: Mapped, path: str, *, proper: bool) -> Result:
        id = message.get("tool_call_id", message.get("tool_use_id"))
        error, text = message.get("is_error") is True, text_of(message.get("content"))
        return Result(id, error, text, 0, path, True, proper)

    def _results(self, message: Mapped, path: str, *, proper: bool) -> Iterator[Result]:
        content = message.get("content")
        leading = True
        for block, raw in enumerate(content if isinstance(content, list) else ()):
            where = f"{path}/content/{block}"
            kind = raw.get("type") if isinstance(raw, Mapping) else None
            if kind == "tool_result":
                id, error = raw.get("tool_use_id"), raw.get("is_error") is True
                yield Result(id, error, text_of(raw.get("content")), block, where, leading, proper)
                continue
            leading = False
            if kind == "tool_use":
                self._unknown(where, "a call stands in a message that is not the assistant's", block)
            elif not isinstance(kind, str) or not _known(kind):
                self._unknown(where, f"a block of the type {shown(kind)} is not known", block)

    def _reply(self, message: Mapped, path: str) -> Reply:
        content = message.get("content")
        blocks = content if isinstance(content, list) else []
        calls = [self._use(b, i, path) for i, b in enumerate(blocks) if _is(b, "tool_use")]
        if self.protocol == "chat_completions":
            calls += self._functions(message, path)
        texts = [content] if isinstance(content, str) else [b["text"] for b in blocks if _is_text(b)]
        servers = {b["id"] for b in blocks if _is_server(b) and isinstance(b.get("id"), str)}
        stop, said = self._stop(message)
        return Reply(
            turn=self.turn,
            path=path,
            raw=message,
            calls=calls,
            stray=list(self._results(_without_calls(message), path, proper=False)),
            server_ids=frozenset(servers),
            texts=texts,
            stop=stop,
            stop_text=said,
            supplied=message.get("supplied") is True,
            blocks=len(blocks) + (len(calls) if self.protocol == "chat_completions" else 0),
        )

    def _use(self, raw: Mapped, block: int, path: str) -> Call:
        where = f"{path}/content/{block}"
        return Call(raw.get("id"), raw.get("name"), raw.get("input"), "object", self.turn, block, where)

    def _functions(self, message: Mapped, path: str) -> Iterator[Call]:
        given = message.get("tool_calls")
        for block, raw in enumerate(given if isinstance(given, list) else ()):
            where = f"{path}/tool_calls/{block}"
            if not isinstance(raw, Mapping):
                self._unknown(where, "a call is no object", block)
                continue
            kind = raw.get("type", "function")
            inner = raw.get("function")
            if kind != "function" or not isinstance(inner, Mapping):
                detail = f"a call of the type {shown(kind)} is not supported"
                self.findings.add("CUSTOM_CALL_UNSUPPORTED", where, detail, turn=self.turn, block=block)
                inner = inner if isinstance(inner, Mapping) else raw.get("custom")
                if not isinstance(inner, Mapping):
                    inner = {}
            arguments = inner.get("arguments", inner.get("input"))
            wants: Literal["text", "nothing"] = "text" if kind == "function" else "nothing"
            yield Call(raw.get("id"), inner.get("name"), arguments, wants, self.turn, block, where)
        if message.get("function_call") is not None:
            detail = "a single `function_call` is not supported"
            where = f"{path}/function_call"
            self.findings.add("CUSTOM_CALL_UNSUPPORTED", where, detail, turn=self.turn, block=0)

    def _stop(self, message: Mapped) -> tuple[Stop, str]:
        first, second = ("stop_reason", "finish_reason")
        if self.protocol == "chat_completions":
            first, second = second, first
        reason = message.get(first) if message.get(first) is not None else message.get(second)
        if reason is None:
            return "missing", ""
        known = STOPS[self.protocol].get(reason) if isinstance(reason, str) else None
        return known or "unknown", shown(reason)

    def _unknown(self, path: str, detail: str, block: int | None = None) -> None:
        self.findings.add("BLOCK_UNKNOWN", path, detail, turn=self.turn, block=block)


_MARKS = ("strict", "untrusted_output", "idempotent")


def _is(block: Any, kind: str) -> bool:
    return isinstance(block, Mapping) and block.get("type") == kind


def _is_text(block: Any) -> bool:
    return _is(block, "text") and isinstance(block.get("text"), str)


def _is_server(block: Any) -> bool:
    kind = block.get("type") if isinstance(block, Mapping) else None
    return isinstance(kind, str) and kind in _SERVER_CALLS


def _known(kind: str) -> bool:
    """Results of the provider's own tools are its own affair: any name of that form is known."""
    return kind in _KNOWN_BLOCKS or (kind.endswith("_tool_result") and kind != "tool_result")


def _without_calls(message: Mapped) -> Mapped:
    """A reply whose own calls are no stray blocks; positions stay."""
    content = message.get("content")
    if not isinstance(content, list):
        return message
    return {**message, "content": [{"type": "text"} if _is(b, "tool_use") else b for b in content]}
