"""Who makes a request: the bearer token in its header, looked up by digest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from packhost.http.problems import Problem
from packhost.journal import digest
from packhost.rules.identities import Identity, Right
from packhost.store.base import Store
from packhost.store.ops import tokens

NOTED_EVERY: Final = 60.0
"""Seconds between two notes that a token was used: its last use is known to the minute."""
_LONGEST: Final = 4_096
_REALM: Final = 'Bearer realm="packhost"'

Headers = Iterable[tuple[bytes, bytes]]


class Authenticator:
    """Tells identities from tokens of one store; every request looks again, so that revoking is at once."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def identify(self, headers: Headers) -> Identity | None:
        """Who a request is from; `None` when it names nobody.

        :raises Problem: 401 for a header that is no bearer token, or one that is not known or counts no more.
        """
        given = [value for name, value in headers if name == b"authorization"]
        if not given:
            return None
        scheme, _, token = given[0].decode("latin-1").partition(" ")
        if len(given) > 1 or scheme.lower() != "bearer" or not token or len(given[0]) > _LONGEST:
            raise unauthenticated("the Authorization header is no bearer token", "invalid_request")
        row = self._store.read(tokens.by_digest, digest(token.strip()))
        if row is None:
            raise unauthenticated("the token is not known, has expired or was revoked", "invalid_token")
        if row.last_used_at is None or self._store.now() - row.last_used_at >= NOTED_EVERY:
            self._store.post(tokens.used, row.id)
        return Identity(row.principal, row.role, frozenset(row.scopes), row.id, row.name)

    def required(self, headers: Headers) -> Identity:
        """As `identify`, where a token is a must."""
        identity = self.identify(headers)
        if identity is None:
            raise unauthenticated("this needs a token")
        return identity


def unauthenticated(detail: str, error: str = "") -> Problem:
    """401, with what a client must bring."""
    challenge = f'{_REALM}, error="{error}"' if error else _REALM
    return Problem(
        401,
        "UNAUTHENTICATED",
        detail,
        hint="send `Authorization: Bearer TOKEN`; a person makes one with `packhost tokens new`",
        headers={"WWW-Authenticate": challenge},
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
            headers={"WWW-Authenticate": f'{_REALM}, error="insufficient_scope", scope="{right}"'},
            scope=right,
        )
