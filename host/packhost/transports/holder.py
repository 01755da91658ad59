"""The way to the process that holds a workspace, for a relay and the command line.

A connection opens with one line, `{"packhost": 1, "mode": "mcp" | "control"}`, which is answered by
`{"packhost": 1, "ok": true}` or by an error. After it, `mcp` is an MCP connection of its own, in the
`session` that the first line may name, and `control` is a line `{"id": …, "op": …, "params": {…}}` for
each request and one for each answer.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import sys
from dataclasses import dataclass
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
SILENCE: Final = 10.0
"""Seconds without a word after which it is asked whether the holder still answers anybody."""
PROBE_TIMEOUT: Final = 5.0
"""Seconds in which it then has to."""


@dataclass(frozen=True, slots=True)
class Peer:
    """The process at the other end."""

    pid: int
    uid: int


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


class Wire:
    """Lines over one connected socket."""

    session: str | None = None
    """The session that a relay brings along."""

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


async def connect(
    path: Path, mode: Mode, *, session: str | None = None, timeout: float = GREETING_TIMEOUT
) -> Wire:
    """A greeted connection to the holder; raises `StoreUnavailable` when there is none to reach.

    `data["silent"]` says that one is there and does not answer, `data["refused"]` that it does not want to.
    """
    try:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    except OSError as error:
        raise StoreUnavailable(
            f"the way to the host cannot be opened: {error.strerror}", hint="raise the limit with `ulimit -n`"
        ) from error
    connection.setblocking(False)
    try:
        with anyio.fail_after(timeout):
            await asyncio.get_running_loop().sock_connect(connection, os.fspath(path))
    except TimeoutError as error:  # its queue is full: it takes nobody in
        connection.close()
        raise _silent(0) from error
    except OSError as error:
        connection.close()
        raise _gone() from error
    # The holder bounds what it sends; a line cut off here would leave its request unanswered for good.
    wire = Wire(connection, max_line=sys.maxsize)
    try:
        pid = peer_of(connection).pid
        hello = {"packhost": PROTOCOL, "mode": mode}
        await wire.sink.send(to_json(hello if session is None else {**hello, "session": session}))
        answer = None
        with anyio.move_on_after(timeout) as waited:
            answer = await wire.receive()
        if answer is None:
            raise _silent(pid) if waited.cancelled_caught else _gone()
        if answer.get("ok") is not True:
            raise StoreUnavailable(
                f"the packhost process that holds this workspace refused: {answer.get('error')}",
                hint="use the same version of packhost, as the same user",
                refused=True,
            )
    except BaseException as error:
        wire.close()
        if isinstance(error, anyio.BrokenResourceError):
            raise _gone() from error
        raise
    return wire


def _gone() -> StoreUnavailable:
    return StoreUnavailable(
        "the packhost process that holds this workspace does not answer",
        hint="it may be starting or ending; try again, or see `packhost doctor`",
    )


def _silent(pid: int) -> StoreUnavailable:
    which = f"process {pid}, which holds this workspace," if pid else "the process that holds this workspace"
    if pid and stopped(pid):
        return StoreUnavailable(
            f"{which} is stopped and does not answer",
            hint=f"let it go on with `kill -CONT {pid}`, or end it with `kill -9 {pid}`",
            silent=True,
            pid=pid,
        )
    return StoreUnavailable(
        f"{which} does not answer",
        hint=f"it is busy or hangs; if it stays so, end it with `kill -9 {pid}`"
        if pid
        else "it is busy or hangs; see `packhost doctor`",
        silent=True,
        pid=pid,
    )


def stopped(pid: int) -> bool:
    """Whether a process was stopped by a signal; only Linux tells."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ("T", "t")
    except (OSError, IndexError):
        return False


async def probe(path: Path) -> StoreUnavailable | None:
    """Whether the holder is there and yet does not answer: the error that says so, else `None`."""
    try:
        wire = await connect(path, "control", timeout=PROBE_TIMEOUT)
    except StoreUnavailable as error:
        return error if error.data.get("silent") else None
    wire.close()
    return None


async def _answer(path: Path, wire: Wire) -> dict[str, Any] | None:
    while True:
        with anyio.move_on_after(SILENCE):
            return await wire.receive()
        if (problem := await probe(path)) is not None:
            raise problem


async def call_control(path: Path, op: str, params: dict[str, Any] | None = None) -> Any:
    """One operation on the running host; raises `PackhostError` as the host did.

    However long the operation takes, a holder that has stopped to answer at all is told of.
    """
    wire = await connect(path, "control")
    try:
        await wire.sink.send(to_json({"id": 1, "op": op, "params": params or {}}))
        answer = await _answer(path, wire)
    except anyio.BrokenResourceError:
        answer = None
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
