"""A further stdio host on a workspace: it hands each message to the holder and back, whole.

The holder's gate serves the client as one of its own, and its questions return the same way. When the
holder goes, the client stays: one of the relays takes the workspace over in its own process, the others
connect to it, and each tells its new host what the client and the old one still owed each other (`ledger`).
"""

from __future__ import annotations

import gc
import importlib
import os
import random
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import TaskGroup, TaskStatus

from packhost.errors import PackhostError, StoreUnavailable
from packhost.transports.holder import SILENCE, Wire, connect, probe
from packhost.transports.jsonrpc import INVALID_REQUEST, error_line
from packhost.transports.ledger import HandshakeChanged, Ledger, answers
from packhost.transports.pipe import MAX_LINE, LineSink, LineSource, Overlong
from packhost.transports.std import claimed_stdio
from packhost.transports.stopping import GRACE, Stopping

Drain = Callable[[float], Awaitable[None]]
Candidate = Callable[[], AbstractAsyncContextManager[Drain] | None]
"""A host in this process, which serves while it is entered, and how to drain it.

`None` while another holds the workspace.
"""
Reach = Callable[[], Awaitable[Wire]]
"""One attempt to get to whatever host there is. Raises `PackhostError`."""
Probe = Callable[[], Awaitable[StoreUnavailable | None]]
"""Asks whether the holder answers anybody; the error that says that it does not."""

PATIENCE: Final = 20.0
"""Seconds after which a client is told that there is no host to be had."""
_PAUSES: Final = (0.01, 0.25)
"""Seconds between two attempts: the first, and the most."""
_SHORT: Final = 0.05
"""Seconds that a connection lasts at least, else the next one is waited with."""
_HANDSHAKE: Final = 10.0
_MOST_WAITING: Final = 1_000
"""Messages that wait for a host before the client has to."""
_WARM_AFTER: Final = 2.0
"""Seconds after which a relay loads what a host needs, so that it need not when it becomes one."""
_GONE: Final = (
    "the packhost process that holds this workspace has ended and none could take its place; start this "
    "server anew to go on, and look at runs that were going with `packhost runs list`"
)


class Relay:
    """Pipes one client to the host of the workspace, whichever process that is at the time."""

    def __init__(
        self,
        source: LineSource,
        sink: LineSink,
        reach: Reach,
        probe: Probe,
        *,
        patience: float = PATIENCE,
        silence: float = SILENCE,
    ) -> None:
        self._source = source
        self._sink = sink
        self._reach = reach
        self._probe = probe
        self._patience = patience
        self._silence = silence
        self._ledger = Ledger()
        self._unsent: list[bytes] = []
        self._wire: Wire | None = None
        self._connected = anyio.Event()
        self.problem = ""
        """Why the relay ended, when the client did not end it."""

    async def run(self) -> int:
        """Relay until the client ends or no host is to be had; the exit code: 0 when the client did."""
        code = 0
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._read_client, tasks.cancel_scope)
            tasks.start_soon(self._watch)
            await self._follow()
            code = 1
            for line in self._ledger.fail(self.problem):
                await self._sink.send(line)
            await self._sink.flush()
            tasks.cancel_scope.cancel()
        return code

    async def _follow(self) -> None:
        """Serve the client through one host after the other; returns when there is none to be had."""
        while (wire := await self._reached()) is not None:
            began = time.monotonic()
            try:
                await self._take_up(wire)
                await self._pump(wire)
            except HandshakeChanged as changed:
                self.problem = f"{changed}; start this server anew to go on"
                return
            finally:
                self._wire, self._connected = None, anyio.Event()
                wire.close()
            for line in self._ledger.gone():
                await self._sink.send(line)
            if time.monotonic() - began < _SHORT:
                await anyio.sleep(_SHORT)  # it ends, and still takes connections

    async def _reached(self) -> Wire | None:
        pause, most = _PAUSES
        give_up = time.monotonic() + self._patience
        while True:
            try:
                return await self._reach()
            except PackhostError as error:
                self.problem = _told(error)
                if not isinstance(error, StoreUnavailable) or error.data.get("refused"):
                    return None
            if time.monotonic() > give_up:
                return None
            # several relays look at once: spread, so that they do not keep in step
            await anyio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311
            pause = min(pause * 1.5, most)

    async def _take_up(self, wire: Wire) -> None:
        """Put a new host where the old one stood, then hand over what the client waits for."""
        try:
            with anyio.move_on_after(_HANDSHAKE):
                for id, line in self._ledger.greeting():
                    wire.sink.send_nowait(line)
                    answer = await self._answer(wire, id)
                    if answer is None:
                        return  # it is gone again; the next one is greeted anew
                    if (more := self._ledger.greeted(id, answer)) is not None:
                        wire.sink.send_nowait(more)
            for line in [*self._ledger.owed(), *self._unsent]:
                wire.sink.send_nowait(line)
            self._unsent.clear()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return
        self._wire = wire
        self._connected.set()

    async def _answer(self, wire: Wire, id: str) -> bytes | None:
        while isinstance(line := await wire.source.next(), bytes):
            if answers(line, id):
                return line
            for told in self._ledger.from_host(line):
                await self._sink.send(told)
        return None

    async def _pump(self, wire: Wire) -> None:
        if self._wire is None:
            return
        while isinstance(line := await wire.source.next(), bytes):
            for told in self._ledger.from_host(line):
                await self._sink.send(told)
            if self._ledger.closing:
                return

    async def _read_client(self, scope: anyio.CancelScope) -> None:
        while (line := await self._source.next()) is not None:
            if isinstance(line, Overlong):
                text = f"message is longer than {MAX_LINE} bytes"
                await self._sink.send(error_line(None, INVALID_REQUEST, text))
                continue
            if self._wire is None and self._ledger.waiting + len(self._unsent) > _MOST_WAITING:
                await self._connected.wait()
            sent = self._ledger.from_client(line)
            if self._wire is not None and sent is not None:
                await _send(self._wire, sent)
            elif sent is not None and not self._ledger.owes(sent):
                self._unsent.append(sent)
        if self._wire is not None:
            await self._wire.sink.flush()
        scope.cancel()

    async def _watch(self) -> None:
        """Answer in the place of a host that is there and yet answers nobody, such as a stopped one."""
        while True:
            await anyio.sleep(self._silence / 4)
            wire = self._wire
            if wire is None or not self._ledger.overdue(self._silence):
                continue
            problem = await self._probe()
            if problem is None or wire is not self._wire or not self._ledger.overdue(self._silence):
                continue
            lines, withdrawn = self._ledger.give_up(problem.message, problem.hint)
            for line in lines:
                await self._sink.send(line)
            for line in withdrawn:
                await _send(wire, line)


async def _send(wire: Wire, line: bytes) -> None:
    """Send, unless the host is gone: whoever reads from it notices, and what is owed is sent to the next."""
    try:
        await wire.sink.send(line)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        return


def _told(error: PackhostError) -> str:
    return f"{error}. {error.hint}" if error.hint else str(error)


class Ways:
    """How a relay gets to a host: in this process once the workspace is free, else by the holder's socket."""

    def __init__(self, socket_path: Path, tasks: TaskGroup, candidate: Candidate | None) -> None:
        self._path = socket_path
        self._tasks = tasks
        self._candidate = candidate
        self._session = f"s-{os.urandom(10).hex()}"  # the same with every host, and so is its autonomy
        self._drain: Drain | None = None

    async def drain(self, within: float) -> None:
        """Let what is under way in a host of this process end, within some seconds."""
        if self._drain is not None:
            await self._drain(within)

    async def reach(self) -> Wire:
        """One attempt; raises `PackhostError`."""
        host = self._candidate() if self._candidate is not None and self._drain is None else None
        if host is not None:
            await self._tasks.start(self._serve, host)
            sys.stderr.write(f"packhost: process {os.getpid()} has taken this workspace over\n")
        return await connect(self._path, "mcp", session=self._session)

    async def _serve(
        self, host: AbstractAsyncContextManager[Drain], *, task_status: TaskStatus[None]
    ) -> None:
        async with host as drain:
            self._drain = drain
            task_status.started()
            await anyio.sleep_forever()


def _nothing() -> None:
    """On a signal the host itself refuses what comes; here nothing is closed yet."""


async def _warm() -> None:
    await anyio.sleep(_WARM_AFTER)
    # in a thread of its own, so that messages pass meanwhile
    for name in ("packhost.server.mcp", "packhost.transports.lines"):
        await anyio.to_thread.run_sync(importlib.import_module, name)


async def relay_stdio(
    socket_path: Path,
    candidate: Candidate | None = None,
    *,
    grace: float = GRACE,
    patience: float = PATIENCE,
) -> int:
    """Serve this process's stdin and stdout through the workspace's host; returns the exit code.

    With a `candidate`, this process itself becomes the host when the one that is there goes. Told to
    stop as a host, it takes `grace` seconds for what is under way.
    """
    gc.enable()
    problem, code = "", 0
    with claimed_stdio() as (read_fd, write_fd):
        source, sink = LineSource(read_fd), LineSink(write_fd)
        try:
            async with anyio.create_task_group() as tasks:
                ways = Ways(socket_path, tasks, candidate)
                tasks.start_soon(Stopping(ways.drain, grace).upon_signal, _nothing, tasks.cancel_scope.cancel)
                if candidate is not None:
                    tasks.start_soon(_warm)
                relay = Relay(source, sink, ways.reach, partial(probe, socket_path), patience=patience)
                code = await relay.run()
                problem = relay.problem or _GONE
                tasks.cancel_scope.cancel()
        except* (anyio.BrokenResourceError, anyio.ClosedResourceError):
            code = 0  # the client closed its end first
        finally:
            source.close()
            sink.close()
    if code:
        sys.stderr.write(f"packhost: {problem}\n")
    return code
