"""Operations on bearer tokens: a person's own acts. What makes a token is shown once and kept nowhere."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, Final

from packhost.control.base import Parts, text, whole
from packhost.control.operator import needed, signed_of
from packhost.errors import InvalidInput
from packhost.journal import digest
from packhost.names import nearest, new_id
from packhost.rules.identities import RIGHTS, ROLES, Right, Role, beyond, usual
from packhost.rules.statements import token_statement
from packhost.store.ops import tokens
from packhost.store.rows import TokenRow

PREFIX: Final = "pkh_"
"""How every token begins, so that programs that look for leaked ones know it."""
_BYTES: Final = 32
LONGEST: Final = 10 * 365 * 86_400.0
_NAME: Final = 128


async def new(parts: Parts, params: Mapping[str, Any]) -> Any:
    """Make a token and show it this once; where there is an operator, by their signature alone."""
    role = _role(text(params, "role"))
    name, principal = _label(params, "name", ""), _label(params, "principal", parts.principal)
    scopes = _scopes(params.get("scopes"), role)
    expires_in = _expiry(params.get("expires_in"))
    signed = signed_of(params)
    if needed(parts):
        if signed is None:
            raise parts.gate.operators.missing("making a token needs an operator", "packhost tokens new")
        said = token_statement(
            workspace=parts.store.workspace,
            name=name,
            role=role,
            principal=principal,
            scopes=scopes,
            expires_in=expires_in,
            by=parts.principal,
            at=signed.at,
        )
        parts.gate.operators.check(said, signed, parts.store.now())
    token = f"{PREFIX}{secrets.token_urlsafe(_BYTES)}"
    row = await parts.store.write(
        tokens.add,
        new_id("tok"),
        digest(token),
        name=name,
        role=role,
        principal=principal,
        scopes=scopes,
        expires_in=expires_in,
        by=parts.principal,
    )
    return {"token": token, **token_json(row)}


async def planned(parts: Parts, params: Mapping[str, Any]) -> Any:
    """What `tokens.new` would make, for whoever is to sign it."""
    role = _role(text(params, "role"))
    return {
        "role": role,
        "name": _label(params, "name", ""),
        "principal": _label(params, "principal", parts.principal),
        "scopes": _scopes(params.get("scopes"), role),
        "expires_in": _expiry(params.get("expires_in")),
    }


async def listing(parts: Parts, params: Mapping[str, Any]) -> Any:
    """Tokens, newest first; with `all` also those that count no more."""
    now = parts.store.now()
    rows = parts.store.read(tokens.listing, whole(params, "limit", 100))
    found = [token_json(row, now) for row in rows]
    return {"tokens": found if params.get("all") else [one for one in found if one["state"] == "live"]}


async def revoke(parts: Parts, params: Mapping[str, Any]) -> Any:
    """A person takes a token back; asks nobody."""
    return token_json(await parts.store.write(tokens.revoke, text(params, "id"), parts.principal))


def token_json(row: TokenRow, now: float | None = None) -> dict[str, Any]:
    """A token as people's programs read it, without what makes it one."""
    state = "live"
    if row.revoked_at is not None:
        state = "revoked"
    elif now is not None and row.expires_at is not None and row.expires_at <= now:
        state = "expired"
    return {
        "id": row.id,
        "state": state,
        "name": row.name,
        "role": row.role,
        "principal": row.principal,
        "scopes": list(row.scopes),
        "created_by": row.created_by,
        "created_at": row.created_at,
        "expires_at": row.expires_at,
        "last_used_at": row.last_used_at,
        "revoked_at": row.revoked_at,
    }


def _role(given: str) -> Role:
    if given not in ROLES:
        near = nearest(given, ROLES, 1)
        hint = f"did you mean `{near[0]}`?" if near else f"use one of {', '.join(ROLES)}"
        raise InvalidInput(f"`{given}` is no role", hint=hint)
    return given


def _label(params: Mapping[str, Any], name: str, default: str) -> str:
    given = text(params, name, default)
    if len(given) > _NAME or not given.isprintable() or (name == "principal" and not given.strip()):
        raise InvalidInput(
            f"`{name}` cannot be used as a name", hint=f"use 1 to {_NAME} characters that can be printed"
        )
    return given


def _scopes(given: Any, role: Role) -> list[Right]:
    if given is None:
        return sorted(usual(role))
    if not isinstance(given, list) or not given or not all(isinstance(one, str) for one in given):
        raise InvalidInput("`scopes` is no list of scopes", hint=f"use some of {', '.join(RIGHTS)}")
    for one in given:
        if one not in RIGHTS:
            near = nearest(one, RIGHTS, 1)
            hint = f"did you mean `{near[0]}`?" if near else f"use some of {', '.join(RIGHTS)}"
            raise InvalidInput(f"`{one}` is no scope", hint=hint)
    if too_much := beyond(role, given):
        raise InvalidInput(
            f"a token of the role `{role}` cannot have `{too_much[0]}`",
            hint="leave it out, or use another role",
        )
    return sorted(set(given))


def _expiry(given: Any) -> float | None:
    if given is None:
        return None
    if not isinstance(given, int | float) or isinstance(given, bool) or not 0 < given <= LONGEST:
        raise InvalidInput("`expires_in` is not a span of time", hint="give seconds, at most ten years")
    return float(given)
