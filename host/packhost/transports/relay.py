"""A further stdio host on a workspace: it hands each message to the holder and back, whole.

The holder's gate serves the client as one of its own, and its questions return the same way.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

import anyio
import pydantic_core

from packhost.errors import PackhostError
from packhost.transports.holder import Wire, connect
from packhost.transports.jsonrpc import CONNECTION_CLOSED, INVALID_REQUEST, error_line
from packhost.transports.pipe import MAX_LINE, LineSink, LineSource, Overlong
from packhost.transports.std import claimed_stdio, stop_on_signal

_GONE: Final = (
    "the packhost process that holds this workspace has ended; start this server anew to go on, "
    "and look at runs that were going with `packhost runs list`"
)


class Relay:
    """Pipes one client to the holder."""

    def __init__(self, source: LineSource, sink: LineSink, holder: Wire) -> None:
        self._source = source
        self._sink = sink
        self._holder = holder
        self._pending: dict[str | int, None] = {}

    async def run(self) -> int:
        """Relay until the client or the holder ends; the exit code: 0 when the client did, 1 else."""
        code = 0
        async with anyio.create_task_group() as tasks:

            async def to_client() -> None:
                nonlocal code
                while isinstance(line := await self._holder.source.next(), bytes):
                    self._note(line, from_client=False)
                    await self._sink.send(line)
                code = await self._end()
                tasks.cancel_scope.cancel()

            async def to_holder() -> None:
                while (line := await self._source.next()) is not None:
                    if isinstance(line, Overlong):
                        text = f"message is longer than {MAX_LINE} bytes"
                        await self._sink.send(error_line(None, INVALID_REQUEST, text))
                        continue
                    self._note(line, from_client=True)
                    try:
                        await self._holder.sink.send(line)
                    except anyio.BrokenResourceError:
                        return  # the other direction ends too, and tells the client
                await self._holder.sink.flush()
                tasks.cancel_scope.cancel()

            tasks.start_soon(to_client)
            tasks.start_soon(to_holder)
        return code

    def _note(self, line: bytes, *, from_client: bool) -> None:
        """Keep account of requests that the client waits for."""
        id, is_request = _request(line)
        if id is None:
            return
        if from_client and is_request:
            self._pending[id] = None
        elif not from_client and not is_request:
            self._pending.pop(id, None)

    async def _end(self) -> int:
        for id in list(self._pending):
            await self._sink.send(error_line(id, CONNECTION_CLOSED, _GONE))
        await self._sink.flush()
        return 1


def _request(line: bytes) -> tuple[str | int | None, bool]:
    """A message's id and whether it is a request."""
    try:
        data: Any = pydantic_core.from_json(line)
    except ValueError:
        return None, False
    if not isinstance(data, dict):
        return None, False
    id = data.get("id")
    usable = isinstance(id, str | int) and not isinstance(id, bool)
    return (id if usable else None), "method" in data


async def relay_stdio(socket_path: Path) -> int:
    """Serve this process's stdin and stdout through the holder's socket; returns the exit code."""
    with claimed_stdio() as (read_fd, write_fd):
        try:
            holder = await connect(socket_path, "mcp")
        except PackhostError as error:
            sys.stderr.write(f"packhost: {error}. {error.hint}\n")
            return 1
        source, sink = LineSource(read_fd), LineSink(write_fd)
        code = 0
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(stop_on_signal, tasks.cancel_scope)
                code = await Relay(source, sink, holder).run()
                tasks.cancel_scope.cancel()
        except* (anyio.BrokenResourceError, anyio.ClosedResourceError):
            code = 0  # the client closed its end first
        finally:
            source.close()
            sink.close()
            holder.close()
    if code:
        sys.stderr.write(f"packhost: {_GONE}\n")
    return code
