"""Streamable HTTP at `/mcp`, SSE at `/sse`, and `/healthz`, on a loopback address.

Without a token only processes of the same user are served, and `/v1` nobody. Host and origin are checked
first, so that a web page that the same user's browser shows reaches nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

import anyio
import anyio.to_thread
import uvicorn
from mcp.server.sse import SseServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from packhost.errors import ConfigInvalid
from packhost.http.api import Api
from packhost.server.mcp import GovernedServer
from packhost.transports.door import KEYS, Door
from packhost.transports.pipe import MAX_LINE
from packhost.transports.stopping import Stopping
from packhost.transports.web import PeerProtocol, Server, bind

_LAST: Final = 0.3
"""Seconds that open requests get to end once the server has drained."""
_STOP_TIMEOUT: Final = 1
_HOSTS: Final = ("127.0.0.1", "localhost", "[::1]")
Keys = Callable[[], Mapping[str, Any]]


def parse_address(text: str) -> tuple[str, int]:
    """Read `HOST:PORT`; raises `ConfigInvalid` for anything but a loopback address."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ConfigInvalid(
            f"`{text}` is not an address",
            hint="write HOST:PORT, such as 127.0.0.1:8321; port 0 takes a free one",
        )
    if not _is_loopback(host):
        raise ConfigInvalid(
            f"`{host}` can be reached from other machines, which needs a way to tell who calls",
            hint="bind 127.0.0.1, localhost or ::1, and put a proxy with TLS before it",
        )
    return host, int(port)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _SseEndpoint:
    """`GET /sse`: each stream is an MCP connection of its own."""

    def __init__(self, transport: SseServerTransport, server: GovernedServer) -> None:
        self._transport = transport
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "GET":
            await Response(status_code=405, headers={"Allow": "GET"})(scope, receive, send)
            return
        async with self._transport.connect_sse(scope, receive, send) as (read, write):
            await self._server.run(read, write, self._server.create_initialization_options())


def build_app(
    server: GovernedServer,
    version: str,
    api: Api | None = None,
    keys: Keys | None = None,
    console: ASGIApp | None = None,
) -> Door:
    """The ASGI application; it lives as long as its lifespan. Without `api` no token is known.

    `keys` gives the public keys that identity assertions are checked by.
    """
    security = TransportSecuritySettings(
        allowed_hosts=[h for name in _HOSTS for h in (name, f"{name}:*")],
        allowed_origins=[o for name in _HOSTS for o in (f"http://{name}", f"http://{name}:*")],
    )
    manager = StreamableHTTPSessionManager(
        app=server, security_settings=security, max_request_body_size=MAX_LINE
    )
    sse = SseServerTransport("/messages/", security_settings=security, max_request_body_size=MAX_LINE)

    async def healthz(_: Request) -> Response:
        return JSONResponse({"ok": True, "version": version})

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with manager.run():
            yield

    app = Starlette(
        routes=[
            Route("/mcp", endpoint=StreamableHTTPASGIApp(manager)),
            Route("/sse", endpoint=_SseEndpoint(sse, server)),
            Mount("/messages/", app=sse.handle_post_message),
            Route("/healthz", endpoint=healthz, methods=["GET"]),
            *(api.routes() if api is not None else ()),
            *([] if keys is None else [_published(keys)]),
            *([] if console is None else _below(console)),
        ],
        lifespan=lifespan,
    )
    return Door(app, security, api)


def _below(console: ASGIApp) -> list[Route]:
    return [Route("/console", endpoint=console), Route("/console/{rest:path}", endpoint=console)]


def _published(keys: Keys) -> Route:
    async def jwks(_: Request) -> Response:
        found = await anyio.to_thread.run_sync(keys)
        return JSONResponse(dict(found), headers={"Cache-Control": "max-age=300"})

    return Route(KEYS, endpoint=jwks, methods=["GET"])


async def serve_http(
    server: GovernedServer,
    address: str,
    *,
    version: str,
    api: Api | None = None,
    keys: Keys | None = None,
    console: ASGIApp | None = None,
    stopping: Stopping | None = None,
    started: Callable[[str], None] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, or until cancelled; says on stderr where it listens.

    On a signal nothing new is let in (503), and what is under way ends as `stopping` says.

    :raises ConfigInvalid: the address is no loopback address or cannot be bound
    """
    host, port = parse_address(address)
    listener = bind(host, port)
    shown = f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{listener.getsockname()[1]}"
    door = build_app(server, version, api, keys, console)
    config = uvicorn.Config(
        door,
        http=PeerProtocol,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="on",
        timeout_graceful_shutdown=_STOP_TIMEOUT,
    )

    def listening() -> None:
        sys.stderr.write(f"packhost: listening on {url}\n")
        sys.stderr.flush()
        if started is not None:
            started(url)

    runner = Server(config, listening)

    way = stopping or Stopping()

    def begin() -> None:
        door.close()
        server.close_streams()
        server.admission.close()

    async def drain(within: float) -> None:
        await way.drain(within)
        await server.admission.empty()
        door.cut(streams=True)
        await door.quiet()

    def stop() -> None:
        begin()
        runner.should_exit = True
        door.cut(streams=True)
        asyncio.get_running_loop().call_later(_LAST, door.cut)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Stopping(drain, way.grace).upon_signal, begin, stop)
        tasks.start_soon(_stop_when_cancelled, stop)
        with listener, anyio.CancelScope(shield=True):
            await runner.serve(sockets=[listener])
        tasks.cancel_scope.cancel()


async def _stop_when_cancelled(stop: Callable[[], None]) -> None:
    # The server itself is shielded: cut off, it would leave its connections and its lifespan open.
    try:
        await anyio.sleep_forever()
    finally:
        stop()
