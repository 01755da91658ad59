"""The console beside a host that serves over HTTP, and of its own beside any other."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx2
import pytest

from packhost.app.consoles import open_console
from packhost.app.entry import RemoteControl, hold, serve, workspace_root
from packhost.app.host import Host
from packhost.cli.run import innermost, run
from packhost.console.app import own_name
from packhost.console.guard import COOKIE
from packhost.control.base import Control
from packhost.errors import ConfigInvalid
from packhost.store.lock import HostLock
from packhost.workspace.root import Root

pytestmark = pytest.mark.anyio


class Reached:
    """A console that was opened: the way to its host, and its origin."""

    control: Control
    url: str

    def __init__(self) -> None:
        self.there = anyio.Event()

    async def opened(self, control: Control, url: str) -> None:
        self.control, self.url = control, url
        self.there.set()

    @property
    def address(self) -> str:
        """The same, for a client that knows no names below `localhost`."""
        return f"http://127.0.0.1:{self.url.rpartition(':')[2]}"

    @property
    def headers(self) -> dict[str, str]:
        return {"Host": self.url.removeprefix("http://"), "Origin": self.url}

    async def signed_in(self, client: httpx2.AsyncClient) -> None:
        """Sign in by a ticket."""
        ticket = (await self.control.request("console.ticket", {}))["ticket"]
        answer = await client.post(
            f"{self.address}/console/login", data={"ticket": ticket}, headers=self.headers
        )
        assert answer.status_code == 303
        found = re.match(rf"{COOKIE}=([^;]+)", answer.headers["set-cookie"])
        assert found is not None
        client.headers["Cookie"] = f"{COOKIE}={found[1]}"

    async def page(self, client: httpx2.AsyncClient) -> httpx2.Response:
        return await client.get(f"{self.address}/console/account", headers=self.headers)


@asynccontextmanager
async def opened(folder: Path, port: int | None = None) -> AsyncIterator[Reached]:
    reached = Reached()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(open_console, folder, port, reached.opened)
        with anyio.fail_after(20):
            await reached.there.wait()
        yield reached
        tasks.cancel_scope.cancel()


async def until(true: Callable[[], Any]) -> None:
    with anyio.fail_after(20):
        while not await true():
            await anyio.sleep(0.01)


async def test_a_console_beside_a_stdio_host_works_by_its_socket(host: Host) -> None:
    async with opened(host.root.path) as console, httpx2.AsyncClient() as client:
        assert console.url.startswith(f"http://{own_name(host.root.hash)}:")

        async def known() -> bool:
            return host.parts.consoles.url == console.url

        await until(known)
        await console.signed_in(client)
        page = await console.page(client)
        assert page.status_code == 200
        assert f"<dd>{host.principal}</dd>" in page.text
        home = await client.get(console.address)
        assert home.headers["location"] == "/console/"
    assert host.parts.consoles.url is None


async def test_a_console_holds_the_workspace_where_nobody_does(project: Path) -> None:
    async with opened(project) as console, httpx2.AsyncClient() as client:
        await console.signed_in(client)
        assert (await console.page(client)).status_code == 200
        with workspace_root(project) as root:
            status = await RemoteControl(root.socket).request("status", {})
        assert status["console"] == console.url


async def test_a_console_goes_on_when_its_host_ends_and_sessions_with_it(project: Path) -> None:
    async with anyio.create_task_group() as tasks:
        ready, leave = anyio.Event(), anyio.Event()

        async def serve_for_a_while() -> None:
            with Root(project) as root, HostLock(root.state) as lock:
                assert lock.acquire()
                async with hold(root):
                    ready.set()
                    await leave.wait()

        tasks.start_soon(serve_for_a_while)
        await ready.wait()
        async with opened(project) as console, httpx2.AsyncClient() as client:
            await console.signed_in(client)
            leave.set()

            async def answers() -> bool:
                return (await console.page(client)).status_code == 200

            await until(answers)
        tasks.cancel_scope.cancel()


async def test_a_host_over_http_has_a_console_and_the_command_opens_that_one(
    project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve, project, "127.0.0.1:0")
        with workspace_root(project) as root:
            found: dict[str, Any] = {}

            async def shown() -> bool:
                try:
                    found.update(await RemoteControl(root.socket).request("status", {}))
                except Exception:
                    return False
                return found["console"] is not None

            await until(shown)
        reached = Reached()
        with anyio.fail_after(20):
            await open_console(project, None, reached.opened)
        assert reached.url == found["console"]
        async with httpx2.AsyncClient() as client:
            await reached.signed_in(client)
            assert (await reached.page(client)).status_code == 200
            rebound = await client.get(f"{reached.address}/console/login", headers={"Host": "evil.example"})
            assert rebound.status_code == 421
            proxied = await client.get(
                f"{reached.address}/console/account", headers={**reached.headers, "Via": "x"}
            )
            assert proxied.status_code == 403
        tasks.cancel_scope.cancel()
    assert "listening on" in capfd.readouterr().err


async def test_a_port_that_is_taken_is_told(project: Path) -> None:
    async with opened(project, 0) as console:
        port = int(console.url.rpartition(":")[2])
        with pytest.raises(BaseExceptionGroup) as told:
            await open_console(project, port, Reached().opened)
    error = innermost(told.value)
    assert isinstance(error, ConfigInvalid)
    assert "cannot be bound" in error.message


@pytest.mark.parametrize("shell", ["CLAUDECODE", "CURSOR_AGENT"])
def test_an_agents_shell_opens_no_console(
    project: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], shell: str
) -> None:
    monkeypatch.setenv(shell, "1")
    assert run(["console", "--no-browser"]) == 3
    assert "a person's own act" in capfd.readouterr().err


@pytest.mark.slow
def test_a_stdio_start_imports_nothing_of_the_console() -> None:
    look = (
        "import sys, packhost.cli.serve, packhost.app.host, packhost.server.mcp, packhost.transports.stdio;"
        "print([m for m in sys.modules if m.startswith('packhost.console') or m in ('jinja2', 'webauthn')])"
    )
    ran = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


async def test_doctor_says_where_a_console_is_open(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async with opened(project) as console:
        await anyio.to_thread.run_sync(run, ["doctor"])
        assert f"open at {console.url}/console/" in capfd.readouterr().out


STRANGER = """
import os, sys, urllib.error, urllib.parse, urllib.request
os.setgid(65534)
os.setuid(65534)
class Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None
open_ = urllib.request.build_opener(Stay).open
address, origin, ticket = sys.argv[1:]
headers = {"Host": origin.removeprefix("http://"), "Origin": origin}
page = open_(urllib.request.Request(f"{address}/console/login", headers=headers)).read().decode()
print('name="ticket"' in page, 'name="token"' in page)
try:
    body = urllib.parse.urlencode({"ticket": ticket}).encode()
    print(open_(urllib.request.Request(f"{address}/console/login", body, headers)).status)
except urllib.error.HTTPError as error:
    print(error.code)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can act as another account")
async def test_another_accounts_process_cannot_use_a_ticket_that_it_saw(project: Path) -> None:
    async with opened(project) as console, httpx2.AsyncClient() as client:
        ticket = (await console.control.request("console.ticket", {}))["ticket"]
        python = Path("/usr/bin/python3")
        command = [str(python if python.exists() else sys.executable), "-c", STRANGER]
        with anyio.fail_after(30):
            ran = await anyio.run_process([*command, console.address, console.url, ticket], cwd="/")
        assert ran.stdout.decode().split() == ["False", "True", "403"]
        answer = await client.post(
            f"{console.address}/console/login", data={"ticket": ticket}, headers=console.headers
        )
        assert answer.status_code == 303
