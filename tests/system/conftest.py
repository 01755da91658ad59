"""The real command in a process of its own, and the real MCP client against it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
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


MODERN = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
}


class Raw:
    """A stdio client that sees each line: what it was answered, told and asked, and how often."""

    def __init__(self, world: World, era: str, **options: Any) -> None:
        self.modern = era == "auto"
        self.process = subprocess.Popen(
            [*world.command, "serve", "-w", str(world.root)],
            env=world.env,
            cwd=world.root,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )
        self.answers: dict[int | str, list[dict[str, Any]]] = {}
        self.told: list[dict[str, Any]] = []
        self.asked: list[dict[str, Any]] = []
        self.errors: list[str] = []
        self._number = 0
        self._news = threading.Condition()
        self._threads = [threading.Thread(target=self._read), threading.Thread(target=self._complain)]
        for thread in self._threads:
            thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message = json.loads(line)
            with self._news:
                if "method" not in message:
                    self.answers.setdefault(message["id"], []).append(message)
                elif "id" in message:
                    self.asked.append(message)
                else:
                    self.told.append(message)
                self._news.notify_all()

    def _complain(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.errors.append(line)

    def send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self.process.stdin.flush()

    def ask(self, method: str, **params: Any) -> int:
        """Send a request; its id."""
        self._number += 1
        if self.modern:
            params["_meta"] = {**MODERN, **params.get("_meta", {})}
        self.send({"id": self._number, "method": method, "params": params})
        return self._number

    def call(self, tool: str, *, progress: int | None = None, **arguments: Any) -> int:
        """Ask for a call; the request's id."""
        more = {} if progress is None else {"_meta": {"progressToken": progress}}
        return self.ask("tools/call", name=tool, arguments=arguments, **more)

    def until(self, check: Callable[[], Any], timeout: float = 30.0) -> Any:
        """Wait until something holds of what was heard."""
        with self._news:
            assert self._news.wait_for(check, timeout), (self.answers, self.told, self.asked, self.errors)
            return check()

    def answer(self, id: int, timeout: float = 30.0) -> dict[str, Any]:
        """The answer to a request."""
        found: dict[str, Any] = self.until(lambda: self.answers.get(id), timeout)[0]
        return found

    def start(self, version: str = "2025-11-25", **capabilities: Any) -> Raw:
        """Open the connection in the client's era."""
        if self.modern:
            self.answer(self.ask("tools/list"))
            return self
        self.answer(self.hello(version, **capabilities))
        self.send({"method": "notifications/initialized"})
        return self

    def hello(self, version: str = "2025-11-25", **capabilities: Any) -> int:
        """Ask for the handshake; the request's id."""
        who = {"name": "raw", "version": "1"}
        return self.ask("initialize", protocolVersion=version, capabilities=capabilities, clientInfo=who)

    def kill(self, number: int = signal.SIGKILL) -> None:
        self.process.send_signal(number)
        if number == signal.SIGKILL:
            self.process.wait()

    def close(self) -> None:
        """Close stdin and wait for the end; killed when it takes too long."""
        try:
            if self.process.stdin is not None:
                self.process.stdin.close()
        except BrokenPipeError:
            self.errors.append("stdin was closed already")
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for thread in self._threads:
            thread.join()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


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
        self._clients: list[Raw] = []

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

    def raw(self, era: str, **options: Any) -> Raw:
        """A client that is spoken for line by line, with a `packhost serve` of its own."""
        self._clients.append(Raw(self, era, **options))
        return self._clients[-1]

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
        for client in self._clients:
            client.close()
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


SLOW_WAYS = [("http", "auto"), ("http", "legacy"), ("sse", "legacy")]
WAYS = [
    ("stdio", "auto"),
    ("stdio", "legacy"),
    *(pytest.param(way, marks=pytest.mark.slow) for way in SLOW_WAYS),
]


@pytest.fixture(params=WAYS, ids="-".join)
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
