"""Identity assertions: what a host says, signed, of the call that a request belongs to.

An assertion is a JWT (RFC 7519) signed with ES256. It is made for one call and one audience and is good for
two minutes. Whoever gets it checks it against the host's public key, a JWK set (RFC 7517) of one key. The key
follows from the host's own, so that hosts which share that sign with one key.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

LIFETIME: Final = 120
"""Seconds that an assertion is good for."""
_PURPOSE: Final = b"packhost identity assertions 1"
_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""How many points P-256 has; a private key is a number below it."""


@dataclass(frozen=True, slots=True)
class Claims:
    """Of whom and of what an assertion speaks."""

    audience: str
    """The origin that it is sent to: `https://api.example.com`."""
    subject: str
    tenant: str
    tool: str
    call_id: str
    session_id: str


class Identity:
    """The host's key for assertions, worked out when it is first needed."""

    def __init__(self, key: bytes, issuer: str) -> None:
        """`key` is the host's own; `issuer` is how assertions call this host."""
        self.issuer = issuer
        self._secret = key
        self._turn = threading.Lock()
        self._key: EllipticCurvePrivateKey | None = None
        self._jwk: dict[str, str] = {}

    def token(self, claims: Claims, *, now: float | None = None) -> str:
        """An assertion; every one has an identifier of its own. `now` in seconds since the epoch."""
        key = self._ready()
        at = int(time.time() if now is None else now)
        said = {
            "iss": self.issuer,
            "sub": claims.subject,
            "aud": claims.audience,
            "iat": at,
            "nbf": at - 5,
            "exp": at + LIFETIME,
            "jti": secrets.token_hex(16),
            "tenant": claims.tenant,
            "tool": claims.tool,
            "call": claims.call_id,
            "session": claims.session_id,
        }
        head = {"alg": "ES256", "typ": "JWT", "kid": self._jwk["kid"]}
        body = f"{_encoded(_json(head))}.{_encoded(_json(said))}"
        return f"{body}.{_encoded(_signature(key, body.encode('ascii')))}"

    def jwks(self) -> dict[str, Any]:
        """The public key, as a JWK set."""
        self._ready()
        return {"keys": [dict(self._jwk)]}

    def _ready(self) -> EllipticCurvePrivateKey:
        with self._turn:
            if self._key is None:
                key = _derived(self._secret)
                self._jwk = _jwk(key)
                self._key = key
            return self._key


def _signature(key: EllipticCurvePrivateKey, data: bytes) -> bytes:
    from cryptography.hazmat.primitives import hashes  # slow to import, and only assertions need it
    from cryptography.hazmat.primitives.asymmetric import ec, utils

    r, s = utils.decode_dss_signature(key.sign(data, ec.ECDSA(hashes.SHA256())))
    return r.to_bytes(32, "big") + s.to_bytes(32, "big")


def _jwk(key: EllipticCurvePrivateKey) -> dict[str, str]:
    numbers = key.public_key().public_numbers()
    point = {"x": _encoded(numbers.x.to_bytes(32, "big")), "y": _encoded(numbers.y.to_bytes(32, "big"))}
    # RFC 7638: what names a key is the digest of its necessary members, in order.
    kid = _encoded(hashlib.sha256(_json({"crv": "P-256", "kty": "EC", **point})).digest())
    return {"kty": "EC", "crv": "P-256", **point, "alg": "ES256", "use": "sig", "kid": kid}


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=True).encode("ascii")


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode("ascii").rstrip("=")


def _derived(secret: bytes) -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec  # as above

    # Twice as long as the order, so that no number below it is likelier than another.
    number = int.from_bytes(hmac.new(secret, _PURPOSE, hashlib.sha512).digest(), "big")
    return ec.derive_private_key(number % (_ORDER - 1) + 1, ec.SECP256R1())
