"""A running host of an accepted workspace, for the console and what it stands on."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from projects import SETTINGS

from packhost.app.entry import hold
from packhost.app.host import Host
from packhost.cli.run import run
from packhost.console.app import Console, own_name
from packhost.console.guard import COOKIE
from packhost.store.lock import HostLock
from packhost.workspace import operator as operators
from packhost.workspace.operator import make_record
from packhost.workspace.root import Root

PASSPHRASE = "correct horse battery"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An accepted workspace whose writes are asked first, with a scripted model."""
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    (folder / "packhost.yaml").write_text(SETTINGS)
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
    """A running host of the project, with its socket."""
    async with hold(root) as host:
        yield host


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


class Browser:
    """One browser at a console: keeps its cookie, and says of each request where it comes from."""

    def __init__(self, console: Console, host: str) -> None:
        self.host = host
        self.cookie: str | None = None
        self._client = httpx2.AsyncClient(
            transport=httpx2.ASGITransport(console), base_url=f"http://{host}", follow_redirects=False
        )

    async def send(self, method: str, path: str, headers: dict[str, str], **more: Any) -> httpx2.Response:
        if self.cookie is not None:
            headers = {"Cookie": f"{COOKIE}={self.cookie}", **headers}
        answer = await self._client.request(method, f"/console{path}", headers=headers, **more)
        for given in answer.headers.get_list("set-cookie"):
            value = re.match(rf"{COOKIE}=([^;]*)", given)
            assert value is not None
            self.cookie = value[1] or None
        return answer

    async def get(self, path: str, **headers: str) -> httpx2.Response:
        return await self.send("GET", path, headers)

    async def post(self, path: str, headers: dict[str, str] | None = None, **form: str) -> httpx2.Response:
        own = {"Origin": f"http://{self.host}"} if headers is None else headers
        return await self.send("POST", path, own, data=form)

    async def csrf(self) -> str:
        """The token that the forms of this session bring."""
        found = re.search(r'name="csrf" value="([0-9a-f]+)"', (await self.get("/account")).text)
        assert found is not None
        return found[1]

    async def enter(self, **form: str) -> None:
        """Sign in."""
        answer = await self.post("/login", **form)
        assert answer.status_code == 303, answer.text
        assert self.cookie


@pytest.fixture
def clock() -> Clock:
    """The console's clock."""
    return Clock()


@pytest.fixture
def name(root: Root) -> str:
    """The console's own host name, with a port."""
    return f"{own_name(root.hash)}:4321"


@pytest.fixture
def console(host: Host, root: Root, clock: Clock) -> Console:
    """The console of the host."""
    return Console(host.control, own_name(root.hash), clock=clock)


@pytest.fixture
def browser(console: Console, name: str) -> Callable[..., Browser]:
    """Opens a browser at the console, or at another."""

    def opened(at: Console = console, host: str = name) -> Browser:
        return Browser(at, host)

    return opened


@pytest.fixture
async def person(host: Host, browser: Callable[[], Browser]) -> Browser:
    """Somebody who signed in by a ticket."""
    someone = browser()
    await someone.enter(ticket=(await host.control.request("console.ticket", {}))["ticket"])
    return someone


@pytest.fixture
async def auditor(host: Host, browser: Callable[[], Browser]) -> Browser:
    """Somebody who signed in by an auditor's token."""
    someone = browser()
    made = await host.control.request("tokens.new", {"role": "auditor", "principal": "ann"})
    await someone.enter(token=made["token"])
    return someone


@pytest.fixture
async def operator(host: Host, monkeypatch: pytest.MonkeyPatch) -> str:
    """An operator of the workspace; the passphrase."""
    monkeypatch.setattr(operators, "COST", 2**12)
    record, signer = make_record(PASSPHRASE, by=host.principal, at=host.store.now())
    consent = host.workspace.consent
    assert consent is not None
    said = signer.sign(consent.statement(host.store.workspace))
    await host.control.request("operator.set", {"record": record.as_json(), "consent": said})
    return PASSPHRASE
