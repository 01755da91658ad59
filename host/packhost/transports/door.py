"""What is let in over HTTP, before anything else: from which host and origin, from whose process, and whether
the server takes anything new at all.
"""

from __future__ import annotations

import os
import sys
from typing import Final

import anyio
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from packhost.http.api import Api
from packhost.http.auth import demand
from packhost.http.problems import Problem
from packhost.kinds.egress import FETCHED
from packhost.rules.identities import IN_SCOPE
from packhost.transports.peers import NOBODY

OWNERS: Final = "packhost_peer_owners"
"""Where a connection keeps whose process opened it."""
KEYS: Final = "/.well-known/jwks.json"
_PUBLIC: Final = frozenset({"/healthz", KEYS})
"""What anybody may read who reaches the address."""
_SESSION: Final = b"mcp-session-id"
_LISTS: Final = (b"mcp-method", b"tools/list")


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
            refusal = _stopping(scope)
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
                await _stopping(scope)(scope, receive, send)


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
    known = scope.get("state", {}).get(OWNERS, frozenset())
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
