"""How an authorization server is asked: where its metadata may be, and how little its answer can do."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from authorization import AuthorizationServer
from https_server import CA, in_json, reply, serving

from packhost.errors import PackhostError
from packhost.kinds.egress import Target, taken_apart
from packhost.oauth import fetching
from packhost.oauth.fetching import LARGEST, fetch_json, keys_url, metadata_urls
from packhost.oauth.issuers import Issuers

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _trusted(tmp_path, monkeypatch) -> None:
    authority = tmp_path / "authority.pem"
    CA.cert_pem.write_to_path(authority)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))


@pytest.mark.parametrize(
    ("issuer", "paths"),
    [
        (
            "https://id.example",
            ["/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"],
        ),
        (
            "https://id.example/realms/harbour",
            [
                "/.well-known/oauth-authorization-server/realms/harbour",
                "/.well-known/openid-configuration/realms/harbour",
                "/realms/harbour/.well-known/openid-configuration",
            ],
        ),
        (
            "https://id.example/",
            ["/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"],
        ),
    ],
)
def test_metadata_are_looked_for_at_every_place_that_the_standards_know(issuer, paths) -> None:
    assert list(metadata_urls(issuer)) == [f"https://id.example{path}" for path in paths]


@pytest.mark.parametrize("place", range(3))
async def test_metadata_are_taken_from_the_first_place_that_has_them(place) -> None:
    issuer = "https://id.example/realms/harbour"

    async def fetch(url: str, asked: Target) -> Any:
        if url == metadata_urls(issuer)[place]:
            return {"issuer": issuer, "jwks_uri": "https://id.example/keys"}
        if place == 2 and url == metadata_urls(issuer)[0]:
            return {"issuer": "https://id.example", "jwks_uri": "https://evil.example/keys"}
        return None

    assert await keys_url(issuer, fetch) == "https://id.example/keys"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"issuer": "https://evil.example", "jwks_uri": "https://evil.example/keys"}, "are not of"),
        ({"issuer": "https://id.example/", "jwks_uri": "https://id.example/keys"}, "are not of"),
        ([], "are not of"),
        ({"issuer": "https://id.example"}, "do not say where the keys are"),
        (None, "publishes no metadata"),
    ],
)
async def test_metadata_of_another_or_without_keys_are_none(said, why) -> None:
    async def fetch(url: str, asked: Target) -> Any:
        return said

    with pytest.raises(PackhostError, match=why):
        await keys_url("https://id.example", fetch)


async def test_tokens_are_checked_by_keys_from_a_real_server() -> None:
    async with serving() as listening:
        server = AuthorizationServer(f"https://localhost:{listening.port}")
        about = {"issuer": server.issuer, "jwks_uri": f"{server.issuer}/keys"}
        listening.says("/.well-known/openid-configuration", in_json(about))
        listening.says("/keys", in_json({"keys": server.keys}))
        issuers = Issuers(server.settings)
        found = await issuers.identity(server.token(aud="here"), {"here"})
        assert found is not None
        assert found.principal == f"{server.issuer}#ann"
        assert [asked.path for asked in listening.asked] == [
            "/.well-known/oauth-authorization-server",
            "/.well-known/openid-configuration",
            "/keys",
        ]
        assert not any("authorization" in asked.headers for asked in listening.asked)


async def slowly(stream: Any, asked: Any) -> None:
    await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    await anyio.sleep_forever()


async def endless(stream: Any, asked: Any) -> None:
    await stream.send(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        await stream.send(b" " * 65_536)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (in_json({}, "500 Internal Server Error"), "answered 500"),
        (reply(b"", "302 Found", Location="https://evil.example/keys"), "answered 302"),
        (reply(b"<html>"), "no JSON"),
        (reply(b"[" * 100_000), "no JSON"),
        (reply(b" " * (LARGEST + 1)), "more than"),
        (slowly, "did not answer"),
        (endless, "more than"),
    ],
)
async def test_an_answer_that_is_wrong_large_late_or_elsewhere_is_none(answer, why, monkeypatch) -> None:
    monkeypatch.setattr(fetching, "PATIENCE", 0.5)
    async with serving() as listening:
        listening.says("/keys", answer)
        url = f"https://localhost:{listening.port}/keys"
        with anyio.fail_after(10), pytest.raises(PackhostError, match=why):
            await fetch_json(url, taken_apart(url))


async def test_a_certificate_that_nobody_vouches_for_is_refused(monkeypatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    async with serving() as listening:
        url = f"https://localhost:{listening.port}/keys"
        with pytest.raises(PackhostError, match="cannot be reached"):
            await fetch_json(url, taken_apart(url))
        assert listening.asked == []


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://id.example/keys", "not encrypted"),
        ("https://127.0.0.1/keys", "not public"),
        ("https://169.254.169.254/keys", "not public"),
        ("https://10.0.0.1/keys", "not public"),
        ("file:///etc/passwd", "not one that can be fetched"),
    ],
)
async def test_metadata_lead_to_no_other_host_that_is_not_public(url, why) -> None:
    with pytest.raises(PackhostError, match=why):
        await fetch_json(url, taken_apart("https://id.example"))
