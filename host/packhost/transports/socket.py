"""The holder's socket: further hosts and the command line reach the one host of a workspace through it.

Only processes of the same user are served; `holder` says how a connection opens.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup

from packhost.errors import NotFound, PackhostError
from packhost.transports.holder import GREETING_TIMEOUT, PROTOCOL, Mode, Peer, Wire, peer_of
from packhost.transports.jsonrpc import to_json

_log = logging.getLogger(__name__)

_MAX_PATH: Final = 100
"""Bytes of a socket's path that every platform takes."""
_BACKLOG: Final = 64
_SESSION: Final = re.compile(r"s-[0-9a-f]{20}\Z")


Control = Callable[[str, dict[str, Any], Peer], Awaitable[Any]]
"""Carries out an operation; its JSON result. Raises `PackhostError`."""
ServeMcp = Callable[[Wire], Awaitable[None]]
"""Serves one MCP client until it goes; `lines.serve_lines` does, and is imported when the first one comes."""


@asynccontextmanager
async def socket_server(path: Path, mcp: ServeMcp, control: Control) -> AsyncIterator[None]:
    """Serve the socket while the block runs; afterwards it is gone and its connections are closed.

    `mcp` serves a connection that is a client's. The caller holds the workspace's lock,
    so a socket that lies there already is a dead host's.
    """
    if len(os.fsencode(path)) > _MAX_PATH:
        raise PackhostError(
            f"the socket's path `{path}` is longer than {_MAX_PATH} bytes",
            hint="set XDG_STATE_HOME to a shorter folder",
        )
    listener = _listen(path)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_accept, listener, mcp, control, tasks)
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


async def _accept(listener: socket.socket, mcp: ServeMcp, control: Control, tasks: TaskGroup) -> None:
    loop, told = asyncio.get_running_loop(), False
    while True:
        try:
            connection, _ = await loop.sock_accept(listener)
        except OSError as error:
            if not told:
                _log.warning("no connection can be taken until some are closed: %s", error)
            told = True
            await anyio.sleep(0.1)  # out of descriptors: let some be closed
            continue
        told = False
        tasks.start_soon(_serve, connection, mcp, control)


async def _serve(connection: socket.socket, mcp: ServeMcp, control: Control) -> None:
    wire = Wire(connection)
    try:
        peer = peer_of(connection)
        mode = await _greet(wire, peer)
        if mode == "mcp":
            await mcp(wire)
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
        with anyio.move_on_after(GREETING_TIMEOUT):
            hello = await wire.receive()
        if hello is None or hello.get("packhost") != PROTOCOL:
            problem = f"the connection does not open with packhost's greeting, version {PROTOCOL}"
        elif (mode := hello.get("mode")) not in ("mcp", "control"):
            problem = f"no such mode `{str(mode)[:40]}`: `mcp` or `control`"
        else:
            wire.session = _session(hello.get("session"))
    answer = {"packhost": PROTOCOL, "error": problem} if problem else {"packhost": PROTOCOL, "ok": True}
    await wire.sink.send(to_json(answer))
    if problem:
        await wire.sink.flush()
        return None
    return "mcp" if mode == "mcp" else "control"


def _session(named: object) -> str | None:
    return named if isinstance(named, str) and _SESSION.match(named) else None


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
