"""Fetches for handlers, made by the host: what a handler may ask of `egress`."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import anyio

from packhost.errors import InvalidInput, ToolFailed
from packhost.kinds.egress import (
    LARGEST,
    Limits,
    Outgoing,
    Resolve,
    exchange,
    header_fault,
    system_resolve,
    taken_apart,
)
from packhost.kinds.reply import FetchReply
from packhost.rules.scopes import Layer

LONGEST: Final = 60.0
"""Seconds that a fetch takes at most, redirects included."""
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """What a handler asks for; checked when it is fetched."""

    url: str
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


async def fetch(
    request: FetchRequest,
    layers: Sequence[Layer],
    *,
    resolve: Resolve = system_resolve,
    tls: ssl.SSLContext | None = None,
) -> FetchReply:
    """Make one request within the layers' `network` scopes, following redirects within them; see `exchange`.

    :raises ScopeDenied: for a host, port, scheme or address that a layer does not cover.
    :raises InvalidInput: for a request that is not one.
    :raises ToolFailed: when it cannot be sent, breaks off, takes too long or brings too much.
    """
    asked = outgoing(request)
    try:
        with anyio.fail_after(LONGEST):
            return await exchange(asked, layers, Limits(LONGEST), resolve=resolve, tls=tls)
    except TimeoutError:
        raise ToolFailed(
            f"`{asked.target.authority}` did not answer within {LONGEST:g} s", hint="ask for less"
        ) from None


def outgoing(request: FetchRequest) -> Outgoing:
    """What is sent for a handler's request.

    :raises InvalidInput: for a request that is not one.
    """
    if request.method not in _METHODS:
        raise InvalidInput(
            f"`{request.method[:20]}` is not a method", hint=f"use one of {', '.join(sorted(_METHODS))}"
        )
    if len(request.body) > LARGEST:
        raise InvalidInput(f"a body has at most {LARGEST} bytes", hint="send less at once")
    headers = {name.lower(): value for name, value in request.headers.items()}
    for name, value in headers.items():
        if (fault := header_fault(name, value)) is not None:
            raise InvalidInput(f"the header `{name[:40]}` {fault}", hint="leave it out")
    return Outgoing(taken_apart(request.url), request.method, headers, request.body)
