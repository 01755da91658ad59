"""Hosts in processes of their own, and one on a socket in this process."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from packhost.errors import NotFound
from packhost.server.mcp import build_server
from packhost.transports.holder import Peer, Wire
from packhost.transports.lines import serve_lines
from packhost.transports.socket import socket_server

SERVER_TESTS = Path(__file__).parents[1] / "server"
sys.path.insert(0, str(SERVER_TESTS))
from fake_host import FakeHost  # noqa: E402, RUF100  (its folder is put on the path just above)

MAIN = Path(__file__).with_name("fake_main.py")


class Process:
    """A host in a process of its own, spoken to line by line."""

    def __init__(self, *arguments: str, **options: Any) -> None:
        options.setdefault("stdin", subprocess.PIPE)
        options.setdefault("stdout", subprocess.PIPE)
        self.process = subprocess.Popen(
            [sys.executable, str(MAIN), *arguments], stderr=subprocess.PIPE, **options
        )

    def send(self, *lines: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"".join(line + b"\n" for line in lines))
        self.process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        message: dict[str, Any] = json.loads(self.process.stdout.readline())
        return message

    def request(self, id: int, method: str, **params: Any) -> dict[str, Any]:
        self.send(json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).encode())
        return self.receive()

    def initialize(self) -> dict[str, Any]:
        answer = self.request(
            1,
            "initialize",
            protocolVersion="2025-11-25",
            capabilities={},
            clientInfo={"name": "raw", "version": "1"},
        )
        self.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        return answer

    def stderr_line(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.readline().decode()

    def end(self) -> tuple[int, str]:
        """Close stdin and wait; the exit code and what was said on stderr."""
        _, stderr = self.process.communicate(timeout=10)
        return self.process.returncode, stderr.decode()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="session")
def process_type() -> type[Process]:
    """Starts a host in a process of its own; whoever starts it closes it."""
    return Process


@pytest.fixture
def start() -> Iterator[Callable[..., Process]]:
    """Start a host in a process of its own: `stdio`, `http HOST:PORT` or `relay SOCKET`."""
    running: list[Process] = []

    def start(*arguments: str, **options: Any) -> Process:
        running.append(Process(*arguments, **options))
        return running[-1]

    yield start
    for process in running:
        process.close()


@asynccontextmanager
async def holding(path: Path) -> AsyncIterator[FakeHost]:
    async with anyio.create_task_group() as tasks:
        host = FakeHost(tasks)

        async def control(op: str, params: dict[str, Any], peer: Peer) -> dict[str, Any]:
            if op != "echo":
                raise NotFound(f"no operation `{op}`", hint="`echo` is all there is", known=["echo"])
            return {**params, "pid": peer.pid}

        server = build_server(host)

        async def mcp(wire: Wire) -> None:
            await serve_lines(server, wire.source, wire.sink, wire.session)

        async with socket_server(path, mcp, control):
            yield host
        tasks.cancel_scope.cancel()


@pytest.fixture
def hold() -> Callable[[Path], AbstractAsyncContextManager[FakeHost]]:
    """Serve a fake host on a socket."""
    return holding


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends of one socket."""
    ends = socket.socketpair()
    yield ends
    for end in ends:
        end.close()


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """The reading and the writing end of a pipe."""
    ends = os.pipe()
    yield ends
    for end in ends:
        try:
            os.close(end)
        except OSError:
            continue  # the test closed it
