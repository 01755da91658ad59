"""Ways into a workspace: serve it, or operate on it through whoever serves it."""

from __future__ import annotations

import gc
import importlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from packhost.app.host import Host, open_host
from packhost.control.base import Control
from packhost.errors import PackhostError, StoreUnavailable, machine_error
from packhost.packs.discover import EntryPoints
from packhost.store.lock import HostLock
from packhost.store.marker import finish
from packhost.store.opening import SQLITE
from packhost.transports.holder import call_control, connect
from packhost.transports.relay import relay_stdio
from packhost.transports.socket import socket_server
from packhost.transports.stopping import GRACE, Stopping
from packhost.workspace.root import Root, find_root
from packhost.workspace.workspace import Workspace

_BETWEEN_HOSTS = 5.0
"""Seconds at most in which one host follows another."""


def workspace_root(start: Path | None) -> Root:
    """The workspace of a folder, by default the present one; see `find_root`."""
    return Root(find_root(start or Path.cwd()))


class RemoteControl:
    """Operations on the host that holds the workspace, through its socket."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    async def request(self, op: str, params: dict[str, Any]) -> Any:
        """Run one operation; raises `PackhostError` as the host did."""
        return await call_control(self._socket, op, params)


@asynccontextmanager
async def hold(root: Root, lease: float | None = None, *, serving: bool = False) -> AsyncIterator[Host]:
    """A running host that further processes reach by its socket; the caller holds the lock."""
    finish(root.state)
    async with (
        open_host(root, lease, serving=serving) as host,
        socket_server(root.socket, host.serve_wire, host.operate),
    ):
        yield host


@asynccontextmanager
async def open_control(start: Path | None) -> AsyncIterator[Control]:
    """Operations on a workspace: on the host that holds it, else in this process.

    In this process, what was started in the background is waited for before the workspace is let go.
    """
    with workspace_root(start) as root, HostLock(root.state) as lock:
        if not await reach(root, lock):
            yield RemoteControl(root.socket)
            return
        async with hold(root) as host:
            gc.enable()  # a command may wait here for hours
            yield host.control
            await host.runs.drain()


async def reach(root: Root, lock: HostLock) -> bool:
    """Take the lock (true), or find the host that has it; between two there is neither for a while."""
    give_up = anyio.current_time() + _BETWEEN_HOSTS
    while not lock.acquire():
        try:
            (await connect(root.socket, "control")).close()
            return False
        except StoreUnavailable as error:
            if error.data or anyio.current_time() > give_up:
                raise
        await anyio.sleep(0.02)
    return True


async def serve(
    start: Path | None, http: str | None = None, grace: float = GRACE, lease: float | None = None
) -> int:
    """Serve a workspace on stdio, or on `http` (HOST:PORT); the exit code.

    A second stdio host on one workspace relays to the first, and takes its place when it ends. A second
    HTTP host stands beside the first where the store is one that several can share, else it is refused.
    Told to stop, it takes `grace` seconds for what is under way; `lease` as for `open_host`.
    """
    with workspace_root(start) as root, HostLock(root.state) as lock:
        if lock.acquire():
            _load(http is not None)
            async with hold(root, lease, serving=True) as host:
                await _serve(host, http, grace)
            return 0
        if http is not None and _shared(root):
            _load(True)
            async with open_host(root, lease, serving=True) as host:
                await _serve(host, http, grace)
            return 0
        if http is None:
            return await relay_stdio(root.socket, partial(_candidate, root, lock, lease), grace=grace)
        holder = lock.holder()
        who = f"process {holder.pid}" if holder and holder.pid else "another process"
        raise StoreUnavailable(
            f"{who} is the host of this workspace",
            hint="end it first, or connect through it: a second `packhost serve` on stdio relays to it",
        )


def _candidate(
    root: Root, lock: HostLock, lease: float | None
) -> AbstractAsyncContextManager[Callable[[float], Awaitable[None]]] | None:
    return _taken_over(root, lock, lease) if lock.acquire() else None


@asynccontextmanager
async def _taken_over(
    root: Root, lock: HostLock, lease: float | None
) -> AsyncIterator[Callable[[float], Awaitable[None]]]:
    """The host of a workspace whose former one is gone, beside the relay that serves its client."""
    try:
        async with hold(root, lease, serving=True) as host:
            host.go_on()
            yield host.drain
    except (BaseExceptionGroup, OSError) as error:
        own = _inner(error)
        if isinstance(own, OSError) and (refused := machine_error(own)) is not None:
            raise StoreUnavailable(refused.message, hint=refused.hint) from own  # it may pass: tried again
        raise own from None
    finally:
        lock.release()


def _inner(error: BaseException) -> BaseException:
    """The error that a host ended by, out of the groups around it."""
    while isinstance(error, BaseExceptionGroup):
        own = error.subgroup(PackhostError) or error
        error = own.exceptions[0]
    return error


def _shared(root: Root) -> bool:
    """Whether the workspace's store is one that several hosts can have at the same time."""
    return Workspace(root, installed=EntryPoints()).store != SQLITE


def _load(http: bool) -> None:
    """Import what a server needs before the host has registered: it takes a part of a short lease."""
    for name in ("packhost.server.mcp", "packhost.transports.http" if http else "packhost.transports.stdio"):
        importlib.import_module(name)


async def _serve(host: Host, http: str | None, grace: float) -> None:
    server = host.server
    host.go_on()
    gc.freeze()
    gc.enable()
    # each brings the SDK, and HTTP a web server: a relay and the command line need neither
    if http is None:
        from packhost.transports.stdio import serve_stdio

        await serve_stdio(server, Stopping(host.drain, grace))
    else:
        from packhost.app.mounting import console_at, console_of
        from packhost.http.api import build_api
        from packhost.transports.http import serve_http

        api = build_api(host.parts, host.cursor_key, host.version)
        with ExitStack() as known:

            def listening(url: str) -> None:
                if (address := console_at(url, host.root)) is not None:
                    known.enter_context(host.parts.consoles.shown_at(address))

            await serve_http(
                server,
                http,
                version=host.version,
                api=api,
                keys=host.identity.jwks,
                console=console_of(host.control, host.root),
                stopping=Stopping(host.drain, grace),
                started=listening,
            )
