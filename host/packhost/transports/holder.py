"""The way to the process that holds a workspace, for a relay and the command line.

A connection opens with one line, `{"packhost": 1, "mode": "mcp" | "control"}`, which is answered by
`{"packhost": 1, "ok": true}` or by an error. After it, `mcp` is an MCP connection of its own, and
`control` is a line `{"id": …, "op": …, "params": {…}}` for each request and one for each answer.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path
from typing import Any, Final, Literal

import anyio
import pydantic_core

from packhost.errors import CODES, PackhostError, StoreUnavailable
from packhost.transports.jsonrpc import to_json
from packhost.transports.pipe import MAX_LINE, LineSink, LineSource

PROTOCOL: Final = 1
Mode = Literal["mcp", "control"]
GREETING_TIMEOUT: Final = 10.0
"""Seconds that either end waits for the other's first line."""


class Wire:
    """Lines over one connected socket."""

    def __init__(self, connection: socket.socket, *, max_line: int = MAX_LINE) -> None:
        connection.setblocking(False)
        self._connection = connection
        self.source = LineSource(connection.fileno(), max_line=max_line)
        self.sink = LineSink(connection.fileno())

    def close(self) -> None:
        """Close both directions and the socket."""
        self.source.close()
        self.sink.close()
        self._connection.close()

    async def receive(self) -> dict[str, Any] | None:
        """The next line as a JSON object; `None` at the end or when it is anything else."""
        line = await self.source.next()
        if not isinstance(line, bytes):
            return None
        try:
            data = pydantic_core.from_json(line)
        except ValueError:
            return None
        return data if isinstance(data, dict) else None


async def connect(path: Path, mode: Mode) -> Wire:
    """A greeted connection to the holder; raises `StoreUnavailable` when there is none to reach."""
    gone = StoreUnavailable(
        "the packhost process that holds this workspace does not answer",
        hint="it may be starting or ending; try again, or see `packhost doctor`",
    )
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(connection, os.fspath(path))
    except OSError as error:
        connection.close()
        raise gone from error
    # The holder bounds what it sends; a line cut off here would leave its request unanswered for good.
    wire = Wire(connection, max_line=sys.maxsize)
    try:
        await wire.sink.send(to_json({"packhost": PROTOCOL, "mode": mode}))
        answer = None
        with anyio.move_on_after(GREETING_TIMEOUT):
            answer = await wire.receive()
        if answer is None:
            raise gone
        if answer.get("ok") is not True:
            raise StoreUnavailable(
                f"the packhost process that holds this workspace refused: {answer.get('error')}",
                hint="use the same version of packhost, as the same user",
            )
    except BaseException as error:
        wire.close()
        if isinstance(error, anyio.BrokenResourceError):
            raise gone from error
        raise
    return wire


async def call_control(path: Path, op: str, params: dict[str, Any] | None = None) -> Any:
    """One operation on the running host; raises `PackhostError` as the host did."""
    wire = await connect(path, "control")
    try:
        await wire.sink.send(to_json({"id": 1, "op": op, "params": params or {}}))
        answer = await wire.receive()
    finally:
        wire.close()
    if answer is None:
        raise StoreUnavailable(
            "the packhost process that holds this workspace went away before it answered",
            hint="start it again and look with `packhost doctor`",
        )
    error = answer.get("error")
    if error is None:
        return answer.get("result")
    code = error.get("code")
    place = error.get("place")
    raise PackhostError(
        f"{place}: {error['message']}" if place else error["message"],
        code=code if code in CODES else "TOOL_FAILED",
        hint=error.get("hint", ""),
        **{
            k: v
            for k, v in (error.get("data") or {}).items()
            if k not in ("code", "hint", "place", "message")
        },
    )
