"""What this host is as a protected resource: its names, and its metadata (RFC 9728) by which clients find
the authorization servers whose tokens it takes.

Each door is a resource: `/mcp`, `/sse` and `/v1` below the address that clients reach. A token must be for
the door, or for the address as a whole. The address is the one that the settings say, else the one that the
host listens at, by its own socket and never by the word of a request.
"""

from __future__ import annotations

import json
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Scope

from packhost.http.problems import Problem
from packhost.oauth import claims
from packhost.oauth.issuers import Settings
from packhost.rules.identities import ASKED_FOR, RIGHTS, Right
from packhost.workspace.authorization import AuthSettings

WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
DOORS: Final = ("/mcp", "/sse", "/v1")
_NAMES: Final = ("127.0.0.1", "localhost", "[::1]")
_MCP: Final[frozenset[Right]] = frozenset({"mcp"})
_USUAL: Final[frozenset[Right]] = frozenset(RIGHTS) - ASKED_FOR
_OF_DOOR: Final[dict[str, frozenset[Right]]] = {
    "": _USUAL,
    "/mcp": _MCP,
    "/sse": _MCP,
    "/v1": _USUAL - _MCP,
}
"""What a client of each door may want to do there, as far as it has it without asking by name."""


def door_of(path: str) -> str:
    """The door that a path lies behind; empty for none of them."""
    if path.startswith("/messages/"):
        return "/sse"
    return next((door for door in DOORS if path == door or path.startswith(f"{door}/")), "")


def is_mcp(scope: Scope) -> bool:
    """Whether a request is for MCP."""
    return door_of(scope["path"]) in ("/mcp", "/sse")


def _bases(scope: Scope, settings: AuthSettings) -> tuple[str, ...]:
    if settings.resource is not None:
        return (settings.resource,)
    port = scope["server"][1]
    return tuple(f"http://{name}" + ("" if port == 80 else f":{port}") for name in _NAMES)


def _base(scope: Scope, settings: AuthSettings) -> str:
    """The name by which this client calls the host, where it is one of its own."""
    known = _bases(scope, settings)
    asked = next((value for name, value in scope["headers"] if name == b"host"), b"").decode("latin-1")
    return next((one for one in known if one == f"http://{asked.lower()}"), known[0])


def audiences(scope: Scope, settings: AuthSettings) -> frozenset[str]:
    """Everything that a token for what a request asks may name as its audience."""
    door = door_of(scope["path"])
    return frozenset(
        f"{base}{part}{slash}"
        for base in _bases(scope, settings)
        for part in ("", door)
        for slash in ("", "/")
    )


def metadata_url(scope: Scope, settings: AuthSettings) -> str:
    """Where the metadata of the door are that a request came to."""
    parts = urlsplit(_base(scope, settings))
    return f"{parts.scheme}://{parts.netloc}{WELL_KNOWN}{parts.path}{door_of(scope['path'])}"


def scopes_for(right: Right, settings: AuthSettings) -> str:
    """The scopes that a client asks for to have that right, one at least."""
    return " ".join(claims.scopes_for(frozenset({right}), settings)) or right


def document(base: str, door: str, settings: AuthSettings) -> dict[str, Any]:
    """The metadata of one door, or of the host as a whole."""
    return {
        "resource": f"{base}{door}",
        "resource_name": "packhost",
        "authorization_servers": [one.issuer for one in settings.issuers],
        "scopes_supported": claims.scopes_for(_OF_DOOR[door], settings),
        "bearer_methods_supported": ["header"],
    }


def metadata_route(settings: Settings) -> BaseRoute:
    """Serves the metadata; there are none where no authorization server is named."""

    async def metadata(request: Request) -> Response:
        now = settings()
        base = _base(request.scope, now)
        own = urlsplit(base).path
        rest: str = request.path_params["rest"].rstrip("/")
        door = rest.removeprefix(own)
        if not now.issuers or not rest.startswith(own) or door not in _OF_DOOR:
            hint = "tokens are made with `packhost tokens new`" if not now.issuers else f"see {WELL_KNOWN}"
            found = Problem(404, "NOT_FOUND", "there are no metadata here", hint=hint)
            return found.response(request.url.path)
        text = json.dumps(document(base, door, now))
        return Response(text, media_type="application/json", headers={"Cache-Control": "max-age=60"})

    return Route(f"{WELL_KNOWN}{{rest:path}}", endpoint=metadata, methods=["GET"])
