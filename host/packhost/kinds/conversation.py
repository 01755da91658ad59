"""The host's side of a conversation with a handler's process, whichever way the process was made.

What the process sends is treated as hostile: frames are capped before anything is allocated, and an answer
that speaks for the host is believed only where the host said the same before.
"""

from __future__ import annotations

import codecs
import logging
import socket
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Protocol, TypeGuard, get_args, runtime_checkable

import anyio
import anyio.lowlevel
import anyio.to_thread

from packhost.errors import PackhostError, ToolFailed
from packhost.kinds.base import Tool
from packhost.kinds.content import Content
from packhost.kinds.context import CallContext
from packhost.kinds.eliciting import Elicitation, LogLevel
from packhost.kinds.frames import FRAME_LIMIT, HEADER, OWN_CODES, decode, encode, error_frame, error_from
from packhost.kinds.uses import BrokenFrame, decoded, encoded, use_files
from packhost.workspace.redaction import Redactor, StreamRedactor, brief

log = logging.getLogger(__name__)

LOGGED = 64 * 1024
"""Bytes of a process's output that go to the log."""
_TOLD = 64
"""Refusals of which a handler may still speak; one that it heard before these is its own word."""
_UNCOUNTABLE = 1e300
AUTHOR = "this is a mistake in the pack; its output is on the standard error of the host"


def ended_by(tool: Tool, signal: int) -> PackhostError:
    """A handler's process was killed before it answered, perhaps not by itself: memory may have run out."""
    what = f"the process of `{tool.id}` was ended by signal {signal} before it answered"
    memory = "it may have run out of memory: see the system's log" if signal == 9 else AUTHOR
    if tool.spec.idempotent:
        return ToolFailed(what, hint=memory)
    return PackhostError(
        what, code="EFFECTS_UNKNOWN", hint=f"look at what it did before you call it again; {memory}"
    )


@runtime_checkable
class Redacting(Protocol):
    """A context that knows the secrets that were resolved."""

    def redacting(self) -> StreamRedactor:
        """Keeps them out of a text that comes in pieces."""


class OutputLog:
    """What a process prints, line by line into the log, up to `LOGGED` bytes; the rest is dropped."""

    def __init__(self, tool: Tool, context: CallContext) -> None:
        self._tool = tool
        self._room = LOGGED
        self._text = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        # A secret is looked for before lines are parted and characters spelled out.
        self._clean = context.redacting() if isinstance(context, Redacting) else StreamRedactor(Redactor())
        self._line = ""

    def feed(self, part: bytes) -> None:
        """Log the lines that are whole now; control characters are spelled out."""
        self._add(self._clean.feed(self._text.decode(part[: self._room])))
        self._room = max(self._room - len(part), 0)

    def end(self) -> None:
        """Log the rest."""
        self._add(self._clean.feed(self._text.decode(b"", final=True)) + self._clean.finish())
        if self._line:
            self._add("\n")

    def _add(self, text: str) -> None:
        *lines, self._line = f"{self._line}{text}".split("\n")
        for line in lines:
            log.warning("%s: %s", self._tool.id, line.encode("unicode_escape").decode("ascii"))


def request_of(tool: Tool, arguments: Mapping[str, Any], context: CallContext) -> dict[str, Any]:
    """The frame that asks a process for one call."""
    module, _, function = (tool.spec.target or "").partition(":")
    names = ("tool", "call_id", "run_id", "session_id", "principal", "client")
    return {
        "module": module,
        "function": function,
        "arguments": arguments,
        "context": {name: getattr(context, name) for name in names} | {"config": dict(context.config)},
    }


class Conversation:
    """One call's conversation with its process."""

    def __init__(self, tool: Tool, context: CallContext, connection: socket.socket) -> None:
        self._tool = tool
        self._context = context
        self._socket = connection
        self._told: dict[tuple[str, str], PackhostError] = {}

    async def run(self, request: dict[str, Any]) -> Any:
        """Send the request, then see `serve`."""
        await self.send(request)
        return await self.serve()

    async def serve(self) -> Any:
        """Serve the process until it answers; its value.

        :raises PackhostError: what the handler raised, or what is wrong with its answer.
        :raises BrokenFrame: when the process does not keep to the protocol.
        :raises EOFError: when it is gone, as `ConnectionError` does.
        """
        while True:
            frame = await self._receive()
            match frame.get("op"):
                case "progress":
                    await self._progress(frame)
                    # What comes without a pause is never waited for: give others, and the deadline, a turn.
                    await anyio.lowlevel.checkpoint()
                case "log":
                    await self._log(frame)
                    await anyio.lowlevel.checkpoint()
                case "files" | "call" | "secret" | "fetch" | "elicit":
                    await self._serve(frame)
                case "result" if "value" in frame:
                    return frame["value"]
                case "content":
                    return _content(frame)
                case _:
                    raise self._failure(frame)

    def _failure(self, frame: dict[str, Any]) -> PackhostError:
        match frame.get("op"):
            case "error":
                error = error_from(frame)
                if (error.code, error.message) in self._told:
                    return self._told[error.code, error.message]
                return error if error.code in OWN_CODES else ToolFailed(error.message, hint=error.hint)
            case "raised":
                kind, said = (told(frame.get(name), self._context) for name in ("type", "message"))
                what = f"{kind}: {said}".rstrip(": ")
                return ToolFailed(f"the handler of `{self._tool.id}` raised {what}", hint=AUTHOR)
            case "not_json":
                said = told(frame.get("message"), self._context)
                return PackhostError(
                    f"`{self._tool.id}` returned what is not JSON: {said}",
                    code="OUTPUT_INVALID",
                    hint=AUTHOR,
                )
            case "too_large":
                return self._too_large()
            case _:
                raise BrokenFrame("a frame of an unknown kind")

    def _too_large(self) -> PackhostError:
        return PackhostError(
            f"`{self._tool.id}` returned more than {FRAME_LIMIT} bytes",
            code="OUTPUT_TOO_LARGE",
            hint="ask for less",
        )

    async def _progress(self, frame: dict[str, Any]) -> None:
        progress, total, message = frame.get("progress"), frame.get("total"), frame.get("message")
        if not _countable(progress) or not (total is None or _countable(total)):
            raise BrokenFrame("progress that is not a number")
        if not (message is None or isinstance(message, str)):
            raise BrokenFrame("a message that is not text")
        await self._context.report_progress(progress, total, message)

    async def _log(self, frame: dict[str, Any]) -> None:
        level, logger = frame.get("level"), frame.get("logger")
        if level is None or level not in get_args(LogLevel) or not isinstance(logger, str | None):
            raise BrokenFrame("a line for the log that is not one")
        await self._context.log(level, frame.get("data"), logger)

    async def _serve(self, frame: dict[str, Any]) -> None:
        try:
            answer = {"value": await self._value(frame)}
        except PackhostError as error:
            self._told[error.code, error.message] = error.with_traceback(None)
            if len(self._told) > _TOLD:
                del self._told[next(iter(self._told))]
            answer = {"error": error_frame(error)}
        await self.send(answer)

    async def _value(self, frame: dict[str, Any]) -> Any:
        match frame:
            case {"op": "files", "method": str(method), "arguments": dict(arguments)}:
                return await anyio.to_thread.run_sync(use_files, self._context.files, method, arguments)
            case {"op": "call", "tool": str(tool), "arguments": dict(arguments)}:
                return await self._context.call_tool(tool, arguments)
            case {"op": "fetch"}:
                return await self._fetch(frame)
            case {"op": "elicit", "message": str(message), "schema": dict(schema), "url": None}:
                return asdict(await self._context.elicit(Elicitation(message, schema)))
            case {"op": "elicit", "message": str(message), "schema": None, "url": str(url)}:
                return asdict(await self._context.elicit(Elicitation(message, url=url)))
            case {"op": "secret", "name": str(name)}:
                return self._context.secret(name)
            case _:
                raise BrokenFrame("a request that is not one")

    async def _fetch(self, frame: dict[str, Any]) -> Any:
        match frame:
            case {"url": str(url), "method": str(method), "headers": dict(headers), "body": str(body)} if all(
                isinstance(value, str) for value in headers.values()
            ):
                reply = await self._context.fetch(url, method=method, headers=headers, body=decoded(body))
                return asdict(reply) | {"body": encoded(reply.body)}
            case _:
                raise BrokenFrame("a fetch that is not one")

    async def send(self, frame: dict[str, Any]) -> None:
        """Send a frame to the process."""
        try:
            rest = memoryview(encode(frame))
        except OverflowError:
            error = ToolFailed("the answer is too long for one frame", hint="ask for less at once")
            rest = memoryview(encode({"error": error_frame(error)}))
        while rest:
            try:
                rest = rest[self._socket.send(rest) :]
            except BlockingIOError:
                await anyio.wait_writable(self._socket)

    async def _receive(self) -> dict[str, Any]:
        length = int.from_bytes(await self._exactly(HEADER), "big")
        if length > FRAME_LIMIT:
            raise self._too_large()
        try:
            return decode(await self._exactly(length))
        except ValueError:
            raise BrokenFrame("a frame that is not JSON") from None

    async def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            try:
                part = self._socket.recv(min(count - len(data), 1 << 20))
            except BlockingIOError:
                await anyio.wait_readable(self._socket)
                continue
            if not part:
                raise EOFError
            data += part
        return bytes(data)


def _content(frame: dict[str, Any]) -> Content:
    match frame:
        case {"blocks": list(blocks), "data": dict() | None as data}:
            return Content(tuple(blocks), data)
        case _:
            raise BrokenFrame("content that is none")


def _countable(value: object) -> TypeGuard[float]:
    """Whether a number can be told to any client: finite, and no integer beyond every float."""
    return isinstance(value, int | float) and abs(value) < _UNCOUNTABLE


def told(value: object, context: CallContext) -> str:
    """What a handler says went wrong, without secrets, on one line and cut."""
    clean = context.redacting() if isinstance(context, Redacting) else StreamRedactor(Redactor())
    return brief(str(value or ""), lambda text: clean.feed(text) + clean.finish())
