"""The key of identity assertions: it follows from the host's own, and its public half alone is told."""

from __future__ import annotations

import json
import secrets

import jwt
import pytest

from packhost.kinds.identity import Claims, Identity

KEY = bytes(range(32))
CLAIMS = Claims("https://api.example", "ann", "acme", "p:ask", "call_1", "s-1")


def test_an_assertion_is_good_for_two_minutes_and_one_audience() -> None:
    identity = Identity(KEY, "urn:packhost:w")
    key = jwt.PyJWKSet.from_dict(identity.jwks()).keys[0]
    token = identity.token(CLAIMS)
    assert jwt.decode(token, key, ["ES256"], audience="https://api.example")["iss"] == "urn:packhost:w"
    with pytest.raises(jwt.InvalidAudienceError):
        jwt.decode(token, key, ["ES256"], audience="https://other.example")
    with pytest.raises(jwt.ExpiredSignatureError):
        jwt.decode(identity.token(CLAIMS, now=1_000_000), key, ["ES256"], audience="https://api.example")
    head, body, signature = token.split(".")
    with pytest.raises(jwt.InvalidSignatureError):
        jwt.decode(f"{head}.{body}.{signature[:-6]}AAAAAA", key, ["ES256"], audience="https://api.example")


def test_hosts_with_one_key_sign_with_one_key_and_others_with_another() -> None:
    first = Identity(KEY, "i").jwks()
    assert Identity(KEY, "other").jwks() == first
    assert Identity(secrets.token_bytes(32), "i").jwks() != first


def test_what_is_published_is_the_public_half_alone() -> None:
    (jwk,) = Identity(KEY, "i").jwks()["keys"]
    assert jwk.keys() == {"kty", "crv", "x", "y", "alg", "use", "kid"}
    assert jwk["kid"] == jwt.PyJWK(jwk).key_id
    assert "d" not in json.loads(json.dumps(jwk))


def test_every_assertion_is_another() -> None:
    identity = Identity(KEY, "i")
    found = {identity.token(CLAIMS, now=1_000_000) for _ in range(20)}
    assert len(found) == 20
