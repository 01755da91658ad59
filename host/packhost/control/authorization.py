"""Operations on who is let in over HTTP: which authorization servers are trusted, and how they stand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from packhost.control.base import Parts
from packhost.oauth.issuers import Issuers
from packhost.workspace.authorization import AuthSettings


async def examine(parts: Parts, params: Mapping[str, Any]) -> Any:
    """The accepted settings, and how many keys can be had now of each authorization server."""
    settings = parts.workspace.accepted.auth
    found = await Issuers(lambda: settings).examine() if settings.issuers else []
    return {**auth_json(settings), "issuers": [dict(one) for one in found]}


def auth_json(settings: AuthSettings) -> dict[str, Any]:
    """Who is let in, without asking anybody."""
    return {
        "required": settings.wants_token,
        "resource": settings.resource,
        "issuers": [{"issuer": one.issuer} for one in settings.issuers],
    }
