"""Connections that let the server wait: each has a time, and so many may wait at once."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
import uvicorn

from packhost.transports import patience
from packhost.transports.patience import PatientProtocol

pytestmark = pytest.mark.anyio
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
LARGE = 32 << 20
REFUSED = b"HTTP/1.1 400 Bad Request"


class App:
    """Answers as its path says, and remembers what it saw."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        message = await receive()
        while message["type"] == "http.request" and message["more_body"]:
            message = await receive()
        self.seen.append(message["type"])
        if message["type"] == "http.disconnect":
            return
        await send(
            {"type": "http.response.start", "status": 200, "headers": [(b"connection", b"keep-alive")]}
        )
        pieces = {"/slow": [b"."] * 8, "/large": [b"x" * LARGE]}.get(scope["path"], [b"ok"])
        for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            if scope["path"] == "/slow":
                await asyncio.sleep(0.05)
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        self.seen.append("answered")


@pytest.fixture
def app() -> App:
    return App()


@pytest.fixture
async def address(app: App, anyio_backend: str) -> AsyncIterator[tuple[str, int]]:
    """Where the application is served by connections with little patience."""
    with socket.socket(proto=socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        config = uvicorn.Config(
            app, http=PatientProtocol, ws="none", log_config=None, lifespan="off", timeout_graceful_shutdown=1
        )
        server = uvicorn.Server(config)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server._serve, [listener])
            with anyio.fail_after(10):
                while not server.started:
                    await anyio.sleep(0.005)
            try:
                yield listener.getsockname()
            finally:
                server.should_exit = server.force_exit = True


@pytest.fixture(autouse=True)
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "FOR_HEAD", 0.15)
    monkeypatch.setattr(patience, "FOR_BODY", 0.15)
    monkeypatch.setattr(patience, "FOR_READING", 0.15)


@contextlib.asynccontextmanager
async def connected(
    address: tuple[str, int],
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(*address)
    try:
        yield reader, writer
    finally:
        writer.close()


async def gone(reader: asyncio.StreamReader) -> bytes:
    """What came before the connection was closed."""
    with anyio.fail_after(5), contextlib.suppress(ConnectionError):
        return await reader.read()
    return b""


async def answered(address: tuple[str, int]) -> bool:
    async with connected(address) as (reader, writer):
        writer.write(GET)
        with anyio.fail_after(5):
            return (await reader.readline()).startswith(b"HTTP/1.1 200")


async def test_a_connection_that_sends_nothing_is_closed(address) -> None:
    async with connected(address) as (reader, _):
        assert await answered(address)
        assert await gone(reader) == b""


async def test_headers_that_come_a_byte_at_a_time_get_no_more_time(address, app) -> None:
    async with connected(address) as (reader, writer):
        with anyio.fail_after(5), contextlib.suppress(ConnectionError):
            for byte in GET[:-2] * 100:
                if reader.at_eof():
                    break
                writer.write(bytes([byte]))
                await writer.drain()
                await anyio.sleep(0.01)
        assert await gone(reader) == b""
    assert app.seen == []


async def test_neither_do_those_of_a_later_request(address) -> None:
    async with connected(address) as (reader, writer):
        writer.write(GET)
        await reader.readuntil(b"0\r\n\r\n")
        writer.write(GET[:10])
        assert await gone(reader) == b""


async def test_a_body_that_does_not_come_is_given_up(address, app) -> None:
    async with connected(address) as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc")
        assert await gone(reader) == b""
    with anyio.fail_after(5):
        while app.seen != ["http.disconnect"]:
            await anyio.sleep(0.005)


async def test_an_answer_that_nobody_reads_is_given_up(address, app) -> None:
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        client.setblocking(False)
        await asyncio.get_running_loop().sock_connect(client, address)
        await asyncio.get_running_loop().sock_sendall(client, GET.replace(b"/ ", b"/large ", 1))
        with anyio.fail_after(5):
            while "answered" not in app.seen:  # it ends for the application once its client is given up
                await anyio.sleep(0.005)


async def test_an_answer_that_takes_its_time_is_not_cut(address) -> None:
    async with connected(address) as (reader, writer):
        writer.write(GET.replace(b"/ ", b"/slow ", 1))
        with anyio.fail_after(5):
            assert (await reader.readuntil(b"0\r\n\r\n")).count(b"1\r\n.\r\n") == 8


async def test_of_many_silent_connections_the_oldest_go_and_requests_are_answered(
    address, monkeypatch
) -> None:
    monkeypatch.setattr(patience, "FOR_HEAD", 60.0)
    monkeypatch.setattr(patience, "MOST_SILENT", 10)
    async with contextlib.AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(connected(address)) for _ in range(40)]
        assert await answered(address)
        for reader, _ in opened[:29]:
            await gone(reader)
        assert [reader.at_eof() for reader, _ in opened[-9:]] == [False] * 9


async def test_headers_without_end_are_refused(address, app) -> None:
    async with connected(address) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\nX: " + b"a" * 70_000)
        assert (await gone(reader))[:24] in (b"", REFUSED)  # nothing where what it sent on was met by a reset
    assert app.seen == []
    assert await answered(address)
