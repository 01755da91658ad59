"""The key of identity assertions: one a workspace, private, and published by its public half alone."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Thread

import jwt
import pytest

from packhost.errors import ConfigInvalid
from packhost.kinds.identity import IDENTITY_FILE, Claims, Identity

CLAIMS = Claims("https://api.example", "ann", "acme", "p:ask", "call_1", "s-1")


def test_an_assertion_is_good_for_two_minutes_and_one_audience(tmp_path: Path) -> None:
    identity = Identity(tmp_path, "urn:packhost:w")
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


def test_the_key_stays_when_the_host_is_started_again_and_is_the_users_alone(tmp_path: Path) -> None:
    first = Identity(tmp_path, "i").jwks()
    assert Identity(tmp_path, "i").jwks() == first
    assert (tmp_path / IDENTITY_FILE).stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [IDENTITY_FILE]
    assert first["keys"][0].keys() == {"kty", "crv", "x", "y", "alg", "use", "kid"}


def test_hosts_that_start_at_once_agree_on_one_key(tmp_path: Path) -> None:
    found: list[str] = []
    threads = [
        Thread(target=lambda: found.append(json.dumps(Identity(tmp_path, "i").jwks()))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


def test_a_key_that_is_damaged_or_open_to_others_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / IDENTITY_FILE
    path.write_text("no key")
    path.chmod(0o600)
    with pytest.raises(ConfigInvalid, match="damaged"):
        Identity(tmp_path, "i").jwks()
    path.unlink()
    Identity(tmp_path, "i").jwks()
    path.chmod(0o640)
    with pytest.raises(ConfigInvalid, match="not private"):
        Identity(tmp_path, "i").token(CLAIMS)
    path.rename(tmp_path / "elsewhere.pem")
    path.symlink_to(tmp_path / "elsewhere.pem")
    with pytest.raises(ConfigInvalid, match="cannot be read"):
        Identity(tmp_path, "i").jwks()
