"""A host with a small real gate, served over each transport to the real client."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp import types as t
from mcp.client.sse import sse_client

from packhost.server.mcp import GovernedServer, build_server
from packhost.transports.http import serve_http
from packhost.transports.lines import MessageReader, MessageWriter
from packhost.transports.pipe import LineSink, LineSource

sys.path.insert(0, str(Path(__file__).parent))
from fake_host import FakeHost


@dataclass
class Served:
    """A served host and a way to connect to it."""

    host: FakeHost
    server: GovernedServer
    transport: str
    era: str
    url: str = ""
    dialogs: list[str] = field(default_factory=list)
    forms: list[Any] = field(default_factory=list)

    @property
    def gate(self) -> Any:
        return self.host.gate

    def client(
        self,
        answer: str | Callable[[str], str] | None = None,
        content: dict[str, Any] | None = None,
        **options: Any,
    ) -> AbstractAsyncContextManager[Client]:
        """A client of this era; `answer` is its person's: accept, decline, cancel, or no dialog at all.

        `content` is what they fill in where they accept.
        """
        if answer is not None:

            async def dialog(_: Any, params: Any) -> t.ElicitResult:
                self.dialogs.append(params.message)
                self.forms.append(params.requested_schema)
                action: Any = answer if isinstance(answer, str) else answer(params.message)
                return t.ElicitResult(action=action, content=(content or {}) if action == "accept" else None)

            options["elicitation_callback"] = dialog
        mode = "auto" if self.era == "modern" else "legacy"
        target: Any = {
            "http": lambda: f"{self.url}/mcp",
            "sse": lambda: sse_client(f"{self.url}/sse"),
            "stdio": lambda: pipes(self.server),
        }[self.transport]()
        options.setdefault("client_info", t.Implementation(name="probe", version="1"))
        return Client(target, mode=mode, **options)


@asynccontextmanager
async def pipes(server: GovernedServer) -> AsyncIterator[tuple[Any, Any]]:
    """A connection over two pipes, as a client over stdio has it."""
    to_server, from_client = os.pipe()
    to_client, from_server = os.pipe()
    ends = (to_server, from_client, to_client, from_server)
    client_source, client_sink = LineSource(to_client), LineSink(from_client)
    source, sink = LineSource(to_server), LineSink(from_server)
    async with anyio.create_task_group() as tasks:
        options = server.create_initialization_options()
        tasks.start_soon(server.run, MessageReader(source, sink), MessageWriter(sink), options)
        try:
            yield MessageReader(client_source, client_sink), MessageWriter(client_sink)
        finally:
            tasks.cancel_scope.cancel()
    for lines in (client_source, client_sink, source, sink):
        lines.close()
    for end in ends:
        os.close(end)


@asynccontextmanager
async def serving(
    transport: str,
    era: str,
    key: bytes = b"k" * 32,
    prepare: Callable[[FakeHost], None] = lambda _: None,
) -> AsyncIterator[Served]:
    async with AsyncExitStack() as stack:
        tasks = await stack.enter_async_context(anyio.create_task_group())
        host = FakeHost(tasks)
        host.state_keys = [key]
        prepare(host)
        server = build_server(host)
        served = Served(host, server, transport, era)
        if transport != "stdio":
            listening = anyio.Event()

            def started(url: str) -> None:
                served.url = url
                listening.set()

            async def serve() -> None:
                await serve_http(server, "127.0.0.1:0", version="1.2.3", started=started)

            tasks.start_soon(serve)
            await listening.wait()
        yield served
        tasks.cancel_scope.cancel()


@pytest.fixture
def serve() -> Callable[[str, str], AbstractAsyncContextManager[Served]]:
    """Serve a fake host over a transport for a client of an era."""
    return serving


@pytest.fixture
def connected() -> Callable[[GovernedServer], Any]:
    """A connection to a server over two pipes."""
    return pipes


@asynccontextmanager
async def _lines(server: GovernedServer) -> AsyncIterator[tuple[LineSource, LineSink]]:
    to_server, from_client = os.pipe()
    to_client, from_server = os.pipe()
    mine = LineSource(to_client), LineSink(from_client)
    source, sink = LineSource(to_server), LineSink(from_server)
    async with anyio.create_task_group() as tasks:
        options = server.create_initialization_options()
        tasks.start_soon(server.run, MessageReader(source, sink), MessageWriter(sink), options)
        try:
            yield mine
        finally:
            tasks.cancel_scope.cancel()
    for lines in (*mine, source, sink):
        lines.close()
    for end in (to_server, from_client, to_client, from_server):
        os.close(end)


@pytest.fixture(scope="module")
def raw_lines() -> Callable[[GovernedServer], Any]:
    """A connection to a server over two pipes, line by line."""
    return _lines


@pytest.fixture(scope="module")
def serving_once() -> Callable[[str], AbstractAsyncContextManager[Served]]:
    """Serves a fake host over a transport for a whole module."""
    return lambda transport: serving(transport, "modern")
