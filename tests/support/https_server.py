"""A real HTTPS server with an authority of its own, for tests: it answers by path and remembers.

from https_server import CA, serving, in_json

async with serving("api.localhost") as server:
    server.says("/a", in_json({"b": 1}))
"""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.abc
import trustme
from anyio.streams.tls import TLSListener

NAME = "api.localhost"
"""A name that this machine has for itself."""
CA = trustme.CA()


@dataclass
class Asked:
    """A request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


Answer = bytes | Callable[[anyio.abc.ByteStream, Asked], Awaitable[None]]


def reply(body: bytes = b"", status: str = "200 OK", **headers: str) -> bytes:
    lines = {"Content-Length": str(len(body)), **{k.replace("_", "-"): v for k, v in headers.items()}}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"HTTP/1.1 {status}\r\n{head}\r\n".encode("latin-1") + body


def in_json(value: Any, status: str = "200 OK", **headers: str) -> bytes:
    return reply(json.dumps(value).encode(), status, Content_Type="application/json", **headers)


class Server:
    """Answers by path, in order, the last answer for ever; remembers what it was asked."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.asked: list[Asked] = []
        self.answers: dict[str, list[Answer]] = {}

    def says(self, path: str, *answers: Answer) -> None:
        self.answers[path] = list(answers)

    async def handle(self, stream: anyio.abc.ByteStream) -> None:
        try:
            async with stream:
                await self._serve(stream)
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, ssl.SSLError):
            return

    async def _serve(self, stream: anyio.abc.ByteStream) -> None:
        data = b""
        while b"\r\n\r\n" not in data:
            data += await stream.receive()
        head, _, body = data.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines)}
        while len(body) < int(headers.get("content-length", 0)):
            body += await stream.receive()
        method, path, _ = first.split(" ")
        asked = Asked(method, path, headers, body)
        self.asked.append(asked)
        known = self.answers.get(path.partition("?")[0], [in_json("no such path", "404 Not Found")])
        answer = known.pop(0) if len(known) > 1 else known[0]
        if isinstance(answer, bytes):
            await stream.send(answer)
        else:
            await answer(stream, asked)


async def echo(stream: anyio.abc.ByteStream, asked: Asked) -> None:
    await stream.send(in_json({"path": asked.path, "headers": asked.headers, "body": asked.body.decode()}))


@asynccontextmanager
async def serving(*names: str, tls: bool = True) -> AsyncIterator[Server]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    CA.issue_cert(*(names or (NAME, "localhost", "127.0.0.1"))).configure_cert(context)
    plain = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = plain.extra(anyio.abc.SocketAttribute.local_port)
    listener: Any = TLSListener(plain, context, standard_compatible=False) if tls else plain
    server = Server(port)
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, server.handle)
        yield server
        group.cancel_scope.cancel()
