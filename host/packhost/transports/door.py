"""What is let in over HTTP, before anything else: from which host and origin, from whose process, and whether
the server takes anything new at all.
"""

from __future__ import annotations

import json
from contextlib import AbstractContextManager, nullcontext
from typing import Final
from urllib.parse import urlsplit

import anyio
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from packhost.errors import StoreUnavailable
from packhost.http.api import Api
from packhost.http.auth import Authenticator, demand, unauthenticated
from packhost.http.problems import Problem
from packhost.http.resource import WELL_KNOWN
from packhost.kinds.egress import FETCHED
from packhost.rules.identities import IN_SCOPE
from packhost.transports.peers import strange

KEYS: Final = "/.well-known/jwks.json"
_PUBLIC: Final = frozenset({"/healthz", KEYS})
"""What anybody may read who reaches the address, besides how to come by a token."""
LOOK_EVERY: Final = 15.0
"""Seconds between two looks at whether whoever listens would still be let in."""
_WANTED: Final = "this needs a token, also from the user's own processes"
_SESSION: Final = b"mcp-session-id"
_LISTS: Final = (b"mcp-method", b"tools/list")
_SUBSCRIBES: Final = (b"mcp-method", b"subscriptions/listen")
"""What a client of the stateless era listens by; the server holds the header to the request's body."""


class Door:
    """Checks host and origin, then whose process calls, before anything else; can end what is open."""

    def __init__(self, app: ASGIApp, security: TransportSecuritySettings, api: Api | None = None) -> None:
        self._app = app
        self._api = api
        self._security = TransportSecurityMiddleware(security)
        self._names = security
        self._proxy: str | None = None
        self._open: dict[anyio.Event, bool] = {}
        self._closing = False
        self._fewer = anyio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if _console(scope["path"]):
            refusal = _handler(scope)  # who comes, and from which page, the console asks by itself
        else:
            refusal = await self._checked(scope)
        if refusal is None and self._closing and not _belongs(scope):
            refusal = _stopping(scope)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        try:
            with self._limited(scope):
                await self._pass(scope, receive, send)
        except Problem as problem:
            await problem.response(scope["path"])(scope, receive, send)

    def _limited(self, scope: Scope) -> AbstractContextManager[None]:
        """Hold whoever comes to MCP with a token to their allowance; raises `Problem` 429."""
        identity = scope.get(IN_SCOPE)
        if self._api is None or identity is None:
            return nullcontext()
        limits = self._api.of_mcp
        return (limits.stream if scope["method"] == "GET" else limits.request)(identity.principal)

    async def _checked(self, scope: Scope) -> Response | None:
        if self._api is not None:
            self._follow(self._api.authenticator.settings.resource)
        refusal = await self._security.validate_request(Request(scope), is_post=False)
        if refusal is None and not _public(scope["path"]):
            refusal = _handler(scope) or await self._unknown(scope)
        return refusal

    def _follow(self, proxy: str | None) -> None:
        """Let requests for a proxy's name in as for those of this machine, as long as the settings say it."""
        if proxy == self._proxy:
            return
        hosts, origins = self._names.allowed_hosts, self._names.allowed_origins
        for address, change in ((self._proxy, list.remove), (proxy, list.append)):
            if address is not None:
                parts = urlsplit(address)
                change(hosts, parts.netloc)
                change(origins, f"{parts.scheme}://{parts.netloc}")
        self._proxy = proxy

    async def _unknown(self, scope: Scope) -> Response | None:
        """The refusal of a request from nobody that is served; marks one with a token as its principal's."""
        path = scope["path"]
        if self._api is None:
            return _stranger(scope)
        if path == "/v1" or path.startswith("/v1/"):
            return None  # asks by itself, and wants a token even from the same user
        authenticator = self._api.authenticator
        try:
            identity = await authenticator.identify(scope)
            if identity is None:
                return self._anonymous(scope, authenticator)
            demand(identity, "mcp")
        except Problem as problem:
            return authenticator.told(problem, scope).response(path)
        scope[IN_SCOPE] = identity
        # by this the SDK keeps a session to whoever opened it
        scope["user"] = AuthenticatedUser(
            AccessToken(
                token="",
                client_id=identity.principal,
                scopes=[],
                # one that is renewed stays the same: it is told by whom and for whom it was issued
                subject=identity.token_id or json.dumps(["oauth", identity.name, identity.tenant]),
            )
        )
        return None

    def _anonymous(self, scope: Scope, authenticator: Authenticator) -> Response | None:
        """The refusal of a request without a token, unless it is of a process that needs none."""
        wants, why = authenticator.settings.wants_token, strange(scope)
        if why is None and not wants:
            return None
        if not wants and not authenticator.settings.issuers:
            return _stranger(scope)
        problem = unauthenticated(_WANTED if wants or why is None else f"this needs a token: {why}")
        return authenticator.told(problem, scope).response(scope["path"])

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

        listens = scope["method"] == "GET"
        self._open[left] = listens
        try:
            if IN_SCOPE in scope and (listens or _SUBSCRIBES in scope["headers"]):
                await self._listen(scope, receive, watched, left)
            else:
                await self._app(scope, lambda: _receive_unless(left, receive), watched)
        finally:
            del self._open[left]
            self._fewer.set()
        if left.is_set() and not finished:
            if started:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
            else:
                await _stopping(scope)(scope, receive, send)

    async def _listen(self, scope: Scope, receive: Receive, send: Send, left: anyio.Event) -> None:
        """Serve one who listens, for as long as their token counts."""
        assert self._api is not None, "else nobody is known by a token"
        authenticator = self._api.authenticator

        def counts() -> bool:
            try:
                return authenticator.still(scope[IN_SCOPE])
            except StoreUnavailable:
                return True  # it may be away for a while: what is asked meanwhile asks anew

        async def look() -> None:
            while counts():  # noqa: ASYNC110  # nobody tells when time is up
                await anyio.sleep(LOOK_EVERY)
            left.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(look)
            await self._app(scope, lambda: _receive_unless(left, receive), send)
            tasks.cancel_scope.cancel()


def _public(path: str) -> bool:
    return path in _PUBLIC or path == WELL_KNOWN or path.startswith(f"{WELL_KNOWN}/")


def _console(path: str) -> bool:
    return path == "/console" or path.startswith("/console/")


def _belongs(scope: Scope) -> bool:
    """Whether a request may be part of a call under way.

    An answer to its question, say, or a look at the tool's schema, by which a client checks the result.
    """
    if scope["path"].startswith("/messages/"):
        return True
    return any(name == _SESSION or (name, value) == _LISTS for name, value in scope["headers"])


def _stopping(scope: Scope) -> Response:
    message = "packhost is stopping and takes nothing new"
    what_next = "try again: another host answers, or this one once it serves anew"
    if scope["path"].startswith("/v1/"):
        return Problem(503, "STOPPING", message, hint=what_next).response(scope["path"])
    body = {"error": "stopping", "message": message, "next": what_next}
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
    why = strange(scope)
    if why is None:
        return None
    body = {
        "error": "unauthorized",
        "message": f"without a token only processes of the user who runs packhost are served: {why}",
        "next": "connect as that user with a token, or let the client start packhost over stdio",
    }
    return JSONResponse(body, status_code=401, headers={"WWW-Authenticate": 'Bearer realm="packhost"'})
