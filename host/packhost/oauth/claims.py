"""Whom an access token stands for here: principal, tenant, role and rights, by its claims and the settings.

The role is the most that a token may do; its scopes say what it may do of that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, get_args
from urllib.parse import quote

from packhost.oauth.access import LEEWAY, TokenInvalid
from packhost.rules.identities import MOST, Identity, Right, Role
from packhost.workspace.authorization import AuthSettings, IssuerSettings

_LONGEST: Final = 256
_RIGHTS: Final = frozenset(get_args(Right))


def claim(claims: Mapping[str, Any], name: str) -> Any:
    """A claim by its name, else by a path with dots; `None` for one that is not there."""
    if name in claims:
        return claims[name]
    found: Any = claims
    for step in name.split("."):
        found = found.get(step) if isinstance(found, Mapping) else None
    return found


def identity_of(claims: Mapping[str, Any], issuer: IssuerSettings, settings: AuthSettings) -> Identity | None:
    """Whom a checked token stands for; `None` where it has no role here.

    :raises TokenInvalid: when it does not say who it is, or whom calls are made for.
    """
    principal, tenant = _named(claims, issuer.principal), None
    if issuer.tenant is not None:
        tenant = _named(claims, issuer.tenant)
        # who works for two tenants is two: neither sees what is the other's
        principal = f"{quote(tenant, safe='')}/{principal}"
    role = _role(claims, issuer)
    if role is None:
        return None
    client = claims.get("client_id") or claims.get("azp")
    return Identity(
        principal=f"{issuer.begins}{principal}",
        role=role,
        scopes=rights(claims, settings) & MOST[role],
        token_id="",
        name=client if isinstance(client, str) else "",
        tenant=tenant,
        until=float(claims["exp"]) + LEEWAY,
    )


def _named(claims: Mapping[str, Any], name: str) -> str:
    value = claim(claims, name)
    if not isinstance(value, str) or not value.strip() or len(value) > _LONGEST or not value.isprintable():
        raise TokenInvalid(f"the token's `{name}` is no name")
    return value


def _role(claims: Mapping[str, Any], issuer: IssuerSettings) -> Role | None:
    for one in issuer.roles:
        found = claim(claims, one.claim)
        if found == one.value or (isinstance(found, list) and one.value in found):
            return one.role
    return None if issuer.role == "none" else issuer.role


def rights(claims: Mapping[str, Any], settings: AuthSettings) -> frozenset[Right]:
    """What the scopes of a token allow here, whatever its role."""
    given = claims.get("scope", claims.get("scp"))
    names = given.split(" ") if isinstance(given, str) else given if isinstance(given, list) else ()
    found: set[Right] = set()
    for name in names:
        if not isinstance(name, str):
            continue
        if settings.scopes:
            found.update(settings.scopes.get(name, ()))
        elif name in _RIGHTS:
            found.add(name)  # type: ignore[arg-type]  # it is one of them
    return frozenset(found)


def scopes_for(wanted: frozenset[Right], settings: AuthSettings) -> list[str]:
    """The scopes that a client asks an authorization server for, to be allowed some of `wanted` here."""
    if not settings.scopes:
        return sorted(wanted)
    return [name for name, allowed in settings.scopes.items() if wanted & set(allowed)]
