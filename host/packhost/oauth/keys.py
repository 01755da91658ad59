"""The public keys of an authorization server, kept as long as they may be trusted to be still its own.

A set counts for `FRESH` seconds, then it is asked for again: a key that was taken away counts no longer than
that. While the server cannot be reached the last set goes on counting, up to `KEPT` seconds in all. A token
whose key is not known makes the set be asked for again, but never twice within `AGAIN` seconds, whoever sends
how many such tokens.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import anyio

from packhost.errors import PackhostError, ToolFailed
from packhost.kinds.egress import taken_apart
from packhost.oauth.fetching import Fetch, fetch_json, keys_url
from packhost.workspace.authorization import Algorithm, IssuerSettings

log = logging.getLogger("packhost.oauth")
FRESH: Final = 300.0
KEPT: Final = 3_600.0
AGAIN: Final = 10.0
MOST_KEYS: Final = 100
_WITHOUT_NAME: Final = 4
"""Keys that are tried for a token that names none."""
_BITS: Final = (2_048, 8_192)
_CURVES: Final[Mapping[Algorithm, str]] = {
    "ES256": "P-256",
    "ES384": "P-384",
    "ES512": "P-521",
    "EdDSA": "Ed25519",
}
_PUBLIC: Final = ("kty", "n", "e", "crv", "x", "y")
Clock = Callable[[], float]


class KeySet:
    """The keys of one answer."""

    def __init__(self, document: Any) -> None:
        """Raises `ToolFailed` for what is no JWK set, or one of too many keys."""
        keys = document.get("keys") if isinstance(document, Mapping) else None
        if not isinstance(keys, list):
            raise ToolFailed("what is published is no JWK set", hint="check `jwks`")
        if len(keys) > MOST_KEYS:
            raise ToolFailed(f"{len(keys)} keys are published, more than {MOST_KEYS}", hint="check `jwks`")
        self._keys = tuple(key for key in keys if isinstance(key, Mapping))
        self._read: dict[tuple[int, Algorithm], Any] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def find(self, algorithm: Algorithm, kid: str | None) -> tuple[Any, ...]:
        """The keys that may have signed a token; of a token that names none, only where they are few."""
        found = [
            index
            for index, key in enumerate(self._keys)
            if (kid is None or key.get("kid") == kid) and _fits(key, algorithm)
        ]
        if kid is None and len(found) > _WITHOUT_NAME:
            return ()
        keys = (self._key(index, algorithm) for index in found[:_WITHOUT_NAME])
        return tuple(key for key in keys if key is not None)

    def _key(self, index: int, algorithm: Algorithm) -> Any:
        if (index, algorithm) not in self._read:
            self._read[index, algorithm] = _key_of(self._keys[index], algorithm)
        return self._read[index, algorithm]


def _fits(key: Mapping[str, Any], algorithm: Algorithm) -> bool:
    """Whether a key is meant for signatures of that kind."""
    operations = key.get("key_ops")
    if key.get("use", "sig") != "sig" or key.get("alg", algorithm) != algorithm:
        return False
    if operations is not None and not (isinstance(operations, list) and "verify" in operations):
        return False
    curve = _CURVES.get(algorithm)
    if curve is None:
        return key.get("kty") == "RSA"
    return key.get("kty") == ("OKP" if algorithm == "EdDSA" else "EC") and key.get("crv") == curve


def _key_of(key: Mapping[str, Any], algorithm: Algorithm) -> Any:
    """A key as the library takes it; `None` for one that is no key, or too short or long to be used."""
    import jwt  # brings `cryptography`, and only access tokens need it

    public = {name: key[name] for name in _PUBLIC if isinstance(key.get(name), str)}
    try:
        found = jwt.PyJWK(public, algorithm).key
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    bits = getattr(found, "key_size", 0)
    if public.get("kty") == "RSA" and not (_BITS[0] <= bits <= _BITS[1] and len(public.get("e", "")) <= 6):
        return None
    return found


class KeyRing:
    """The keys of one issuer."""

    def __init__(
        self, issuer: IssuerSettings, fetch: Fetch = fetch_json, clock: Clock = time.monotonic
    ) -> None:
        self._issuer = issuer
        self._fetch = fetch
        self._clock = clock
        self._turn = anyio.Lock()
        self._set: KeySet | None = None
        self._got = self._tried = float("-inf")
        self._failed = ""

    async def find(self, algorithm: Algorithm, kid: str | None) -> Sequence[Any]:
        """The keys that may have signed a token.

        :raises PackhostError: when the issuer's keys cannot be had, so that nothing can be said of a token.
        """
        stale = self._clock() - self._got >= FRESH
        if self._set is None or (stale and not self._turn.locked()):
            await self._renew(self._got)
        keys, got = self._usable(), self._got
        found = keys.find(algorithm, kid)
        if not found and kid is not None:
            await self._renew(got)
            found = self._usable().find(algorithm, kid)
        return found

    async def count(self) -> int:
        """How many keys there are, asked for anew where that may be; raises as `find`."""
        await self._renew(self._got)
        return len(self._usable())

    def _usable(self) -> KeySet:
        if self._set is None or self._clock() - self._got >= KEPT:
            raise ToolFailed(
                f"the keys of `{self._issuer.issuer}` cannot be had: {self._failed or 'try again'}",
                hint="see whether the authorization server is up",
            )
        return self._set

    async def _renew(self, known: float) -> None:
        """Ask for the keys, unless that has been done since `known`, or just now."""
        async with self._turn:
            now = self._clock()
            if self._got > known or now - self._tried < AGAIN:
                return
            self._tried = now
            # whoever asks may leave meanwhile: the others wait for the answer all the same
            with anyio.CancelScope(shield=True):
                try:
                    self._set = KeySet(await self._published())
                    self._got, self._failed = self._clock(), ""
                except PackhostError as error:
                    self._failed = error.message
                    log.warning("the keys of %s cannot be had: %s", self._issuer.issuer, error.message)

    async def _published(self) -> Any:
        url = self._issuer.jwks or await keys_url(self._issuer.issuer, self._fetch)
        named = self._issuer.jwks or self._issuer.issuer
        found = await self._fetch(url, taken_apart(named))
        if found is None:
            raise ToolFailed(f"there are no keys at `{url}`", hint="check `jwks`")
        return found
