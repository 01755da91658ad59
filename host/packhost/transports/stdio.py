"""MCP on this process's own stdin and stdout, which carry the protocol and nothing else."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anyio
from mcp.server import Server

from packhost.transports.lines import MessageReader, MessageWriter
from packhost.transports.pipe import LineSink, LineSource


@contextmanager
def claimed_stdio() -> Iterator[tuple[int, int]]:
    """Private descriptors of stdin and stdout; meanwhile 0 is empty and 1 goes to stderr.

    What a handler or a child prints can so never reach the protocol.
    """
    sys.stdout.flush()
    source = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 3)
    sink = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 3)
    try:
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)
        yield source, sink
    finally:
        sys.stdout.flush()
        os.dup2(source, 0)
        os.dup2(sink, 1)
        # The reading thread of an unpollable stdin may still stand in `read`: its descriptor is left open,
        # lest the number be used for something else under it.
        os.close(sink)


async def serve_stdio(server: Server[Any]) -> None:
    """Serve one client until it closes stdin, or SIGTERM or SIGINT arrives."""
    with claimed_stdio() as (read_fd, write_fd):
        source, sink = LineSource(read_fd), LineSink(write_fd)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(stop_on_signal, tasks.cancel_scope)
                await server.run(
                    MessageReader(source, sink), MessageWriter(sink), server.create_initialization_options()
                )
                tasks.cancel_scope.cancel()
        finally:
            source.close()
            sink.close()


async def stop_on_signal(scope: anyio.CancelScope) -> None:
    """Cancel a scope when SIGTERM or SIGINT arrives."""
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            scope.cancel()
            return
