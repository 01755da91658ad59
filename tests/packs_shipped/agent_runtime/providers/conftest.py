"""Streams to feed to the adapters, and a connection that lives in memory."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from packhost.errors import ToolFailed
from packhost.kinds.context import OfferedTool
from packhost_packs.agent_runtime.faults import TurnFault
from packhost_packs.agent_runtime.providers.arguments import schemas_of
from packhost_packs.agent_runtime.providers.base import Reply
from packhost_packs.agent_runtime.providers.chat_stream import ChatStream
from packhost_packs.agent_runtime.providers.messages_stream import MessagesStream
from packhost_packs.agent_runtime.stream.limits import SafetyLimits

CAPTURES = Path(__file__).parent.parent / "captures"
NEEDS_CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = (
    OfferedTool("get_weather", "lab:weather", "Weather.", NEEDS_CITY),
    OfferedTool("list_all", "lab:list", "Lists.", {"type": "object", "properties": {}}),
)
MACHINES = {"chat": ChatStream, "messages": MessagesStream}


def whole(data: bytes) -> list[bytes]:
    return [data]


class Streams:
    """Makes streams of both protocols and reads them."""

    tools = TOOLS
    names = tuple(sorted(path.stem for path in CAPTURES.glob("*.sse")))

    @staticmethod
    def capture(name: str) -> bytes:
        return (CAPTURES / f"{name}.sse").read_bytes()

    @staticmethod
    def machine(protocol: str, **limits: int) -> Any:
        return MACHINES[protocol](SafetyLimits(**limits), schemas_of(TOOLS))

    def read(self, protocol: str, pieces: Iterable[bytes], **limits: int) -> Reply:
        """Feed the pieces and finish."""
        machine = self.machine(protocol, **limits)
        for piece in pieces:
            machine.feed(piece)
        return machine.finish()

    def fault(self, protocol: str, pieces: bytes | Iterable[bytes], **limits: int) -> TurnFault:
        """The fault that the stream gives."""
        with pytest.raises(TurnFault) as caught:
            self.read(protocol, [pieces] if isinstance(pieces, bytes) else pieces, **limits)
        return caught.value

    @staticmethod
    def frame(data: Any, event: str | None = None) -> bytes:
        text = data if isinstance(data, str) else json.dumps(data)
        return (f"event: {event}\n" if event else "").encode() + f"data: {text}\n\n".encode()

    def chat(self, *deltas: Any, finish: Any = "tool_calls", done: bool = True, usage: Any = None) -> bytes:
        """A stream of one choice: deltas (bytes pass as they are), a finish reason, `[DONE]`."""
        parts = [d if isinstance(d, bytes) else self.chunk(d) for d in deltas]
        if finish is not None:
            parts.append(self.chunk({}, finish))
        if usage is not None:
            parts.append(self.frame({"choices": [], "usage": usage}))
        return b"".join(parts) + (self.frame("[DONE]") if done else b"")

    def chunk(self, delta: Any, finish: Any = None, **more: Any) -> bytes:
        return self.frame({"choices": [{"index": 0, "delta": delta, "finish_reason": finish, **more}]})

    @staticmethod
    def call(index: Any, arguments: Any = None, **members: Any) -> dict[str, Any]:
        """A delta with one fragment of a call; `name`, `id`, `type` where given, `index` unless `...`."""
        function = {"name": members.pop("name")} if "name" in members else {}
        if arguments is not None:
            function["arguments"] = arguments
        fragment = {**members, "function": function}
        return {"tool_calls": [fragment if index is ... else {"index": index, **fragment}]}

    def messages(self, *blocks: Any, stop: Any = "tool_use", end: bool = True) -> bytes:
        """A stream of blocks `(start, *deltas)` (bytes pass as they are) and a stop reason."""
        parts, index = [self.start()], 0
        for block in blocks:
            if isinstance(block, bytes):
                parts.append(block)
            else:
                parts += self.block(index, *block)
                index += 1
        if stop is not None:
            parts.append(self.event("message_delta", delta={"stop_reason": stop}, usage={"output_tokens": 3}))
        return b"".join(parts) + (self.event("message_stop") if end else b"")

    def event(self, kind: str, **members: Any) -> bytes:
        return self.frame({"type": kind, **members}, kind)

    def start(self, **members: Any) -> bytes:
        message = {"type": "message", "role": "assistant", "content": [], "usage": {"input_tokens": 5}}
        return self.event("message_start", message={**message, **members})

    def block(self, index: int, start: Any, *deltas: Any, stop: bool = True) -> list[bytes]:
        parts = [self.event("content_block_start", index=index, content_block=start)]
        parts += [self.event("content_block_delta", index=index, delta=delta) for delta in deltas]
        return parts + ([self.event("content_block_stop", index=index)] if stop else [])


@pytest.fixture(scope="session")
def streams() -> Streams:
    """Makes and reads streams."""
    return Streams()


class MemoryReply:
    """An HTTP reply of pieces; one that is callable is awaited in its place, and may never come."""

    def __init__(self, status: int, pieces: Sequence[Any], headers: Mapping[str, str]) -> None:
        self.status = status
        self.headers = headers
        self._pieces = pieces

    async def chunks(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            if isinstance(piece, bytes):
                yield piece
            elif isinstance(piece, Exception):
                raise piece
            else:
                await piece()


class MemoryConnection:
    """Gives one reply, keeps what it was asked, and says when it was closed."""

    def __init__(self, *pieces: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        self.sent: list[tuple[str, Any, Mapping[str, str]]] = []
        self.closed = anyio.Event()
        self.at_close: Callable[[], Any] | None = None
        self._reply = MemoryReply(status, pieces, headers or {})

    @asynccontextmanager
    async def post(self, path: str, body: bytes, headers: Mapping[str, str]) -> AsyncIterator[MemoryReply]:
        self.sent.append((path, json.loads(body), headers))
        await anyio.lowlevel.checkpoint()
        try:
            yield self._reply
        finally:
            self.closed.set()
            if self.at_close is not None:
                await self.at_close()


class RefusingConnection:
    """Cannot be reached; `sent` is what it says of that."""

    def __init__(self, **data: Any) -> None:
        self._data = data

    @asynccontextmanager
    async def post(self, path: str, body: bytes, headers: Mapping[str, str]) -> AsyncIterator[Any]:
        raise ToolFailed("cannot be reached", **self._data)
        yield


@pytest.fixture
def connection() -> type[MemoryConnection]:
    """Makes a connection that lives in memory."""
    return MemoryConnection


@pytest.fixture
def refusing() -> type[RefusingConnection]:
    """Makes a connection that cannot be reached."""
    return RefusingConnection
