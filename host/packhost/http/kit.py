"""What an endpoint is, and what happens to a request before and after its handler.

In this order: who asks (401), what their token allows (403), how much they may ask for (429), what they ask
(405, 415, 413, 400), and only then the handler. One declaration serves the routes and the OpenAPI document.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.datastructures import QueryParams
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from packhost.control.base import Parts
from packhost.errors import PackhostError
from packhost.http.auth import Authenticator, demand
from packhost.http.cursors import Cursors
from packhost.http.limits import Limits
from packhost.http.problems import Problem, of_error
from packhost.rules.identities import Identity, Right
from packhost.store.base import Reading

log = logging.getLogger("packhost.http")
CLIENT: Final = "packhost-api"
"""How requests over the API are labelled in the record."""
_MORE_THAN_ARGUMENTS: Final = 65_536
_DEEPEST: Final = 200
_as_json: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode

M = TypeVar("M", bound=BaseModel)


class Model(BaseModel):
    """A document of the API: nothing in it is ignored."""

    model_config = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class Reply:
    """What a handler answers with."""

    value: Any
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Shared:
    """What every request is served with."""

    parts: Parts
    authenticator: Authenticator
    cursors: Cursors
    limits: Limits


@dataclass(frozen=True, slots=True)
class Call:
    """One request, once it is known who asks; `parts` act for that principal."""

    shared: Shared
    parts: Parts
    identity: Identity
    request: Request
    path: Mapping[str, str]
    query: Any = None
    body: Any = None

    def demand(self, right: Right) -> None:
        """Hold the token to a scope beyond the endpoint's own; raises `Problem` 403."""
        demand(self.identity, right)

    def owned(self, look: Callable[[Reading, str], Any], id: str, what: str, hint: str) -> Any:
        """The row of that id, found by `look`, where the caller may see it.

        :raises Problem: 404 for one that is unknown or another's.
        """
        try:
            row = self.parts.store.read(look, id)
        except PackhostError as error:
            if error.code != "NOT_FOUND":
                raise
            row = None
        if row is None or not self.identity.owns(row.principal):
            raise Problem(404, "NOT_FOUND", f"there is no {what} `{id[:80]}`", hint=hint)
        return row


Handler = Callable[[Call], Awaitable[Reply | ASGIApp]]
Method = Literal["GET", "POST"]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One method of one path. `replies` are its good answers by status."""

    method: Method
    path: str
    handler: Handler
    right: Right
    summary: str
    replies: Mapping[int, type[BaseModel]]
    body: type[Model] | None = None
    query: type[Model] | None = None
    headers: type[Model] | None = None
    problems: tuple[int, ...] = ()
    streams: bool = False
    """Whether it may also answer with a stream of events."""


class Resource:
    """All methods of one path, as an ASGI application."""

    def __init__(self, shared: Shared, endpoints: Sequence[Endpoint] = ()) -> None:
        self._shared = shared
        self._endpoints = {endpoint.method: endpoint for endpoint in endpoints}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        started = False

        async def watched(message: Any) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            with ExitStack() as until_sent:  # one who takes long to read it takes up their own allowance
                reply = await self._answer(request, until_sent)
                if isinstance(reply, Reply):
                    await _response(reply)(scope, receive, watched)
            if not isinstance(reply, Reply):
                await reply(scope, receive, watched)
        except ClientDisconnect:
            log.debug("a client left before its request had come")
        except Problem as problem:
            told = self._shared.authenticator.told(problem, scope)
            await told.response(request.url.path)(scope, receive, send)
        except PackhostError as error:
            if started:
                log.warning("a stream broke off: %s", error.message)
                raise
            await of_error(error).response(request.url.path)(scope, receive, send)
        except Exception:
            log.exception("%s %s failed", request.method, request.url.path)
            if started:
                raise
            await _internal().response(request.url.path)(scope, receive, send)

    async def _answer(self, request: Request, until_sent: ExitStack) -> Reply | ASGIApp:
        shared = self._shared
        identity = await shared.authenticator.required(request.scope)
        if not self._endpoints:
            raise Problem(404, "NOT_FOUND", f"there is no `{request.url.path}`", hint="see /v1/openapi.json")
        endpoint = self._endpoints.get(request.method)  # type: ignore[call-overload]
        if endpoint is None:
            allowed = ", ".join(self._endpoints)
            raise Problem(
                405,
                "METHOD_NOT_ALLOWED",
                f"`{request.method}` is not answered here",
                hint=f"use {allowed}",
                headers={"Allow": allowed},
            )
        demand(identity, endpoint.right)
        until_sent.enter_context(shared.limits.request(identity.principal))
        query = _query(endpoint.query, request.query_params)
        body = await _body(endpoint.body, request, shared.parts)
        call = Call(
            shared,
            replace(shared.parts, principal=identity.principal),
            identity,
            request,
            request.path_params,
            query,
            body,
        )
        answer: Reply | ASGIApp = await endpoint.handler(call)
        return answer


def _response(reply: Reply) -> Response:
    text = _as_json(reply.value)
    return Response(text, reply.status, {"Cache-Control": "no-store", **reply.headers}, "application/json")


def _query(model: type[M] | None, given: QueryParams) -> M | None:
    pairs = given.multi_items()
    if model is None:
        if pairs:
            raise _invalid(f"the query parameter `{pairs[0][0]}` is not known here", f"/{pairs[0][0]}")
        return None
    if len(dict(pairs)) != len(pairs):
        raise _invalid("a query parameter is given twice", "")
    return _valid(model, dict(pairs), "query parameter")


async def _body(model: type[M] | None, request: Request, parts: Parts) -> M | None:
    if model is None:
        return None  # what comes all the same is the server's to throw away
    length = request.headers.get("content-length", "")
    limit = _MORE_THAN_ARGUMENTS
    if not _at_most(length, limit):  # else nothing need be looked up
        limit += parts.configuration().limits.max_argument_bytes
    raw = await _read(request, length, limit)
    if not raw.strip():
        return _valid(model, {}, "member")
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Problem(
            415,
            "UNSUPPORTED_MEDIA_TYPE",
            f"`{kind[:80]}` is not read here",
            hint="send JSON with `Content-Type: application/json`",
        )
    return _valid(model, _parsed(raw), "member")


def _at_most(length: str, limit: int) -> bool:
    return length.isascii() and length.isdigit() and int(length) <= limit


async def _read(request: Request, length: str, limit: int) -> bytes:
    if length and not _at_most(length, limit):
        raise _too_large(limit)
    pieces, size = [], 0
    async for piece in request.stream():
        size += len(piece)
        if size > limit:
            raise _too_large(limit)
        pieces.append(piece)
    return b"".join(pieces)


def _parsed(raw: bytes) -> Any:
    try:
        value = json.loads(raw, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise _invalid(f"the body is no JSON: {str(error)[:200]}", "") from None
    if len(raw) > _DEEPEST and _depth(value) > _DEEPEST:  # a shorter one cannot be deeper than it is long
        raise _invalid("the body is nested too deeply", "")
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON value")


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while level and depth <= _DEEPEST:
        depth += 1
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
    return depth


def _valid(model: type[M], value: Any, what: str) -> M:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        path = "".join(f"/{part}" for part in first["loc"])
        said = first["msg"][:1].lower() + first["msg"][1:]
        raise _invalid(f"the {what} `{path or '/'}` cannot be used: {said}", path) from None


def _invalid(detail: str, path: str) -> Problem:
    return Problem(400, "INVALID_INPUT", detail, hint="see /v1/openapi.json for what is taken", path=path)


def _too_large(limit: int) -> Problem:
    return Problem(413, "TOO_LARGE", f"the body is longer than {limit} bytes", hint="send less")


def _internal() -> Problem:
    return Problem(500, "INTERNAL", "something went wrong here", hint="the host's log says what it was")
