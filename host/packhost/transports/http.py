"""Streamable HTTP at `/mcp`, SSE at `/sse`, and `/healthz`, on a loopback address.

Without a token only processes of the same user are served, and `/v1` nobody. Host and origin are checked
first, so that a web page that the same user's browser shows reaches nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable, Generator, Mapping
from typing import Any, Final

import anyio
import anyio.to_thread
import uvicorn
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.sse import SseServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from packhost.errors import ConfigInvalid
from packhost.http.api import Api
from packhost.http.auth import demand
from packhost.http.problems import Problem
from packhost.kinds.egress import FETCHED
from packhost.rules.identities import IN_SCOPE
from packhost.server.mcp import GovernedServer
from packhost.transports.peers import NOBODY, owners
from packhost.transports.pipe import MAX_LINE
from packhost.transports.stopping import Stopping

_OWNERS: Final = "packhost_peer_owners"
_LAST: Final = 0.3
"""Seconds that open requests get to end once the server has drained."""
_STOP_TIMEOUT: Final = 1
_SESSION: Final = b"mcp-session-id"
_KEYS: Final = "/.well-known/jwks.json"
_PUBLIC: Final = frozenset({"/healthz", _KEYS})
"""What anybody may read who reaches the address."""
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


class Door:
    """Checks host and origin, then whose process calls, before anything else; can end what is open."""

    def __init__(self, app: ASGIApp, security: TransportSecuritySettings, api: Api | None = None) -> None:
        self._app = app
        self._api = api
        self._security = TransportSecurityMiddleware(security)
        self._open: dict[anyio.Event, bool] = {}
        self._closing = False
        self._fewer = anyio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = await self._security.validate_request(Request(scope), is_post=False)
        if refusal is None and scope["path"] not in _PUBLIC:
            refusal = _handler(scope) or self._unknown(scope)
        if refusal is None and self._closing and not _belongs(scope):
            refusal = _stopping()
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        await self._pass(scope, receive, send)

    def _unknown(self, scope: Scope) -> Response | None:
        """The refusal of a request from nobody that is served; marks one with a token as its principal's."""
        path = scope["path"]
        if self._api is None:
            return _stranger(scope)
        if path == "/v1" or path.startswith("/v1/"):
            return None  # asks by itself, and wants a token even from the same user
        try:
            identity = self._api.authenticator.identify(scope["headers"])
            if identity is None:
                return _stranger(scope)
            demand(identity, "mcp")
        except Problem as problem:
            return problem.response(path)
        scope[IN_SCOPE] = identity
        # by this the SDK keeps a session to whoever opened it
        scope["user"] = AuthenticatedUser(
            AccessToken(
                token="",
                client_id=identity.principal,
                scopes=[],
                subject=identity.token_id,
            )
        )
        return None

    def close(self) -> None:
        """Let nothing new in; what belongs to a session that is open still comes through."""
        self._closing = True

    async def quiet(self) -> None:
        """Return once no request is open but those that only listen."""
        while not all(self._open.values()):
            self._fewer = anyio.Event()
            await self._fewer.wait()

    def cut(self, *, streams: bool = False) -> None:
        """End every open request, or those alone that only listen, as if its client had left."""
        for left, listens in list(self._open.items()):
            if listens or not streams:
                left.set()

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        left = anyio.Event()
        started = finished = False

        async def watched(message: Message) -> None:
            nonlocal started, finished
            started = True
            finished = message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

        self._open[left] = scope["method"] == "GET"
        try:
            await self._app(scope, lambda: _receive_unless(left, receive), watched)
        finally:
            del self._open[left]
            self._fewer.set()
        if left.is_set() and not finished:
            if started:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
            else:
                await _stopping()(scope, receive, send)


def _belongs(scope: Scope) -> bool:
    """Whether a request may be part of a call under way: an answer to its question, say."""
    return scope["path"].startswith("/messages/") or any(name == _SESSION for name, _ in scope["headers"])


def _stopping() -> Response:
    body = {
        "error": "stopping",
        "message": "packhost is stopping and takes nothing new",
        "next": "try again: another host answers, or this one once it serves anew",
    }
    return JSONResponse(body, status_code=503, headers={"Retry-After": "1"})


async def _receive_unless(left: anyio.Event, receive: Receive) -> Message:
    message: Message = {"type": "http.disconnect"}
    async with anyio.create_task_group() as tasks:

        async def from_client() -> None:
            nonlocal message
            message = await receive()
            tasks.cancel_scope.cancel()

        tasks.start_soon(from_client)
        await left.wait()
        tasks.cancel_scope.cancel()
    return message


def _handler(scope: Scope) -> Response | None:
    """The refusal of a request that a host made for a pack's handler."""
    if not any(name == FETCHED.encode() for name, _ in scope["headers"]):
        return None
    body = {
        "error": "forbidden",
        "message": "a handler's fetch is no client",
        "next": "call the tool by `context.call_tool`",
    }
    return JSONResponse(body, status_code=403)


def _stranger(scope: Scope) -> Response | None:
    known = scope.get("state", {}).get(_OWNERS, frozenset())
    if known == {os.getuid()}:
        return None
    why = (
        "another user's process calls"
        if known - {NOBODY}
        else "this system does not tell whose process calls"
        if sys.platform != "linux"
        else "it cannot be told whose process calls"
    )
    body = {
        "error": "unauthorized",
        "message": f"without a token only processes of the user who runs packhost are served: {why}",
        "next": "connect as that user, or let the client start packhost over stdio",
    }
    return JSONResponse(body, status_code=401)


def build_app(server: GovernedServer, version: str, api: Api | None = None, keys: Keys | None = None) -> Door:
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
        ],
        lifespan=lifespan,
    )
    return Door(app, security, api)


def _published(keys: Keys) -> Route:
    async def jwks(_: Request) -> Response:
        found = await anyio.to_thread.run_sync(keys)
        return JSONResponse(dict(found), headers={"Cache-Control": "max-age=300"})

    return Route(_KEYS, endpoint=jwks, methods=["GET"])


class _PeerProtocol(H11Protocol):
    """Learns once for each connection whose process opened it, while the system still tells."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        client, server = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        known = owners(client[1], server[1]) if client and server else frozenset()
        self.app_state = {**self.app_state, _OWNERS: known}


class _Server(uvicorn.Server):
    """Leaves signals to whoever runs it, and tells when it listens."""

    def __init__(self, config: uvicorn.Config, listening: Callable[[], None]) -> None:
        super().__init__(config)
        self._listening = listening

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._listening()


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise ConfigInvalid(
            f"`{host}:{port}` cannot be bound: {error.strerror}", hint="take another port; 0 takes a free one"
        ) from error
    return listener


async def serve_http(
    server: GovernedServer,
    address: str,
    *,
    version: str,
    api: Api | None = None,
    keys: Keys | None = None,
    stopping: Stopping | None = None,
    started: Callable[[str], None] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, or until cancelled; says on stderr where it listens.

    On a signal nothing new is let in (503), and what is under way ends as `stopping` says.

    :raises ConfigInvalid: the address is no loopback address or cannot be bound
    """
    host, port = parse_address(address)
    listener = _bind(host, port)
    shown = f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{listener.getsockname()[1]}"
    door = build_app(server, version, api, keys)
    config = uvicorn.Config(
        door,
        http=_PeerProtocol,
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

    runner = _Server(config, listening)

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
