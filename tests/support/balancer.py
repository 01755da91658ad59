"""A small load balancer for tests: HTTP requests go to each backend in turn, those of a session to its own.

A request goes to another backend when one cannot be reached or answers 503, which happens before anything
was done with it. A session of MCP's older era (`Mcp-Session-Id`) stays with the backend that opened it.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from dataclasses import dataclass, field

_SESSION = b"mcp-session-id"


@dataclass(frozen=True, slots=True)
class _Head:
    """The first line and the headers of a request or an answer, as they came."""

    raw: bytes
    first: bytes
    headers: dict[bytes, bytes] = field(repr=False)

    @property
    def closing(self) -> bytes:
        """The same, with the connection closed after it."""
        lines = self.raw[:-4].split(b"\r\n")
        kept = [line for line in lines if not line.lower().startswith((b"connection:", b"keep-alive:"))]
        return b"\r\n".join([*kept, b"connection: close", b"", b""])


async def _read_head(reader: asyncio.StreamReader) -> _Head:
    raw = await reader.readuntil(b"\r\n\r\n")
    first, *lines = raw[:-4].split(b"\r\n")
    pairs = (line.partition(b":") for line in lines)
    return _Head(raw, first, {name.strip().lower(): value.strip() for name, _, value in pairs})


class Balancer:
    """Listens on a free port of loopback, in a thread of its own; `backends` are ports and may change.

    With `affinity` off, requests of one session go to every backend in turn as well.
    """

    def __init__(self, *, affinity: bool = True) -> None:
        self.backends: list[int] = []
        self.sent: list[int] = []
        """The backend of each request that was answered, in order."""
        self._affinity = affinity
        self._homes: dict[bytes, int] = {}
        self._turn = itertools.count()
        self._loop = asyncio.new_event_loop()
        self._server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port: int = self._server.sockets[0].getsockname()[1]
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._loop.run_forever()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
            self._loop.run_until_complete(asyncio.wait([task]))
        self._loop.close()

    def close(self) -> None:
        """Stop listening and drop what is open."""
        self._loop.call_soon_threadsafe(self._server.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await _read_head(reader)
            body = await reader.readexactly(int(head.headers.get(b"content-length", b"0")))
            await self._pass(head, body, reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass  # either end went away
        finally:
            writer.close()

    def _order(self, head: _Head) -> list[int]:
        backends = self.backends
        home = self._homes.get(head.headers.get(_SESSION, b"")) if self._affinity else None
        if home in backends:
            return [home]
        start = next(self._turn)
        return [backends[(start + n) % len(backends)] for n in range(len(backends))]

    async def _pass(
        self, head: _Head, body: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        order = self._order(head)
        for port in order:
            try:
                there, out = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                continue
            try:
                out.write(head.closing + body)
                answer = await _read_head(there)
                if answer.first.split()[1] == b"503" and port != order[-1]:
                    continue
                self.sent.append(port)
                if session := answer.headers.get(_SESSION):
                    self._homes[session] = port
                writer.write(answer.closing)
                await self._both_ways(there, out, reader, writer)
                return
            finally:
                out.close()
        writer.write(b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await writer.drain()

    async def _both_ways(
        self,
        there: asyncio.StreamReader,
        out: asyncio.StreamWriter,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        async def back() -> None:
            while chunk := await there.read(65536):
                writer.write(chunk)
                await writer.drain()

        async def gone() -> None:
            while await reader.read(65536):
                pass

        both = [asyncio.ensure_future(back()), asyncio.ensure_future(gone())]
        try:
            done, _ = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in both:
                task.cancel()
