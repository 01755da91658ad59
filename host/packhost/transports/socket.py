"""The holder's socket: further hosts and the command line reach the one host of a workspace through it.

A connection opens with one line, `{"packhost": 1, "mode": "mcp" | "control"}`, which is answered by
`{"packhost": 1, "ok": true}` or by an error. After it, `mcp` is an MCP connection of its own, and
`control` is a line `{"id": …, "op": …, "params": {…}}` for each request and one for each answer.
Only processes of the same user are served.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import struct
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import anyio
import pydantic_core
from anyio.abc import TaskGroup
from mcp.server import Server

from packhost.errors import CODES, NotFound, PackhostError, StoreUnavailable
from packhost.transports.lines import MessageReader, MessageWriter, to_json
from packhost.transports.pipe import MAX_LINE, LineSink, LineSource

_log = logging.getLogger(__name__)

PROTOCOL: Final = 1
Mode = Literal["mcp", "control"]
_GREETING_TIMEOUT: Final = 10.0
_MAX_PATH: Final = 100
"""Bytes of a socket's path that every platform takes."""
_BACKLOG: Final = 64


@dataclass(frozen=True, slots=True)
class Peer:
    """The process at the other end."""

    pid: int
    uid: int


Control = Callable[[str, dict[str, Any], Peer], Awaitable[dict[str, Any]]]
"""Carries out an operation; raises `PackhostError`."""


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


def peer_of(connection: socket.socket) -> Peer:
    """The process at the other end of a unix socket; uid -1 where the platform does not tell."""
    if sys.platform == "linux":
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid, uid, _ = struct.unpack("3i", raw)
        return Peer(pid, uid)
    if sys.platform == "darwin":
        # struct xucred: version, uid, number of groups, groups.
        raw = connection.getsockopt(0, 1, 76)
        return Peer(0, struct.unpack_from("=Ii", raw)[1])
    return Peer(0, -1)


@asynccontextmanager
async def socket_server(path: Path, server: Server[Any], control: Control) -> AsyncIterator[None]:
    """Serve the socket while the block runs; afterwards it is gone and its connections are closed.

    The caller holds the workspace's lock, so a socket that lies there already is a dead host's.
    """
    if len(os.fsencode(path)) > _MAX_PATH:
        raise PackhostError(
            f"the socket's path `{path}` is longer than {_MAX_PATH} bytes",
            hint="set XDG_STATE_HOME to a shorter folder",
        )
    listener = _listen(path)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_accept, listener, server, control, tasks)
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()
    finally:
        _close(listener, path)


def _listen(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    path.unlink(missing_ok=True)
    mask = os.umask(0o177)
    try:
        listener.bind(os.fspath(path))
    except BaseException:
        listener.close()
        raise
    finally:
        os.umask(mask)
    listener.listen(_BACKLOG)
    listener.setblocking(False)
    return listener


def _close(listener: socket.socket, path: Path) -> None:
    listener.close()
    path.unlink(missing_ok=True)


async def _accept(listener: socket.socket, server: Server[Any], control: Control, tasks: TaskGroup) -> None:
    loop = asyncio.get_running_loop()
    while True:
        try:
            connection, _ = await loop.sock_accept(listener)
        except OSError as error:
            _log.warning("a connection could not be taken: %s", error)
            await anyio.sleep(0.1)  # out of descriptors: let some be closed
            continue
        tasks.start_soon(_serve, connection, server, control)


async def _serve(connection: socket.socket, server: Server[Any], control: Control) -> None:
    wire = Wire(connection)
    try:
        peer = peer_of(connection)
        mode = await _greet(wire, peer)
        if mode == "mcp":
            await server.run(
                MessageReader(wire.source, wire.sink),
                MessageWriter(wire.sink),
                server.create_initialization_options(),
            )
        elif mode == "control":
            await _serve_control(wire, control, peer)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        _log.debug("a connection broke")
    except Exception:
        _log.exception("a connection failed")
    finally:
        wire.close()


async def _greet(wire: Wire, peer: Peer) -> Mode | None:
    problem = "" if peer.uid == os.getuid() else "this socket serves processes of the same user alone"
    mode: Any = None
    if not problem:
        hello = None
        with anyio.move_on_after(_GREETING_TIMEOUT):
            hello = await wire.receive()
        if hello is None or hello.get("packhost") != PROTOCOL:
            problem = f"the connection does not open with packhost's greeting, version {PROTOCOL}"
        elif (mode := hello.get("mode")) not in ("mcp", "control"):
            problem = f"no such mode `{str(mode)[:40]}`: `mcp` or `control`"
    answer = {"packhost": PROTOCOL, "error": problem} if problem else {"packhost": PROTOCOL, "ok": True}
    await wire.sink.send(to_json(answer))
    if problem:
        await wire.sink.flush()
        return None
    return "mcp" if mode == "mcp" else "control"


async def _serve_control(wire: Wire, control: Control, peer: Peer) -> None:
    async with anyio.create_task_group() as tasks:
        while (request := await wire.receive()) is not None:
            tasks.start_soon(_operate, wire, control, peer, request)
        tasks.cancel_scope.cancel()


async def _operate(wire: Wire, control: Control, peer: Peer, request: dict[str, Any]) -> None:
    op, params = request.get("op"), request.get("params", {})
    answer: dict[str, Any] = {"id": request.get("id")}
    try:
        if not isinstance(op, str) or not isinstance(params, dict):
            raise NotFound("a request names an `op` and its `params`")
        answer["result"] = await control(op, params, peer)
    except PackhostError as error:
        answer["error"] = {
            "code": error.code,
            "message": error.message,
            "hint": error.hint,
            "place": str(error.place) if error.place else None,
            "data": error.data,
        }
    except Exception:
        _log.exception("operation `%s` failed", op)
        answer["error"] = {"code": "TOOL_FAILED", "message": "packhost met a fault of its own", "hint": ""}
    try:
        await wire.sink.send(to_json(answer))
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        _log.debug("nobody is left to be answered")


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
        with anyio.move_on_after(_GREETING_TIMEOUT):
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


async def call_control(path: Path, op: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
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
        result = answer.get("result")
        return result if isinstance(result, dict) else {}
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
