"""A streamed reply of the Messages protocol.

Order: `message_start`; blocks, each started at the next index, fed deltas of its own type, and
stopped; `message_delta` with the stop reason; `message_stop`. `ping` may come anywhere; an event of
an unknown type is passed over, since the protocol may grow such, but an unknown block or delta is not.
"""

from __future__ import annotations

from typing import Any

import packhost_packs.agent_runtime.strict_json as strict_json
from packhost_packs.agent_runtime.contract import check_calls
from packhost_packs.agent_runtime.faults import TurnFault
from packhost_packs.agent_runtime.providers.arguments import Schemas, read_arguments
from packhost_packs.agent_runtime.providers.base import Reply, Snapshot, Usage, check_counts, verdict_of
from packhost_packs.agent_runtime.providers.complaints import error_fault
from packhost_packs.agent_runtime.providers.messages import (
    REASONS,
    check_caller,
    is_server_kind,
    judge,
    read_block,
    usage_of,
)
from packhost_packs.agent_runtime.stream.limits import SafetyLimits
from packhost_packs.agent_runtime.stream.machine import StreamMachine


class _Growing:
    """A block that deltas are added to; its members are joined once, when it is asked for."""

    __slots__ = ("calls", "json", "kind", "raw", "signature", "stopped", "text")

    def __init__(self, raw: dict[str, Any], kind: str) -> None:
        self.raw = raw
        self.kind = kind
        self.calls = kind in ("tool_use", "server_tool_use", "mcp_tool_use")
        self.stopped = False
        self.text: bytearray | None = None
        self.signature: bytearray | None = None
        self.json: bytearray | None = None

    def whole(self) -> dict[str, Any]:
        """The block with what its deltas added, but for a call's input."""
        if self.text is not None:
            member = "text" if self.kind == "text" else "thinking"
            self.raw[member] = str(self.raw.get(member) or "") + self.text.decode()
        elif self.kind == "text":
            self.raw.setdefault("text", "")
        if self.signature is not None:
            self.raw["signature"] = str(self.raw.get("signature") or "") + self.signature.decode()
        return self.raw


class MessagesStream(StreamMachine):
    """Assembles one reply; `schemas` are those of the tools that were offered."""

    def __init__(self, limits: SafetyLimits, schemas: Schemas) -> None:
        super().__init__(limits)
        self._schemas = schemas
        self._blocks: list[_Growing] = []
        self._calls = 0
        self._open = 0
        self._started = False
        self._stop: str | None = None
        self._usage = Usage()

    def _take(self, event: str, data: str) -> bool:
        frame = self._frame(data)
        kind = frame.get("type")
        if event and kind != event and event != "message":
            raise _malformed(f"an event is named `{event[:80]}` and says something else of itself")
        if kind == "content_block_delta":
            self._delta(frame)
        elif kind == "error":
            raise error_fault(frame, begun=self.begun)
        elif kind == "message_start":
            self._start(frame)
        elif kind == "content_block_start":
            self._block(frame)
        elif kind == "content_block_stop":
            self._block_stop(frame)
        elif kind == "message_delta":
            self._message_delta(frame)
        elif kind == "message_stop":
            return self._message_stop()
        elif not isinstance(kind, str):
            raise _malformed("an event has no type")
        return False

    def _start(self, frame: dict[str, Any]) -> None:
        message = frame.get("message")
        if self._started:
            raise _order("a second message starts in one stream")
        if not isinstance(message, dict) or message.get("role") != "assistant" or message.get("content"):
            raise _order("the stream does not start an empty assistant message")
        if message.get("stop_reason") is not None:
            raise _order("a message that starts has a stop reason")
        self._started = self.begun = True
        self._usage = usage_of(message.get("usage"))

    def _block(self, frame: dict[str, Any]) -> None:
        if not self._started or self._stop is not None:
            raise _order("a content block starts outside a message")
        raw = frame.get("content_block")
        if type(frame.get("index")) is not int or frame["index"] != len(self._blocks):
            raise _order("a content block starts at another index than the next")
        kind = raw.get("type") if isinstance(raw, dict) else None
        if not isinstance(raw, dict) or not isinstance(kind, str):
            raise TurnFault("protocol_error", "BLOCK_UNKNOWN", "a content block has no type")
        if kind == "tool_use":
            check_caller(raw)
            self._calls += 1
            if raw.get("input"):
                self._counted(strict_json.dumps(raw["input"]))
        elif not is_server_kind(kind):
            read_block({**raw, "text": raw.get("text") or ""})  # refuses what is unknown at once
        check_counts(len(self._blocks) + 1, self._calls, self._limits)
        self._blocks.append(_Growing(raw, kind))
        self._open += 1

    def _delta(self, frame: dict[str, Any]) -> None:
        index = frame.get("index")
        if type(index) is not int or not 0 <= index < len(self._blocks) or self._blocks[index].stopped:
            raise _order("a delta belongs to no open content block")
        block, delta = self._blocks[index], frame.get("delta")
        kind = delta.get("type") if isinstance(delta, dict) else None
        if not isinstance(delta, dict):
            raise _malformed("a delta is not an object")
        if kind == "text_delta" and block.kind == "text":
            text = _string(delta, "text")
            if block.text is None:
                block.text = bytearray()
            block.text += text.encode()
            self._show(Snapshot("text", index, text))
        elif kind == "input_json_delta" and block.calls:
            fragment = _string(delta, "partial_json")
            if block.json is None:
                block.json = bytearray()
            block.json += self._counted(fragment.encode())
            if block.kind == "tool_use":
                self._show(Snapshot("call", index, fragment, block.raw.get("id"), block.raw.get("name")))
        elif kind == "thinking_delta" and block.kind == "thinking":
            text = _string(delta, "thinking")
            if block.text is None:
                block.text = bytearray()
            block.text += text.encode()
            self._show(Snapshot("thinking", index, text))
        elif kind == "signature_delta" and block.kind == "thinking":
            if block.signature is None:
                block.signature = bytearray()
            block.signature += _string(delta, "signature").encode()
        elif kind == "citations_delta" and block.kind == "text":
            self._cite(block, delta)
        else:
            message = f"a delta of the type `{str(kind)[:80]}` does not fit its content block"
            raise TurnFault("protocol_error", "DELTA_TYPE_MISMATCH", message)

    def _cite(self, block: _Growing, delta: dict[str, Any]) -> None:
        citations = block.raw.get("citations")
        if citations is None:
            citations = block.raw["citations"] = []
        if not isinstance(citations, list):
            raise TurnFault("protocol_error", "DELTA_TYPE_MISMATCH", "a block's citations are not a list")
        citations.append(delta.get("citation"))

    def _block_stop(self, frame: dict[str, Any]) -> None:
        index = frame.get("index")
        if type(index) is not int or not 0 <= index < len(self._blocks) or self._blocks[index].stopped:
            raise _order("no open content block has the index that is stopped")
        self._blocks[index].stopped = True
        self._open -= 1

    def _message_delta(self, frame: dict[str, Any]) -> None:
        if not self._started:
            raise _order("a message goes on that has not started")
        delta = frame.get("delta")
        reason = delta.get("stop_reason") if isinstance(delta, dict) else None
        if reason is not None:
            if not isinstance(reason, str):
                raise TurnFault("protocol_error", "STOP_UNKNOWN", "the stop reason is not a string")
            if self._stop not in (None, reason):
                message = f"the reply stops with `{self._stop}` and then with `{reason[:80]}`"
                raise TurnFault("protocol_error", "STOP_CONFLICT", message)
            self._stop = reason
        self._usage = usage_of(frame.get("usage"), self._usage)

    def _message_stop(self) -> bool:
        if self._open:
            message = "the message stops while a content block is open"
            raise TurnFault("protocol_error", "BLOCK_NOT_STOPPED", message)
        if self._stop is None:
            raise TurnFault("protocol_error", "TERMINAL_EARLY", "the message stops without a stop reason")
        return True

    def _reply(self) -> Reply:
        runnable = verdict_of(self._stop, self._calls > 0, REASONS) in ("final", "tools")
        content = [block.whole() for block in self._blocks]
        if runnable:
            check_calls([{**block.raw, "input": {}} for block in self._blocks if block.kind == "tool_use"])
            for block in self._blocks:
                if block.calls:
                    block.raw["input"] = self._input(block)
        return judge(content, self._stop, self._usage, self._limits)

    def _input(self, block: _Growing) -> Any:
        given, raw = block.raw.get("input"), "" if block.json is None else block.json.decode()
        if given and raw:
            message = "a call has an input at its start and another one in its deltas"
            raise TurnFault("protocol_error", "CONTRACT_INPUT_MISMATCH", message)
        if given:
            return given
        identity, name = str(block.raw.get("id")), str(block.raw.get("name"))
        return read_arguments(raw, identity, name, self._schemas)


def _string(delta: dict[str, Any], member: str) -> str:
    value = delta.get(member)
    if not isinstance(value, str):
        raise _malformed(f"a delta has no `{member}`")
    return value


def _order(message: str) -> TurnFault:
    return TurnFault("protocol_error", "EVENT_ORDER", message)


def _malformed(message: str) -> TurnFault:
    return TurnFault("protocol_error", "SSE_MALFORMED", message)
