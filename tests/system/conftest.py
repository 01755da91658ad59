"""The real command in a process of its own, and the real MCP client against it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters, types
from mcp.client.sse import sse_client

ERAS = ("auto", "legacy")


class Dialog:
    """The client's dialog: answers as told and keeps what it showed."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.shown: list[str] = []

    async def __call__(self, context: Any, params: Any) -> types.ElicitResult:
        self.shown.append(params.message)
        action = self.answers.pop(0)
        return types.ElicitResult(action=action, content={} if action == "accept" else None)


class World:
    """A workspace with its state, and the commands run in it."""

    def __init__(self, base: Path) -> None:
        self.root = base / "work"
        self.root.mkdir()
        home = base / "home"
        home.mkdir()
        self.env = {
            "HOME": str(home),
            "PATH": os.environ["PATH"],
            "XDG_STATE_HOME": str(base / "state"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self.command = [sys.executable, "-m", "packhost"]
        self._processes: list[subprocess.Popen[str]] = []

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def run(self, *args: str, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*self.command, *args, "-w", str(self.root)],
            env=self.env,
            cwd=self.root,
            capture_output=True,
            text=True,
            timeout=60,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert code is None or done.returncode == code, (args, done.returncode, done.stdout, done.stderr)
        return done

    def json(self, *args: str, code: int | None = 0) -> Any:
        return json.loads(self.run(*args, "--json", code=code).stdout)

    def accept(self) -> None:
        self.run("accept", "--yes")

    @asynccontextmanager
    async def client(
        self, era: str = "auto", dialog: Dialog | None = None, **more: Any
    ) -> AsyncIterator[Client]:
        server = StdioServerParameters(
            command=self.command[0], args=[*self.command[1:], "serve", "-w", str(self.root)], env=self.env
        )
        async with Client(server, mode=era, elicitation_callback=dialog, **more) as client:
            yield client

    def serve_http(self) -> str:
        process = subprocess.Popen(
            [*self.command, "serve", "-w", str(self.root), "--http", "127.0.0.1:0"],
            env=self.env,
            cwd=self.root,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        self._processes.append(process)
        assert process.stderr is not None
        line = process.stderr.readline()
        assert "listening on" in line, line + process.stderr.read()
        return line.rsplit(" ", 1)[1].strip()

    def kill_servers(self) -> None:
        for process in self._processes:
            process.send_signal(signal.SIGKILL)
            process.wait()
        self._close()

    def _close(self) -> None:
        for process in self._processes:
            if process.stderr is not None:
                process.stderr.close()
        self._processes.clear()

    def stop(self) -> None:
        for process in self._processes:
            process.terminate()
            process.wait(timeout=20)
        self._close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """An empty workspace with its own state folder."""
    made = World(tmp_path)
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture
def dialog() -> Callable[..., Dialog]:
    """Makes a dialog that answers `accept`, `decline` or `cancel`, in order."""
    return Dialog


Connect = Callable[..., Any]


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    """The stateless protocol, and the one with sessions."""
    return str(request.param)


@pytest.fixture(
    params=[("stdio", "auto"), ("stdio", "legacy"), ("http", "auto"), ("http", "legacy"), ("sse", "legacy")],
    ids="-".join,
)
def way(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Each transport that a client can come by, in each era that it carries."""
    transport, era = request.param
    return transport, era


@pytest.fixture
def connect(world: World, way: tuple[str, str]) -> Connect:
    """Opens a client over the transport and era under test."""
    transport, era = way

    @asynccontextmanager
    async def open_client(dialog: Dialog | None = None) -> AsyncIterator[Client]:
        if transport == "stdio":
            async with world.client(era, dialog) as client:
                yield client
            return
        url = world.serve_http()
        target: Any = f"{url}/mcp" if transport == "http" else sse_client(f"{url}/sse")
        async with Client(target, mode=era, elicitation_callback=dialog) as client:
            yield client

    return open_client
