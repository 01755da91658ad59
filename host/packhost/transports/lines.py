"""Newline-delimited JSON-RPC over descriptors, as the stream pair that an MCP server is run with.

A line that is no message is answered by a JSON-RPC error and the connection goes on.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

import anyio
import pydantic_core
from mcp import types
from mcp.server import Server
from mcp.shared.message import SessionMessage

from packhost.names import RELAYED
from packhost.server.callers import relayed_session
from packhost.transports.jsonrpc import INVALID_REQUEST, PARSE_ERROR, error_line, to_json
from packhost.transports.pipe import MAX_LINE, LineSink, LineSource, Overlong


class MessageReader:
    """The messages of a `LineSource`, in the shape that the SDK reads."""

    def __init__(self, source: LineSource, sink: LineSink) -> None:
        self._source = source
        self._sink = sink

    async def receive(self) -> SessionMessage | Exception:
        """The next message; `anyio.EndOfStream` at the end."""
        while True:
            line = await self._source.next()
            if line is None:
                raise anyio.EndOfStream
            if isinstance(line, Overlong):
                await self._complain(INVALID_REQUEST, f"message is longer than {MAX_LINE} bytes")
                continue
            message = await self._parse(line)
            if message is not None:
                return SessionMessage(message)

    async def _parse(self, line: bytes) -> types.JSONRPCMessage | None:
        try:
            data = pydantic_core.from_json(line, allow_inf_nan=False, cache_strings="keys")
        except (ValueError, RecursionError):
            await self._complain(PARSE_ERROR, "line is not JSON")
            return None
        message = as_message(data)
        if message is None:
            id = data.get("id") if isinstance(data, dict) else None
            await self._complain(INVALID_REQUEST, "line is not a JSON-RPC message", id)
        return message

    async def _complain(self, code: int, text: str, id: object = None) -> None:
        known = id if isinstance(id, str | int) and not isinstance(id, bool) else None
        try:
            await self._sink.send(error_line(known, code, text))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return  # nobody is left to be told

    async def aclose(self) -> None:
        """Stop reading."""
        self._source.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.aclose()


class MessageWriter:
    """Takes messages and writes each as a line."""

    def __init__(self, sink: LineSink) -> None:
        self._sink = sink

    async def send(self, item: SessionMessage) -> None:
        """Write a message; waits only while the other end is slow."""
        await self._sink.send(message_line(item.message))

    async def aclose(self) -> None:
        """Let what was written reach the other end, then stop."""
        await self._sink.flush()
        self._sink.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.aclose()


def as_message(data: object) -> types.JSONRPCMessage | None:
    """Read decoded JSON as a message by its members alone; `None` when it is none.

    Checked by hand and built unvalidated, since each message is validated again by its method's own model.
    """
    if not isinstance(data, dict) or data.get("jsonrpc") != "2.0":
        return None
    if ("method" in data) + ("result" in data) + ("error" in data) != 1:
        return None
    has_id = "id" in data
    id = data.get("id")
    if has_id and (isinstance(id, bool) or not isinstance(id, str | int)):
        return types.JSONRPCError.model_validate(data) if id is None and _is_error(data) else None
    method = data.get("method")
    if isinstance(method, str):
        members: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        if (params := data.get("params")) is not None:
            if not isinstance(params, dict):
                return None
            members["params"] = params
            if (number := data.get(RELAYED)) is not None and isinstance(params.setdefault("_meta", {}), dict):
                params["_meta"][RELAYED] = number
        if has_id:
            return types.JSONRPCRequest.model_construct(id=id, **members)
        return types.JSONRPCNotification.model_construct(**members)
    if has_id and isinstance(data.get("result"), dict):
        return types.JSONRPCResponse.model_construct(jsonrpc="2.0", id=id, result=data["result"])
    return types.JSONRPCError.model_validate(data) if has_id and _is_error(data) else None


def _is_error(data: dict[str, Any]) -> bool:
    error = data.get("error")
    return (
        isinstance(error, dict)
        and isinstance(error.get("code"), int)
        and not isinstance(error["code"], bool)
        and isinstance(error.get("message"), str)
    )


def message_line(message: types.JSONRPCMessage) -> bytes:
    """A message as one line of JSON without its newline."""
    if isinstance(message, types.JSONRPCResponse):
        return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (to_json(message.id), to_json(message.result))
    return to_json(message.model_dump(mode="json", by_alias=True, exclude_unset=True))


async def serve_lines(
    server: Server[Any], source: LineSource, sink: LineSink, session: str | None = None
) -> None:
    """Serve one client over a pair of lines until it goes; `session` is what a relay brought along."""
    relayed_session.set(session)
    await server.run(MessageReader(source, sink), MessageWriter(sink), server.create_initialization_options())
