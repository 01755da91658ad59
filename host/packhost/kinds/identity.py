"""Identity assertions: what a host says, signed, of the call that a request belongs to.

An assertion is a JWT (RFC 7519) signed with ES256. It is made for one call and one audience and is good for
two minutes. Whoever gets it checks it against the host's public key, a JWK set (RFC 7517) of one key.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import secrets
import stat
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from packhost.errors import ConfigInvalid

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

IDENTITY_FILE: Final = "identity.pem"
LIFETIME: Final = 120
"""Seconds that an assertion is good for."""
_LIMIT: Final = 16 * 1024
_LOST: Final = "move it away: a new key is made, and whoever checks assertions needs its public half"


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
    """The host's key for assertions, in its state folder; made when it is first needed."""

    def __init__(self, state: Path, issuer: str) -> None:
        """`issuer` is how assertions call this host."""
        self.issuer = issuer
        self._path = state / IDENTITY_FILE
        self._turn = threading.Lock()
        self._key: EllipticCurvePrivateKey | None = None
        self._jwk: dict[str, str] = {}

    def token(self, claims: Claims, *, now: float | None = None) -> str:
        """An assertion; every one has an identifier of its own.

        :raises ConfigInvalid: the key cannot be used.
        """
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
        """The public key, as a JWK set.

        :raises ConfigInvalid: the key cannot be used.
        """
        self._ready()
        return {"keys": [dict(self._jwk)]}

    def _ready(self) -> EllipticCurvePrivateKey:
        with self._turn:
            if self._key is None:
                key = _read(self._path) or _made(self._path)
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


def _read(path: Path) -> EllipticCurvePrivateKey | None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    except OSError:
        raise ConfigInvalid("the key of identity assertions cannot be read", hint=_LOST) from None
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
            raise ConfigInvalid("the key of identity assertions is not private to you", hint=_LOST)
        source = file.read(_LIMIT)
    try:
        key = serialization.load_pem_private_key(source, None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise ConfigInvalid("the key of identity assertions is damaged", hint=_LOST)
    return key


def _made(path: Path) -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    source = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    descriptor, name = tempfile.mkstemp(prefix=".identity-", dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(source)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(name, path)
        except FileExistsError:  # another process was faster: one key for all
            return _read(path) or key
    finally:
        os.unlink(name)
    return key
