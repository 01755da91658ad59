"""An authorization server as a test needs one: it signs whatever it is told to, and counts who asks."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from packhost.errors import ToolFailed
from packhost.kinds.egress import Target
from packhost.workspace.authorization import AuthSettings

ISSUER = "https://id.example"
_KEYS: dict[str, Any] = {}


def private_key(algorithm: str, name: str = "", *, bits: int = 2048) -> Any:
    """A private key for that algorithm, the same again for the same name: making one takes time."""
    place = f"{algorithm[:2]}{algorithm[-3:] if algorithm.startswith('ES') else ''}{name}{bits}"
    if place not in _KEYS:
        curves = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}
        if algorithm == "EdDSA":
            _KEYS[place] = ed25519.Ed25519PrivateKey.generate()
        elif algorithm in curves:
            _KEYS[place] = ec.generate_private_key(curves[algorithm])
        else:
            _KEYS[place] = rsa.generate_private_key(65537, bits)
    return _KEYS[place]


def jwk(key: Any, algorithm: str, kid: str | None, **more: Any) -> dict[str, Any]:
    """The public half of a key."""
    public = key.public_key()
    of = jwt.get_algorithm_by_name(algorithm)
    found = json.loads(of.to_jwk(public))  # type: ignore[attr-defined]
    found.pop("key_ops", None)
    return {**found, "use": "sig", "alg": algorithm, **({} if kid is None else {"kid": kid}), **more}


def pem(key: Any) -> bytes:
    """The public half of a key, as text."""
    encoding, form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    found: bytes = key.public_key().public_bytes(encoding, form)
    return found


def encoded(value: Any) -> str:
    """A part of a token."""
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


class AuthorizationServer:
    """One issuer, with one key to begin with."""

    def __init__(self, issuer: str = ISSUER, algorithm: str = "ES256", kid: str = "k1") -> None:
        self.issuer = issuer
        self.algorithm = algorithm
        self.kid: str | None = kid
        self.key = private_key(algorithm, f"{issuer}{kid}")
        self.keys: Any = [jwk(self.key, algorithm, kid)]
        self.asked: list[str] = []
        self.down = False

    def rotate(self, kid: str, *, keep: bool = False) -> None:
        """Sign by another key from now on; the one before is gone unless it is kept."""
        self.kid, self.key = kid, private_key(self.algorithm, f"{self.issuer}{kid}")
        self.keys = [*(self.keys if keep else ()), jwk(self.key, self.algorithm, kid)]

    def claims(self, **more: Any) -> dict[str, Any]:
        """What a sound token says; `None` takes a claim out."""
        now = int(time.time())
        usual = {"iss": self.issuer, "sub": "ann", "aud": "https://tools.example/mcp", "iat": now}
        found = {**usual, "exp": now + 300, "client_id": "editor", "scope": "mcp", **more}
        return {name: value for name, value in found.items() if value is not None}

    def token(self, *, header: dict[str, Any] | None = None, key: Any = None, **claims: Any) -> str:
        """A token, signed."""
        head = {"typ": "at+jwt", **({} if self.kid is None else {"kid": self.kid}), **(header or {})}
        algorithm = head.pop("alg", self.algorithm)
        return jwt.encode(self.claims(**claims), key or self.key, algorithm, headers=head)

    def forged(self, header: dict[str, Any], signature: bytes = b"", **claims: Any) -> str:
        """A token with any header and signature."""
        return f"{encoded(header)}.{encoded(self.claims(**claims))}.{encoded(signature)}"

    async def fetch(self, url: str, issuer: Target) -> Any:
        """Stands in for the network."""
        self.asked.append(url)
        if self.down:
            raise ToolFailed("it is down")
        if url == f"{self.issuer}/keys":
            return {"keys": self.keys}
        if url == f"{self.issuer}/.well-known/oauth-authorization-server":
            return {"issuer": self.issuer, "jwks_uri": f"{self.issuer}/keys"}
        return None

    @property
    def fetched(self) -> int:
        """How often its keys were asked for."""
        return self.asked.count(f"{self.issuer}/keys")

    def settings(self, **more: Any) -> AuthSettings:
        """Settings that name it, and nothing else unless told."""
        return AuthSettings.model_validate({"issuers": [{"issuer": self.issuer, **more}]})
