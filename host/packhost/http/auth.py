"""Who makes a request: the bearer token in its header, one that was made here or an authorization server's.

A token that was made here is looked up by its digest; an access token is checked and kept nowhere. What
cannot be checked, since its issuer's keys cannot be had, is a 503 and no 401: the token may be sound, and a
client that is told otherwise throws it away and sends its person to log in, which would not help.
"""

from __future__ import annotations

from typing import Any, Final

from starlette.types import Scope

from packhost.errors import PackhostError
from packhost.http import resource
from packhost.http.problems import Problem
from packhost.journal import digest
from packhost.oauth.access import LONGEST, TokenInvalid, is_jwt
from packhost.oauth.issuers import Issuers
from packhost.oauth.keys import AGAIN
from packhost.rules.identities import Identity, Right
from packhost.store.base import Reading, Store
from packhost.store.ops import tokens
from packhost.workspace.authorization import AuthSettings

NOTED_EVERY: Final = 60.0
"""Seconds between two notes that a token was used: its last use is known to the minute."""
_REALM: Final = 'Bearer realm="packhost"'
_CHALLENGE: Final = "WWW-Authenticate"


class Authenticator:
    """Tells identities from tokens; every request looks again, so that revoking is at once."""

    def __init__(self, store: Store, issuers: Issuers | None = None) -> None:
        """Without `issuers` only tokens that were made here count."""
        self._store = store
        self._issuers = issuers or Issuers(AuthSettings)

    @property
    def settings(self) -> AuthSettings:
        """Who is let in, as it was last accepted."""
        return self._issuers.settings

    async def identify(self, scope: Scope) -> Identity | None:
        """Who a request is from; `None` when it names nobody.

        :raises Problem: 401 for a header that is no bearer token, or one that is not known or counts no more,
            403 for one that has no role here, 503 when its issuer's keys cannot be had.
        """
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        if not given:
            return None
        scheme, _, token = given[0].decode("latin-1").partition(" ")
        token = token.strip()
        if len(given) > 1 or scheme.lower() != "bearer" or not token or len(given[0]) > LONGEST + 8:
            raise unauthenticated("the Authorization header is no bearer token", "invalid_request")
        return await self._foreign(token, scope) if is_jwt(token) else self._own(token)

    async def required(self, scope: Scope) -> Identity:
        """As `identify`, where a token is a must."""
        identity = await self.identify(scope)
        if identity is None:
            raise unauthenticated("this needs a token")
        return identity

    def _own(self, token: str) -> Identity:
        row = self._store.read(tokens.by_digest, digest(token))
        if row is None:
            raise unauthenticated("the token is not known, has expired or was revoked", "invalid_token")
        if row.last_used_at is None or self._store.now() - row.last_used_at >= NOTED_EVERY:
            self._store.post(tokens.used, row.id)
        return Identity(row.principal, row.role, frozenset(row.scopes), row.id, row.name)

    async def _foreign(self, token: str, scope: Scope) -> Identity:
        try:
            identity = await self._issuers.identity(token, resource.audiences(scope, self.settings))
        except TokenInvalid as error:
            raise unauthenticated(error.message, "invalid_token") from None
        except PackhostError as error:
            wait = {"Retry-After": f"{AGAIN:g}"}
            raise Problem(503, "KEYS_UNAVAILABLE", error.message, hint=error.hint, headers=wait) from None
        if identity is None:
            raise Problem(
                403,
                "FORBIDDEN",
                "the token has no role here",
                hint="see `roles` under `auth` in packhost.yaml",
                headers={_CHALLENGE: f'{_REALM}, error="insufficient_scope"'},
            )
        return identity

    def still(self, identity: Identity) -> bool:
        """As `still`, now."""
        return self._store.read(still, identity)

    def told(self, problem: Problem, scope: Scope) -> Problem:
        """The problem, with where a client learns how to come by an access token that will do."""
        said, settings = problem.headers.get(_CHALLENGE), self.settings
        if said is None:
            return problem
        right: Any = problem.more.get("scope")
        if right is None and problem.status == 401 and settings.issuers and resource.is_mcp(scope):
            right = "mcp"
        if right:
            said = f"{said}, scope={_quoted(resource.scopes_for(right, settings))}"
        if settings.issuers:
            said = f"{said}, resource_metadata={_quoted(resource.metadata_url(scope, settings))}"
        problem.headers[_CHALLENGE] = said
        return problem


def still(tx: Reading, identity: Identity) -> bool:
    """Whether a request that goes on for long would still be let in."""
    if identity.until is not None:
        return tx.now() < identity.until
    return tokens.counts(tx, identity.token_id)


def _quoted(text: str) -> str:
    return f'"{text}"'


def unauthenticated(detail: str, error: str = "") -> Problem:
    """401, with what a client must bring."""
    challenge = f'{_REALM}, error="{error}"' if error else _REALM
    return Problem(
        401,
        "UNAUTHENTICATED",
        detail,
        hint="send `Authorization: Bearer TOKEN`; a person makes one with `packhost tokens new`",
        headers={_CHALLENGE: challenge},
    )


def demand(identity: Identity, right: Right) -> None:
    """Hold an identity to what its token may do.

    :raises Problem: 403 naming the scope that it lacks.
    """
    if not identity.may(right):
        raise Problem(
            403,
            "FORBIDDEN",
            f"the token does not have the scope `{right}`",
            hint=f"use a token with it; this one is of the role `{identity.role}`",
            headers={_CHALLENGE: f'{_REALM}, error="insufficient_scope"'},
            scope=right,
        )
