"""A streamed reply of Chat Completions.

Order: chunks of one choice, each with a delta; a finish reason, after which nothing is added but the
usage; `[DONE]`. A fragment of a call belongs to the call with its id, else to the one at its index,
else to the only one there is; where that leaves a doubt, the reply is refused and nothing is merged.
"""

from __future__ import annotations

from typing import Any

from packhost_packs.agent_runtime.faults import TurnFault
from packhost_packs.agent_runtime.providers.arguments import Schemas
from packhost_packs.agent_runtime.providers.base import Reply, Snapshot, Usage, check_counts
from packhost_packs.agent_runtime.providers.chat import (
    Assembled,
    RawCall,
    arguments_of,
    check_members,
    function_of,
    judge,
    only_choice,
    usage_of,
)
from packhost_packs.agent_runtime.providers.complaints import error_fault
from packhost_packs.agent_runtime.providers.reasoning import DETAILS, EXTRA, PLAIN, Details
from packhost_packs.agent_runtime.stream.limits import SafetyLimits
from packhost_packs.agent_runtime.stream.machine import StreamMachine

DONE = "[DONE]"


class _Call:
    """A call that is being put together."""

    __slots__ = ("arguments", "extra", "id", "index", "name", "number")

    def __init__(self, number: int, index: int | None) -> None:
        self.number = number
        self.index = index
        self.id: str | None = None
        self.name: str | None = None
        self.arguments = bytearray()
        self.extra: Any = None

    def take(self, identity: str | None, name: str | None, extra: Any) -> None:
        """Take a fragment's id and name: repeated they are the same, never joined."""
        if identity is not None and (identity or self.id is None):
            self.id = identity
        if name:
            if self.name not in (None, "", name):
                message = f"a call is named `{str(self.name)[:80]}` and then `{name[:80]}`"
                raise TurnFault("protocol_error", "CALL_NAME_CONFLICT", message)
            self.name = name
        if extra is not None:
            self.extra = same_extra(self.extra, extra)


class ChatStream(StreamMachine):
    """Assembles one reply; `schemas` are those of the tools that were offered."""

    def __init__(self, limits: SafetyLimits, schemas: Schemas) -> None:
        super().__init__(limits)
        self._schemas = schemas
        self._text: bytearray | None = None
        self._refusal = bytearray()
        self._plain: dict[str, bytearray] = {}
        self._details = Details()
        self._extra: Any = None
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._by_id: dict[str, _Call] = {}
        self._doubtful: set[int] = set()
        self._finish: str | None = None
        self._usage = Usage()

    def _take(self, event: str, data: str) -> bool:
        if data == DONE:
            if self._finish is None:
                message = f"`{DONE}` comes before a finish reason"
                raise TurnFault("protocol_error", "TERMINAL_EARLY", message)
            return True
        frame = self._frame(data)
        if frame.get("error"):
            raise error_fault(frame, begun=self.begun)
        choice = only_choice(frame.get("choices"))
        self.begun = True
        if choice is not None:
            self._choice(choice)
        if frame.get("usage") is not None:
            self._usage = usage_of(frame["usage"])
        return False

    def _choice(self, choice: dict[str, Any]) -> None:
        delta, reason = choice.get("delta"), choice.get("finish_reason")
        if delta:
            if not isinstance(delta, dict):
                raise TurnFault("protocol_error", "SSE_MALFORMED", "a delta is not an object")
            if self._finish is not None and any(value for name, value in delta.items() if name != "role"):
                message = "the reply goes on after its finish reason"
                raise TurnFault("protocol_error", "EVENT_ORDER", message)
            self._delta(delta)
        if reason is not None:
            if not isinstance(reason, str):
                raise TurnFault("protocol_error", "STOP_UNKNOWN", "the finish reason is not a string")
            if self._finish not in (None, reason):
                message = f"the reply ends with `{self._finish}` and then with `{reason[:80]}`"
                raise TurnFault("protocol_error", "STOP_CONFLICT", message)
            self._finish = reason

    def _delta(self, delta: dict[str, Any]) -> None:
        if delta.get("role") not in (None, "", "assistant"):
            raise TurnFault("protocol_error", "EVENT_ORDER", "the reply is not of the assistant's role")
        check_members(delta)
        content = delta.get("content")
        if content is not None:
            if self._text is None:
                self._text = bytearray()
            self._text += content.encode()
            if content:
                self._show(Snapshot("text", 0, content))
        if delta.get("refusal"):
            self._refusal += delta["refusal"].encode()
        for name in PLAIN:
            if delta.get(name) is not None:
                self._think(name, delta[name])
        if delta.get(DETAILS) is not None:
            self._details.add(delta[DETAILS])
            check_counts(len(self._details) + len(self._calls), len(self._calls), self._limits)
        if delta.get(EXTRA) is not None:
            self._extra = same_extra(self._extra, delta[EXTRA])
        for fragment in delta.get("tool_calls") or ():
            self._fragment(fragment)

    def _think(self, name: str, piece: Any) -> None:
        if not isinstance(piece, str):
            raise TurnFault("protocol_error", "REASONING_UNMERGED", f"a `{name}` is not a string")
        if name not in self._plain:
            self._plain[name] = bytearray()
        self._plain[name] += piece.encode()
        if piece:
            self._show(Snapshot("thinking", 0, piece))

    def _fragment(self, fragment: Any) -> None:
        function = function_of(fragment)
        identity, name, index = fragment.get("id"), function.get("name"), fragment.get("index")
        if identity is not None and not isinstance(identity, str):
            raise TurnFault("protocol_error", "CALL_ID_MISSING", "the id of a call is not a string")
        if name is not None and not isinstance(name, str):
            raise TurnFault("protocol_error", "CALL_NAME_MISSING", "the name of a call is not a string")
        if index is not None and (type(index) is not int or index < 0):
            raise _doubt("a fragment of a call has an index that is none")
        call = self._call_of(identity, index)
        call.take(identity, name, fragment.get(EXTRA))
        if call.id:
            self._by_id.setdefault(call.id, call)
        arguments = arguments_of(function)
        if arguments:
            call.arguments += self._counted(arguments.encode())
        self._show(Snapshot("call", call.number, arguments, call.id, call.name))

    def _call_of(self, identity: str | None, index: int | None) -> _Call:
        """The call that a fragment belongs to; a new one for a new id, or at a new index."""
        if index is None:
            return self._without_index(identity)
        there = self._by_index.get(index)
        known = self._by_id.get(identity) if identity else None
        if known is not None and known.index is not None and known.index != index:
            message = f"two calls have the id `{str(identity)[:80]}`"
            raise TurnFault("protocol_error", "CALL_ID_DUPLICATE", message)
        if known is not None:
            return known
        if there is None:
            if self._by_index and index < max(self._by_index):
                raise _doubt("a call begins at an index before that of an earlier one")
            return self._new(index)
        if identity and there.id and identity != there.id:
            self._doubtful.add(index)
            return self._new(index)
        if not identity and index in self._doubtful:
            raise _doubt("a fragment without an id could belong to two calls")
        return there

    def _without_index(self, identity: str | None) -> _Call:
        if identity:
            return self._by_id.get(identity) or self._new(None)
        if not self._calls:
            return self._new(None)
        if len(self._calls) == 1:
            return self._calls[0]
        raise _doubt("a fragment without an id and an index could belong to two calls")

    def _new(self, index: int | None) -> _Call:
        call = _Call(len(self._calls), index)
        self._calls.append(call)
        check_counts(len(self._details) + len(self._calls), len(self._calls), self._limits)
        if index is not None:
            self._by_index[index] = call
        return call

    def _reply(self) -> Reply:
        message = Assembled(None if self._text is None else self._text.decode(), self._refusal.decode())
        message.calls = [RawCall(c.id, c.name, c.arguments.decode(), c.extra) for c in self._calls]
        message.state = {name: text.decode() for name, text in self._plain.items()}
        if len(self._details):
            message.state[DETAILS] = self._details.merged()
        if self._extra is not None:
            message.state[EXTRA] = self._extra
        return judge(message, self._finish, self._usage, self._schemas, self._limits)


def same_extra(known: Any, came: Any) -> Any:
    """State of another maker's, which comes whole; raises `TurnFault` when it comes twice and differs."""
    if known is not None and known != came:
        raise TurnFault("protocol_error", "SIGNATURE_LOST", f"`{EXTRA}` comes twice with two values")
    return came


def _doubt(message: str) -> TurnFault:
    return TurnFault("protocol_error", "CALL_INDEX_INVALID", message)
