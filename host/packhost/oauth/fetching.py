"""What an authorization server says of itself: its metadata (RFC 8414, OpenID Connect) and keys (RFC 7517).

The server is named by a person in the accepted configuration, so it may be anywhere that this machine
reaches, also in a private network. Where its metadata point to another host, that one must be public.
No redirect is followed, and no answer may be large or late.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import anyio

from packhost.errors import PackhostError, ToolFailed
from packhost.kinds.egress import Limits, Outgoing, Target, exchange, taken_apart
from packhost.rules.scopes import Layer, NetworkScope

PATIENCE: Final = 5.0
"""Seconds in which an answer must have come whole."""
LARGEST: Final = 256 * 1024
"""Bytes of an answer."""

Fetch = Callable[[str, Target], Awaitable[Any]]
"""Gets the JSON document at a URL, on behalf of an issuer; `None` where the server has none there.

Raises `PackhostError` where it cannot be had.
"""


async def fetch_json(url: str, issuer: Target) -> Any:
    """The JSON document at `url`; see `Fetch`."""
    target = taken_apart(url)
    own = target.origin == issuer.origin
    if not (target.secure or own):
        raise ToolFailed(f"`{target.authority}` is not encrypted", hint="name its keys by an https address")
    layer = Layer("auth", (NetworkScope(target.host, target.port if own else None),))
    request = Outgoing(target, "GET", {"accept": "application/json"}, b"")
    try:
        with anyio.fail_after(PATIENCE):
            reply = await exchange(request, (layer,), Limits(PATIENCE, LARGEST, redirects=0))
    except TimeoutError:
        raise ToolFailed(f"`{target.authority}` did not answer within {PATIENCE:g} s") from None
    if reply.status in (404, 405, 410):
        return None
    if reply.status != 200:
        raise ToolFailed(f"`{target.authority}` answered {reply.status} for `{target.path[:200]}`")
    try:
        return json.loads(reply.body)
    except (ValueError, RecursionError):
        raise ToolFailed(f"`{target.authority}` sent no JSON for `{target.path[:200]}`") from None


def metadata_urls(issuer: str) -> tuple[str, ...]:
    """Where an issuer's metadata may be, in the order in which they are looked for."""
    parts = urlsplit(issuer)
    base, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    found = [
        f"{base}/.well-known/oauth-authorization-server{path}",
        f"{base}/.well-known/openid-configuration{path}",
        f"{base}{path}/.well-known/openid-configuration",
    ]
    return tuple(dict.fromkeys(found))


async def keys_url(issuer: str, fetch: Fetch) -> str:
    """Where an issuer says that its keys are.

    :raises PackhostError: when no metadata can be had, or they are another's.
    """
    failed: PackhostError | None = None
    target = taken_apart(issuer)
    for url in metadata_urls(issuer):
        try:
            said = await fetch(url, target)
        except PackhostError as error:
            failed = failed or error
            continue
        if said is None:
            continue
        if not isinstance(said, Mapping) or said.get("issuer") != issuer:
            failed = ToolFailed(
                f"the metadata at `{url}` are not of `{issuer}`",
                hint="write the issuer exactly as the server does",
            )
            continue
        found = said.get("jwks_uri")
        if not isinstance(found, str):
            raise ToolFailed(f"the metadata at `{url}` do not say where the keys are", hint="set `jwks`")
        return found
    raise failed or ToolFailed(f"`{issuer}` publishes no metadata", hint="check the issuer, or set `jwks`")
