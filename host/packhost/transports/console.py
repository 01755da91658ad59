"""A console's own server, beside a host that serves on stdio: for this machine alone."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from typing import Final

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from packhost.errors import ConfigInvalid
from packhost.transports.stopping import Stopping
from packhost.transports.web import PeerProtocol, Server, bind

_TRIES: Final = 8


async def serve_console(console: ASGIApp, port: int, started: Callable[[int], Awaitable[None]]) -> None:
    """Serve until SIGTERM or SIGINT, or until cancelled; `started` is told the port once it listens.

    :raises ConfigInvalid: the port is taken.
    """

    async def home(_: Request) -> RedirectResponse:
        return RedirectResponse("/console/", 303)

    routes = [
        Route("/", home),
        Route("/console", endpoint=console),
        Route("/console/{rest:path}", endpoint=console),
    ]
    config = uvicorn.Config(
        Starlette(routes=routes),
        http=PeerProtocol,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        timeout_graceful_shutdown=1,
    )
    listens = anyio.Event()
    server = Server(config, listens.set)

    def stop() -> None:
        server.should_exit = server.force_exit = True

    async with anyio.create_task_group() as tasks:
        with ExitStack() as stack:
            sockets = _sockets(port)
            for each in sockets:
                stack.enter_context(each)

            async def tell() -> None:
                await listens.wait()
                await started(sockets[0].getsockname()[1])

            tasks.start_soon(tell)
            tasks.start_soon(Stopping(grace=0.0).upon_signal, stop, stop)
            tasks.start_soon(_stop_when_cancelled, stop)
            with anyio.CancelScope(shield=True):
                await server.serve(sockets=sockets)
            tasks.cancel_scope.cancel()


async def _stop_when_cancelled(stop: Callable[[], None]) -> None:
    try:
        await anyio.sleep_forever()
    finally:
        stop()


def _sockets(port: int) -> list[socket.socket]:
    """One port at both loopback addresses, so that nobody else answers at the other one."""
    for _ in range(_TRIES):
        first = bind("127.0.0.1", port)
        if not _has_ipv6():
            return [first]
        try:
            return [first, bind("::1", first.getsockname()[1])]
        except ConfigInvalid:
            first.close()
            if port:
                raise
    raise ConfigInvalid("no port is free at both loopback addresses", hint="name one with `--port`")


def _has_ipv6() -> bool:
    with suppress(OSError), socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
        probe.bind(("::1", 0))
        return True
    return False
