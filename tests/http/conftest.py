"""The API on a real store behind a real server, and clients of it."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import httpx2
import pytest
import uvicorn
from postgres_server import STORES
from projects import SETTINGS
from starlette.applications import Starlette

from packhost.app.host import Host, open_host
from packhost.cli.run import run
from packhost.control import tokens
from packhost.control.base import Parts
from packhost.http.api import Api
from packhost.http.limits import Allowance
from packhost.names import new_id
from packhost.store.base import Store
from packhost.store.lock import HostLock
from packhost.store.opening import open_store
from packhost.store.ops import executions
from packhost.store.rows import NewExecution
from packhost.workspace.root import Root
from packhost.workspace.secrets import Secrets

MORE = """\
    asks:
      provider: scripted
      script:
        - tool_calls:
            - {id: a, name: look, arguments: {at: door}}
            - {id: b, name: look, arguments: {at: gate}}
        - text: Seen.
    short: {provider: scripted, script: [{text: Hello.}]}
"""
"""Further models of the workspace."""


@dataclass(frozen=True)
class Frame:
    """One event of a stream; `comment` for what is none."""

    id: str | None
    event: str | None
    data: Any
    comment: str | None = None


async def frames(response: httpx2.Response) -> AsyncIterator[Frame]:
    fields: dict[str, str] = {}
    async for line in response.aiter_lines():
        if line:
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
            continue
        data = json.loads(fields["data"]) if "data" in fields else None
        yield Frame(fields.get("id"), fields.get("event"), data, fields.get(""))
        fields = {}


class Served:
    """An API at an address."""

    def __init__(self, api: Api, parts: Parts, url: str) -> None:
        self.api = api
        self.parts = parts
        self.url = url

    async def token(self, role: str, principal: str, **more: Any) -> str:
        made = await tokens.new(self.parts, {"role": role, "principal": principal, **more})
        return str(made["token"])

    @asynccontextmanager
    async def client(self, role: str = "caller", principal: str = "ci", **more: Any) -> AsyncIterator[Any]:
        headers = {"Authorization": f"Bearer {await self.token(role, principal, **more)}"}
        async with httpx2.AsyncClient(base_url=self.url, headers=headers, timeout=30) as client:
            yield client

    @asynccontextmanager
    async def anyone(self) -> AsyncIterator[Any]:
        async with httpx2.AsyncClient(base_url=self.url, timeout=30) as client:
            yield client


@asynccontextmanager
async def serving(
    api: Api, parts: Parts, wrap: Callable[[Any], Any] = lambda app: app
) -> AsyncIterator[Served]:
    with socket.socket(proto=socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        config = uvicorn.Config(
            wrap(Starlette(routes=api.routes())), log_config=None, lifespan="off", timeout_graceful_shutdown=1
        )
        server = uvicorn.Server(config)
        server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server._serve, [listener])
            with anyio.fail_after(10):
                while not server.started:
                    await anyio.sleep(0.005)
            try:
                yield Served(api, parts, f"http://127.0.0.1:{listener.getsockname()[1]}")
            finally:
                server.should_exit = server.force_exit = True


@pytest.fixture
def read_frames() -> Callable[[httpx2.Response], AsyncIterator[Frame]]:
    """The frames of a stream of events."""
    return frames


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest, anyio_backend: str, tmp_path: Path) -> AsyncIterator[Store]:
    """An empty store of each kind."""
    setting = "sqlite" if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))
    opened = open_store(setting, tmp_path, "ws", Secrets({}, base=tmp_path))
    yield opened
    await opened.close()


class Records:
    """A store with runs that the test writes, behind the API."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.secrets: list[str] = []
        self.parts = Parts(
            workspace=None,  # type: ignore[arg-type]
            store=store,
            gate=SimpleNamespace(operators=SimpleNamespace(standing=lambda: SimpleNamespace(state="none"))),  # type: ignore[arg-type]
            runs=None,  # type: ignore[arg-type]
            configuration=self._configuration,  # type: ignore[arg-type, return-value]
            changed=None,  # type: ignore[arg-type]
            principal="root",
        )

    def _configuration(self) -> Any:
        return SimpleNamespace(redact=self._redact, limits=SimpleNamespace(max_argument_bytes=1 << 20))

    def _redact(self, text: str) -> str:
        for value in self.secrets:
            text = text.replace(value, "[REDACTED]")
        return text

    async def run(self, principal: str = "ci") -> str:
        """A run that somebody holds."""
        new = NewExecution(new_id("run"), "turn", "s", principal, "code")
        await self.store.write(executions.create, new)
        await self.store.write(executions.claim, new.id, "host", 600.0, 0)
        return new.id

    async def emit(self, run_id: str, **data: Any) -> int:
        """One event of a run; its number."""
        return await self.store.write(lambda tx: tx.emit("test.event", data, execution_id=run_id, actor="t"))

    async def end(self, run_id: str) -> None:
        """The run is over."""
        await self.store.write(executions.finish, run_id, "host", 1, "completed", "completed")

    def serve(self, allowance: Allowance | None = None, **more: Any) -> AbstractAsyncContextManager[Served]:
        """Serve what is on record."""
        return serving(Api(self.parts, b"k" * 32, "1", allowance=allowance), self.parts, **more)


@pytest.fixture
def records(store: Store) -> Records:
    """A store of each kind with runs that the test writes."""
    return Records(store)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An accepted workspace whose writes are asked first, with a scripted model."""
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    (folder / "packhost.yaml").write_text(SETTINGS + MORE)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("CLAUDECODE", "CURSOR_AGENT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(folder)
    assert run(["accept", "--yes"]) == 0
    return folder


@pytest.fixture
def root(project: Path) -> Iterator[Root]:
    """The workspace, held by nobody else."""
    with Root(project) as root, HostLock(root.state) as lock:
        assert lock.acquire()
        yield root


@pytest.fixture
async def host(root: Root, anyio_backend: str) -> AsyncIterator[Host]:
    """A running host of the project."""
    async with open_host(root) as host:
        yield host


@pytest.fixture
async def served(host: Host) -> AsyncIterator[Served]:
    """The API of the running host."""
    async with serving(Api(host.parts, host.cursor_key, host.version), host.parts) as served:
        yield served
