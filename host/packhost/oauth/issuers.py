"""The authorization servers of a workspace: takes their access tokens, and says how they stand."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import anyio

from packhost.errors import PackhostError
from packhost.oauth.access import TokenInvalid, read, verify
from packhost.oauth.claims import identity_of
from packhost.oauth.fetching import Fetch, fetch_json
from packhost.oauth.keys import KeyRing
from packhost.rules.identities import Identity
from packhost.workspace.authorization import AuthSettings, IssuerSettings

Settings = Callable[[], AuthSettings]
_TOGETHER: Final = 8
"""How many issuers are asked at the same time."""


class Issuers:
    """Follows the settings: an issuer that was taken out counts no more, from the next request on."""

    def __init__(self, settings: Settings, fetch: Fetch = fetch_json) -> None:
        self._settings = settings
        self._fetch = fetch
        self._rings: dict[tuple[str, str | None], KeyRing] = {}

    @property
    def settings(self) -> AuthSettings:
        """Who is let in, as it was last accepted."""
        return self._settings()

    async def identity(self, token: str, audiences: Collection[str]) -> Identity | None:
        """Whom an access token stands for; `None` where it is sound and has no role here.

        `audiences` are the names of the resource that is asked, for issuers that have none of their own.

        :raises TokenInvalid: for one that does not count.
        :raises PackhostError: when it cannot be said whether it does, since its issuer's keys cannot be had.
        """
        settings, said = self.settings, read(token)
        issuer = next((one for one in settings.issuers if one.issuer == said.issuer), None)
        if issuer is None:
            raise TokenInvalid("the token is of an issuer that is not known here")
        algorithm = next((one for one in issuer.algorithms if one == said.algorithm), None)
        if algorithm is None:
            raise TokenInvalid("the token is signed in a way that is not taken here")
        keys = await self._ring(issuer).find(algorithm, said.kid)
        claims = verify(token, keys, algorithm, issuer.issuer, issuer.audience or audiences)
        return identity_of(claims, issuer, settings)

    def _ring(self, issuer: IssuerSettings) -> KeyRing:
        name = issuer.issuer, issuer.jwks
        if name not in self._rings:
            known = {(one.issuer, one.jwks) for one in self.settings.issuers}
            self._rings = {key: ring for key, ring in self._rings.items() if key in known}
            self._rings[name] = KeyRing(issuer, self._fetch)
        return self._rings[name]

    async def examine(self) -> list[Mapping[str, Any]]:
        """How many keys can be had of each issuer now, or why none can."""
        issuers = self.settings.issuers
        found: dict[str, Mapping[str, Any]] = {}
        turn = anyio.Semaphore(_TOGETHER)

        async def look(issuer: IssuerSettings) -> None:
            async with turn:
                keys, problem = 0, ""
                try:
                    keys = await self._ring(issuer).count()
                except PackhostError as error:
                    problem = error.message
            found[issuer.issuer] = {"issuer": issuer.issuer, "keys": keys, "problem": problem}

        async with anyio.create_task_group() as tasks:
            for issuer in issuers:
                tasks.start_soon(look, issuer)
        return [found[issuer.issuer] for issuer in issuers]
