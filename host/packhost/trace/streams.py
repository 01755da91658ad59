"""Both streaming protocols as state machines over a recorded stream, and the stream against its message."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from packhost.trace.findings import Findings, shown
from packhost.trace.model import STOPS, Reply, Stream, Trace
from packhost.trace.sse import Lines, StreamEvent
from packhost.trace.strict import BadInput, parse
from packhost.trace.thinking import Thought, compare, thoughts

DELTAS: Mapping[str, frozenset[str]] = {
    "text": frozenset({"text_delta", "citations_delta"}),
    "tool_use": frozenset({"input_json_delta"}),
    "server_tool_use": frozenset({"input_json_delta"}),
    "mcp_tool_use": frozenset({"input_json_delta"}),
    "thinking": frozenset({"thinking_delta", "signature_delta"}),
    "redacted_thinking": frozenset(),
}
"""Which deltas a block may have; blocks of the provider's own results have none."""


@dataclass
class Streamed:
    """What a stream came to."""

    calls: dict[Any, StreamedCall] = field(default_factory=dict)
    thinking: list[Thought] = field(default_factory=list)
    blocks: int = 0
    events: int = 0
    reason: str | None = None
    ended: bool = False
    failed: bool = False


@dataclass
class StreamedCall:
    """A call as it was assembled from its fragments."""

    id: Any
    name: Any
    path: str
    text: list[str] = field(default_factory=list)
    size: int = 0
    seed: Any = None
    whole: bool = False
    index: int | None = None
    place: int = 0


def check_streams(trace: Trace, findings: Findings) -> None:
    """Add the issues of the group `Stream` that the raw lines show, and of their limits."""
    replies = {reply.turn: reply for reply in trace.replies}
    machine: type[Machine] = MessagesMachine if trace.protocol == "messages" else ChatMachine
    for stream in trace.streams:
        reader = Lines(stream.lines, stream.path, stream.turn, findings)
        found = machine(trace, stream, findings).run(reader)
        _limits(trace, stream, found, reader.size, findings)
        reply = replies.get(stream.turn)
        if reply is not None and not found.failed:
            _compare(stream, found, reply, findings)


class Machine:
    """What both protocols have in common."""

    def __init__(self, trace: Trace, stream: Stream, findings: Findings) -> None:
        self.trace = trace
        self.stream = stream
        self.findings = findings
        self.found = Streamed()

    def run(self, reader: Lines) -> Streamed:
        """Read the stream to its end."""
        for event in reader.events():
            self.found.events += 1
            self.take(event)
            reader.ended = self.found.ended
        if not self.found.ended and not self.found.failed:
            self.say("TERMINAL_MISSING", self.stream.path, "the stream ended without its terminal marker")
        for call in self.found.calls.values():
            self.assembled(call)
        return self.found

    def take(self, event: StreamEvent) -> None:
        """Act on one event."""
        raise TypeError("a machine of no protocol reads no stream")

    def assembled(self, call: StreamedCall) -> None:
        """Say what is wrong with a call's input once its fragments are together."""
        text = "".join(call.text)
        if not call.whole or (not text and isinstance(call.seed, dict | None)):
            return
        try:
            if not isinstance(parse(text), dict):
                self.say("INPUT_NOT_OBJECT", call.path, "the streamed input is no object", id=call.id)
        except BadInput as bad:
            self.say(bad.code, call.path, bad.detail, id=call.id)

    def failure(self, event: StreamEvent) -> None:
        """Note an error that the provider reports inside the stream."""
        self.found.failed = True
        grave: Any = "warning" if self.trace.outcome == "provider_error" else None
        error = (event.data or {}).get("error")
        kind = error.get("type", error.get("code")) if isinstance(error, Mapping) else error
        self.say("PROVIDER_ERROR_EVENT", event.path, f"the provider reports {shown(kind)}", severity=grave)

    def say(self, code: str, path: str, detail: str, **more: Any) -> None:
        """Add an issue of this stream."""
        self.findings.add(code, path, detail, turn=self.stream.turn, **more)

    def stop(self, reason: Any, path: str) -> None:
        """Note a stop reason; two that differ disagree."""
        if not isinstance(reason, str):
            return
        if self.found.reason is not None and self.found.reason != reason:
            self.say("STOP_CONFLICT", path, f"`{shown(self.found.reason)}`, then `{shown(reason)}`")
        self.found.reason = reason


class MessagesMachine(Machine):
    """`message_start`, blocks, `message_delta`, `message_stop`."""

    def __init__(self, trace: Trace, stream: Stream, findings: Findings) -> None:
        super().__init__(trace, stream, findings)
        self.started = False
        self.open: dict[int, Mapping[str, Any]] = {}
        self.thought: dict[int, Thought] = {}

    def take(self, event: StreamEvent) -> None:
        """Act on one event."""
        data = event.data
        if data is None:
            self.say("EVENT_UNKNOWN", event.path, "`[DONE]` is no event of this protocol")
            return
        kind = data.get("type")
        if event.name and event.name != kind:
            self.say(
                "SSE_MALFORMED", event.path, f"the event is named {shown(event.name)}, not {shown(kind)}"
            )
        handle = self._HANDLERS.get(kind) if isinstance(kind, str) else None
        if kind == "error":
            self.failure(event)
        elif handle is None:
            if kind != "ping":
                self.say("EVENT_UNKNOWN", event.path, f"an event of the type {shown(kind)} is not known")
        elif (kind == "message_start") == self.started:
            self.started = True
            self.say("EVENT_ORDER", event.path, f"`{kind}` does not stand here")
            if kind != "message_start":
                handle(self, data, event.path)
        else:
            self.started = True
            handle(self, data, event.path)

    def _begin(self, data: Mapping[str, Any], path: str) -> None:
        """Nothing but the start itself is held to anything."""

    def _block_start(self, data: Mapping[str, Any], path: str) -> None:
        index, block = data.get("index"), data.get("content_block")
        kind = block.get("type") if isinstance(block, Mapping) else None
        if type(index) is not int or index != self.found.blocks:
            code = "CALL_INDEX_INVALID" if kind == "tool_use" else "EVENT_ORDER"
            self.say(code, path, f"the block at position {self.found.blocks} has the index {shown(index)}")
        self.found.blocks += 1
        if not isinstance(block, Mapping) or type(index) is not int:
            return
        if not isinstance(kind, str) or not (kind in DELTAS or kind.endswith("_tool_result")):
            self.say("BLOCK_UNKNOWN", path, f"a block of the type {shown(kind)} is not known")
        self.open[index] = block
        if kind == "tool_use":
            call = StreamedCall(block.get("id"), block.get("name"), path, seed=block.get("input"))
            self.found.calls[index] = call
        elif kind in ("thinking", "redacted_thinking"):
            first = Thought(str(kind), [], [])
            first.grow(block.get("thinking", block.get("data")), block.get("signature"))
            self.thought[index] = first
            self.found.thinking.append(first)

    def _delta(self, data: Mapping[str, Any], path: str) -> None:
        index, delta = data.get("index"), data.get("delta")
        block = self.open.get(index) if type(index) is int else None
        if block is None or not isinstance(delta, Mapping) or not isinstance(index, int):
            self.say("EVENT_ORDER", path, f"a delta for the block {shown(index)}, which is not open")
            return
        kind, allowed = delta.get("type"), DELTAS.get(str(block.get("type")))
        if allowed is None:
            return
        if kind not in allowed:
            detail = f"{shown(kind)} in a block of the type {shown(block.get('type'))}"
            self.say("DELTA_TYPE_MISMATCH", path, detail)
        elif kind == "input_json_delta" and isinstance(delta.get("partial_json"), str):
            if index in self.found.calls:
                _grow(self.found.calls[index], delta["partial_json"])
        elif kind in ("thinking_delta", "signature_delta"):
            self.thought[index].grow(delta.get("thinking"), delta.get("signature"))

    def _block_stop(self, data: Mapping[str, Any], path: str) -> None:
        index = data.get("index")
        if type(index) is not int or index not in self.open:
            self.say("EVENT_ORDER", path, f"the block {shown(index)} stops, which is not open")
            return
        del self.open[index]
        if index in self.found.calls:
            self.found.calls[index].whole = True

    def _message_delta(self, data: Mapping[str, Any], path: str) -> None:
        delta = data.get("delta")
        self.stop(delta.get("stop_reason") if isinstance(delta, Mapping) else None, path)

    def _message_stop(self, data: Mapping[str, Any], path: str) -> None:
        if self.open:
            self.say("BLOCK_NOT_STOPPED", path, "the message stops while a block is open")
        if self.found.reason is None:
            self.say("TERMINAL_EARLY", path, "`message_stop` came before a stop reason")
        self.found.ended = True

    _HANDLERS: Mapping[str, Callable[[MessagesMachine, Mapping[str, Any], str], None]] = {
        "message_start": _begin,
        "content_block_start": _block_start,
        "content_block_delta": _delta,
        "content_block_stop": _block_stop,
        "message_delta": _message_delta,
        "message_stop": _message_stop,
    }


class ChatMachine(Machine):
    """Chunks with deltas, a finish reason, `[DONE]`."""

    def __init__(self, trace: Trace, stream: Stream, findings: Findings) -> None:
        super().__init__(trace, stream, findings)
        self.ids: dict[str | None, int] = {}
        self.at: dict[int, list[StreamedCall]] = {}
        """Calls by the index at which they began."""
        self.told = False
        self.merged: dict[Any, Thought] = {}

    def take(self, event: StreamEvent) -> None:
        """Act on one event."""
        data = event.data
        if data is None:
            if self.found.reason is None:
                self.say("TERMINAL_EARLY", event.path, "`[DONE]` came before a finish reason")
            self.found.ended = True
            return
        choices = data.get("choices")
        if data.get("error") is not None:
            self.failure(event)
        elif not isinstance(choices, list):
            self.say("EVENT_UNKNOWN", event.path, "a chunk has no `choices`")
        for choice in choices if isinstance(choices, list) else ():
            if not isinstance(choice, Mapping) or choice.get("index", 0) != 0:
                self.say("EVENT_ORDER", event.path, "there is more than one choice")
                continue
            self._choice(choice, event.path)

    def _choice(self, choice: Mapping[str, Any], path: str) -> None:
        delta = choice.get("delta")
        delta = delta if isinstance(delta, Mapping) else {}
        fragments = delta.get("tool_calls")
        if self.found.reason is not None and (delta.get("content") or fragments):
            self.say("EVENT_ORDER", path, "content follows the finish reason")
        for fragment in fragments if isinstance(fragments, list) else ():
            if isinstance(fragment, Mapping):
                self._fragment(fragment, path)
        for thought in thoughts({"reasoning_details": delta.get("reasoning_details")}, merge=False):
            known = self.merged.setdefault(thought.key, thought)
            if known is thought:
                self.found.thinking.append(thought)
            else:
                known.grow(thought.text, thought.signature)
        self.stop(choice.get("finish_reason"), path)

    def assembled(self, call: StreamedCall) -> None:
        """A call is whole once the finish reason came, and has its id by then."""
        call.whole = self.found.reason is not None
        if call.id == "":
            self.say("CALL_ID_EMPTY", call.path, "a streamed call has an empty id")
        elif not isinstance(call.id, str):
            self.say("CALL_ID_MISSING", call.path, "a streamed call has no id")
        super().assembled(call)

    def _fragment(self, raw: Mapping[str, Any], path: str) -> None:
        index, id = raw.get("index"), raw.get("id")
        inner = raw.get("function")
        inner = inner if isinstance(inner, Mapping) else {}
        if raw.get("type", "function") not in ("function", "", None):
            self.say("CUSTOM_CALL_UNSUPPORTED", path, f"a call of the type {shown(raw['type'])}", id=id)
        if index is not None and (type(index) is not int or index < 0):
            self.say("CALL_INDEX_INVALID", path, f"a fragment has the index {shown(index)}", id=id)
            return
        call = self._call_of(index, id, path)
        if call is None:
            return
        if call.name in (None, ""):
            call.name = inner.get("name")
        elif inner.get("name") not in (None, "", call.name):
            detail = f"the call is named {shown(call.name)}, then {shown(inner['name'])}"
            self.say("CALL_NAME_CONFLICT", path, detail, id=call.id)
        if isinstance(inner.get("arguments"), str):
            _grow(call, inner["arguments"])

    def _call_of(self, index: int | None, id: Any, path: str) -> StreamedCall | None:
        """The call that a fragment belongs to; ids tell calls apart where an index does not."""
        named = id if isinstance(id, str) and id else None
        if named in self.ids:
            if index is not None and self.found.calls[self.ids[named]].index != index:
                self.say("CALL_ID_DUPLICATE", path, f"two indexes have the id `{shown(named)}`", id=named)
            return self.found.calls[self.ids[named]]
        begun = self.found.calls.values() if index is None else self.at.get(index, ())
        if index is None or (begun and named is not None and all(map(_has_id, begun))):
            self._misnumbered(path, ambiguous=named is None and len(begun) > 1)
        if begun and named is None:
            return next(iter(begun)) if len(begun) == 1 else None
        late = next((call for call in begun if not _has_id(call)), None)
        if late is not None and named is not None:
            late.id = named
            self.ids[named] = late.place
            return late
        call = StreamedCall(id, None, path, index=index, place=len(self.found.calls))
        self.found.calls[call.place] = call
        self.found.blocks += 1
        if index is not None:
            self.at.setdefault(index, []).append(call)
            if len(self.at[index]) > 1 and named is None:
                self._misnumbered(path, ambiguous=True)
        if named is not None:
            self.ids[named] = call.place
        return call

    def _misnumbered(self, path: str, *, ambiguous: bool) -> None:
        if ambiguous:
            self.say("CALL_INDEX_INVALID", path, "nothing says which call a fragment belongs to")
        elif not self.told:
            self.told = True
            detail = "the index is missing or shared; the ids tell the calls apart"
            self.say("CALL_INDEX_INVALID", path, detail, severity="warning")


def _has_id(call: StreamedCall) -> bool:
    return isinstance(call.id, str) and call.id != ""


def _grow(call: StreamedCall, fragment: str) -> None:
    call.text.append(fragment)
    call.size += len(fragment.encode("utf-8", "replace"))


def _limits(trace: Trace, stream: Stream, found: Streamed, size: int, findings: Findings) -> None:
    counted = (
        ("LIMIT_STREAM_BYTES", size, trace.reply_limit("stream_bytes")),
        ("LIMIT_EVENTS", found.events, trace.reply_limit("events")),
    )
    for code, amount, most in counted:
        if most is not None and amount > most:
            findings.add(code, stream.path, f"{amount} where {most:g} are allowed", turn=stream.turn)
    if stream.turn:  # the message itself is held to this one
        return
    most, amount = trace.reply_limit("argument_bytes"), sum(call.size for call in found.calls.values())
    if most is not None and amount > most:
        detail = f"{amount} bytes where {most:g} are allowed"
        findings.add("LIMIT_ARGUMENT_BYTES", stream.path, detail)


def _compare(stream: Stream, found: Streamed, reply: Reply, findings: Findings) -> None:
    """The message that was kept, against what the provider sent."""
    given = {call.id for call in found.calls.values() if isinstance(call.id, str)}
    kept = {call.id for call in reply.calls if isinstance(call.id, str)}
    for call in reply.calls:
        if isinstance(call.id, str) and call.id not in given:
            detail = f"the stream gave no call the id `{shown(call.id)}`"
            findings.add("CALL_ID_INVENTED", call.path, detail, turn=reply.turn, block=call.block, id=call.id)
    for one in found.calls.values():
        if isinstance(one.id, str) and one.id not in kept:
            detail = "the stream holds a call that the message does not"
            findings.add("CONTRACT_MISSING_CALL", one.path, detail, turn=reply.turn, id=one.id)
    if found.reason is not None and reply.stop_text and found.reason != reply.stop_text:
        known = STOPS["messages"].get(found.reason) or STOPS["chat_completions"].get(found.reason)
        detail = (
            f"the stream stops with `{shown(found.reason)}` ({known or 'unknown'}), the message otherwise"
        )
        findings.add("STOP_CONFLICT", reply.path, detail, turn=reply.turn)
    compare(found.thinking, thoughts(reply.raw), reply.path, reply.turn, findings)
