"""MCP on this process's own stdin and stdout, which carry the protocol and nothing else."""

from __future__ import annotations

from typing import Any

import anyio
from mcp.server import Server

from packhost.transports.lines import serve_lines
from packhost.transports.pipe import LineSink, LineSource
from packhost.transports.std import claimed_stdio
from packhost.transports.stopping import Stopping


def _nothing() -> None:
    """On a signal the host itself refuses what comes; here nothing is closed yet."""


async def serve_stdio(server: Server[Any], stopping: Stopping | None = None) -> None:
    """Serve one client until it closes stdin, or SIGTERM or SIGINT arrives, after which `stopping` holds."""
    with claimed_stdio() as (read_fd, write_fd):
        source, sink = LineSource(read_fd), LineSink(write_fd)
        try:
            async with anyio.create_task_group() as tasks:
                way = stopping or Stopping()
                tasks.start_soon(way.upon_signal, _nothing, tasks.cancel_scope.cancel)
                await serve_lines(server, source, sink)
                tasks.cancel_scope.cancel()
        finally:
            source.close()
            sink.close()
