"""The real parts, and a workspace of packhost for them to talk to."""

from __future__ import annotations

import importlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

# a plain run has not the library that drives a browser; where real parts are a must, its lack is a fault
collect_ignore = (
    ["test_console.py", "test_console_pages.py"]
    if find_spec("playwright") is None and os.environ.get("PACKHOST_REQUIRE_REAL") != "1"
    else []
)

# The helpers beside this file are modules of their own, and tests have no package to import them from.
sys.path.insert(0, str(Path(__file__).parent))

WORKSPACE_FILE = """\
packhost: 1
packs: [agent-runtime, workspace]
bound:
  - path read **
  - path write notes/**
  - path write .agent-runtime/**
policy:
  - match: {tool: "workspace:write_file"}
    decide: ask
    reason: a person looks at what is written
"""

ORACLES = ("openai", "anthropic", "llmock")

MODEL_FILE = """\
packhost: 1
packs: [agent-runtime, workspace]
bound:
  - path read **
  - path write .agent-runtime/**
secrets: {{MODEL_KEY: env:MODEL_KEY}}
agent_runtime:
  default_model: main
  models:
    main:
      provider: {provider}
      model: {model}
      base_url: {base_url}
      api_key: MODEL_KEY
      stream: {stream}
      max_tokens: 128
      timeout: {timeout}
      drain: 500ms
"""
PROVIDERS = {"openai": "openai_compatible", "anthropic": "messages_compatible"}

PARTS = {
    "Node": "bin/node",
    "Claude Code": "bin/claude",
    "the TypeScript client": "npm/node_modules/@modelcontextprotocol/sdk/package.json",
    "the newer TypeScript client": "npm/node_modules/@modelcontextprotocol/client/package.json",
    "the Inspector": "npm/node_modules/@modelcontextprotocol/inspector/package.json",
    "the conformance suite": "npm/node_modules/@modelcontextprotocol/conformance/package.json",
    "llama.cpp": "venv/bin/python",
    "a model": "model.gguf",
    "aimock": "npm/node_modules/@copilotkit/aimock/package.json",
    "the reference servers": "npm/node_modules/.bin/mcp-server-everything",
    "Codex": "npm/node_modules/.bin/codex",
    "oidc-provider": "npm/node_modules/oidc-provider/package.json",
}


@pytest.fixture(scope="session")
def parts() -> Path:
    """The folder that `tests/real/install.sh` fills; without it a test fails in CI, else is skipped."""
    folder = Path(os.environ.get("PACKHOST_REAL", "~/.cache/packhost-real")).expanduser()
    missing = [name for name, path in PARTS.items() if not (folder / path).exists()]
    if missing:
        say = pytest.fail if os.environ.get("PACKHOST_REQUIRE_REAL") == "1" else pytest.skip
        say(f"{folder} lacks {', '.join(missing)}: run tests/real/install.sh")
    return folder


@pytest.fixture(scope="session")
def oracles() -> SimpleNamespace:
    """Clients and servers that others wrote; a test without them fails in CI, else it is skipped."""
    found: dict[str, ModuleType] = {}
    for name in ORACLES:
        try:
            found[name] = importlib.import_module(name)
        except ImportError:
            say = pytest.fail if os.environ.get("PACKHOST_REQUIRE_REAL") == "1" else pytest.skip
            say(f"`{name}` is not installed: install packhost with its extra `oracles`")
    return SimpleNamespace(**found)


@dataclass(frozen=True, slots=True)
class Workspace:
    """A workspace of its own, with its own home and state, accepted as a script would accept it."""

    root: Path
    environment: dict[str, str]

    def command(self, *arguments: str) -> list[str]:
        """A command line of packhost on this workspace."""
        return [str(Path(sys.executable).parent / "packhost"), *arguments, "-w", str(self.root)]

    def run(self, *arguments: str) -> str:
        """Runs a command to its end and returns what it printed; asserts that it succeeded."""
        done = subprocess.run(
            self.command(*arguments),
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, f"packhost {' '.join(arguments)} gave {done.returncode}: {done.stderr}"
        return done.stdout

    def accept(self, settings: str) -> None:
        """Writes `packhost.yaml` and accepts it."""
        (self.root / "packhost.yaml").write_text(settings)
        self.run("accept", "--yes")

    def stdio(self) -> dict[str, Any]:
        """A client's entry for this workspace over stdio."""
        program, *arguments = self.command("serve")
        own = {name: self.environment[name] for name in ("HOME", "XDG_STATE_HOME")}
        return {"type": "stdio", "command": program, "args": arguments, "env": own}

    @contextmanager
    def http(self) -> Iterator[dict[str, Any]]:
        """Serves this workspace over HTTP for the block's time and gives a client's entry for it."""
        port = free_port()
        with (self.root.parent / "serve.log").open("a") as log:
            server = subprocess.Popen(
                self.command("serve", "--http", f"127.0.0.1:{port}"),
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            wait_for_http(f"http://127.0.0.1:{port}/healthz", server)
            yield {"type": "http", "url": f"http://127.0.0.1:{port}/mcp"}
        finally:
            stop(server)

    def over(self, transport: str) -> AbstractContextManager[dict[str, Any]]:
        """A client's entry over the named transport, `stdio` or `http`."""
        return self.http() if transport == "http" else _already(self.stdio())


@contextmanager
def _already(entry: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield entry


def free_port() -> int:
    """A port of loopback that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_http(url: str, server: subprocess.Popen[Any], *, seconds: float = 30.0) -> None:
    """Waits until the URL answers 200; asserts that the server lives until then."""
    until = time.monotonic() + seconds
    while True:
        assert server.poll() is None, f"the server of {url} ended with {server.returncode}"
        assert time.monotonic() < until, f"{url} did not answer within {seconds:g} s"
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.05)


def stop(server: subprocess.Popen[Any]) -> None:
    """Ends a process that this test started."""
    server.terminate()
    try:
        server.wait(10)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait(10)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A workspace that may write below `notes/`, each write asked first."""
    root = tmp_path / "work"
    (root / "notes").mkdir(parents=True)
    (root / "hello.txt").write_text("the harbour opens at nine\n")
    # An agent's shell may be running these tests; packhost would refuse to accept anything inside one.
    shell = {name: value for name, value in os.environ.items() if name not in ("CLAUDECODE", "CURSOR_AGENT")}
    home = tmp_path / "home"
    home.mkdir()
    environment = shell | {"HOME": str(home), "XDG_STATE_HOME": str(home / "state")}
    made = Workspace(root, environment)
    made.accept(WORKSPACE_FILE)
    return made


@pytest.fixture
def speaking_to(workspace: Workspace) -> Callable[..., AbstractAsyncContextManager[Client]]:
    """Makes a client of packhost whose model is at a base URL, by the protocol of `openai` or `anthropic`."""

    @asynccontextmanager
    async def speaking(
        protocol: str, base_url: str, *, stream: bool = True, model: str = "mock", timeout: str = "2s"
    ) -> AsyncIterator[Client]:
        settings = {"base_url": base_url, "stream": str(stream).lower(), "model": model, "timeout": timeout}
        workspace.accept(MODEL_FILE.format(provider=PROVIDERS[protocol], **settings))
        program, *arguments = workspace.command("serve")
        environment = {**workspace.environment, "MODEL_KEY": "not-a-key"}
        server = StdioServerParameters(command=program, args=arguments, env=environment)
        async with Client(server) as client:
            yield client

    return speaking


@pytest.fixture
def serve_aimock(parts: Path, tmp_path: Path) -> Callable[[Any], AbstractContextManager[str]]:
    """Starts a scripted provider with these fixtures for a block's time and gives its URL."""

    @contextmanager
    def serving(fixtures: Any) -> Iterator[str]:
        port, script = free_port(), tmp_path / "fixtures.json"
        script.write_text(json.dumps({"fixtures": fixtures}))
        command = parts / "npm/node_modules/@copilotkit/aimock/dist/cli.js"
        with (tmp_path / "aimock.log").open("w") as log:
            server = subprocess.Popen(
                [parts / "bin/node", command, "-p", str(port), "-f", script, "--strict"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            wait_for_http(f"http://127.0.0.1:{port}/health", server)
            yield f"http://127.0.0.1:{port}"
        finally:
            stop(server)

    return serving


@pytest.fixture
def serve_model(parts: Path, tmp_path: Path) -> Callable[[], AbstractContextManager[str]]:
    """Starts the real model for a block's time and gives its base URL."""

    @contextmanager
    def serving() -> Iterator[str]:
        port = free_port()
        here = Path(__file__).parent
        with (tmp_path / "model.log").open("w") as log:
            server = subprocess.Popen(
                [parts / "venv/bin/python", here / "model_server.py", parts / "model.gguf", str(port)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            wait_for_http(f"http://127.0.0.1:{port}/health", server, seconds=60)
            yield f"http://127.0.0.1:{port}"
        finally:
            stop(server)

    return serving


AUTH = """\
auth:
  required: true
  issuers:
    - issuer: {issuer}
      roles: [{{claim: groups, value: masters, role: operator}}]
"""


@pytest.fixture
def serve_oauth(parts: Path, tmp_path: Path) -> Callable[..., AbstractContextManager[str]]:
    """Starts an authorization server with new keys for a block's time and gives its issuer."""

    @contextmanager
    def serving(port: int = 0) -> Iterator[str]:
        port = port or free_port()
        with (tmp_path / "oauth.log").open("a") as log:
            server = subprocess.Popen(
                [parts / "bin/node", Path(__file__).with_name("oauth_server.mjs"), str(port), parts / "npm"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            wait_for_http(f"http://127.0.0.1:{port}/jwks", server)
            yield f"http://127.0.0.1:{port}"
        finally:
            stop(server)

    return serving


@pytest.fixture
def guarded(workspace: Workspace) -> Callable[..., AbstractContextManager[dict[str, Any]]]:
    """Serves the workspace over HTTP for those alone who have a token of an authorization server."""

    @contextmanager
    def guarding(issuer: str, more: str = "") -> Iterator[dict[str, Any]]:
        workspace.accept(WORKSPACE_FILE + AUTH.format(issuer=issuer) + more)
        with workspace.http() as server:
            yield server

    return guarding
