"""Access tokens: what counts, and every way that one might try to."""

from __future__ import annotations

import hashlib
import hmac
import time

import jwt
import pytest
from authorization import AuthorizationServer, encoded, jwk, pem, private_key

from packhost.oauth.access import LONGEST, TokenInvalid
from packhost.oauth.issuers import Issuers

pytestmark = pytest.mark.anyio
HERE = frozenset({"https://tools.example/mcp"})


@pytest.fixture
def server() -> AuthorizationServer:
    return AuthorizationServer()


@pytest.fixture
def issuers(server) -> Issuers:
    return Issuers(server.settings, server.fetch)


async def refused(issuers: Issuers, token: str) -> str:
    with pytest.raises(TokenInvalid) as found:
        await issuers.identity(token, HERE)
    return found.value.message


async def test_a_sound_token_stands_for_issuer_and_subject(server, issuers) -> None:
    found = await issuers.identity(server.token(), HERE)
    assert (found.principal, found.role, found.scopes) == ("https://id.example#ann", "caller", {"mcp"})
    assert (found.token_id, found.name, found.tenant) == ("", "editor", None)
    assert time.time() < found.until < time.time() + 400


@pytest.mark.parametrize("algorithm", ["RS256", "PS384", "ES256", "ES384", "ES512", "EdDSA"])
async def test_each_kind_of_signature_is_taken_where_it_is_named(algorithm) -> None:
    server = AuthorizationServer(algorithm=algorithm)
    named = Issuers(lambda: server.settings(algorithms=[algorithm]), server.fetch)
    assert await named.identity(server.token(), HERE) is not None
    other = Issuers(lambda: server.settings(algorithms=["RS512"]), server.fetch)
    assert "not taken here" in await refused(other, server.token())


@pytest.mark.parametrize("spelling", ["none", "None", "NONE", ""])
async def test_a_token_that_is_not_signed_is_refused(server, issuers, spelling) -> None:
    assert "not taken here" in await refused(issuers, server.forged({"alg": spelling, "kid": "k1"}))
    header = {"alg": spelling, "kid": "k1"}
    assert "not taken here" in await refused(issuers, server.forged(header, b"anything"))


async def test_a_public_key_is_no_shared_secret() -> None:
    server = AuthorizationServer(algorithm="RS256")
    issuers = Issuers(server.settings, server.fetch)
    body = f"{encoded({'alg': 'HS256', 'kid': 'k1'})}.{encoded(server.claims())}"
    for secret in (pem(server.key), pem(server.key).strip(), server.keys[0]["n"].encode()):
        signed = hmac.new(secret, body.encode(), hashlib.sha256).digest()
        assert "not taken here" in await refused(issuers, f"{body}.{encoded(signed)}")


async def test_a_shared_secret_among_the_keys_is_no_key(server, issuers) -> None:
    server.keys.append({"kty": "oct", "k": encoded(b"s" * 32), "kid": "k2"})
    assert "not signed" in await refused(issuers, server.forged({"alg": "ES256", "kid": "k2"}, b"s" * 64))


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        ({"aud": "https://other.example/mcp"}, "another resource"),
        ({"aud": ["https://other.example/mcp", "https://tools.example/mcp.evil"]}, "another resource"),
        ({"aud": "https://tools.example/mcp?"}, "another resource"),
        ({"aud": None}, "lacks"),
        ({"aud": {}}, "lacks"),
        ({"aud": []}, "lacks"),
        ({"exp": 1_000_000_000}, "expired"),
        ({"exp": None}, "lacks"),
        ({"exp": "9999999999"}, "no time"),
        ({"exp": True}, "expired"),
        ({"exp": 1e400}, "cannot be"),
        ({"exp": 10**400}, "no time"),
        ({"exp": 1e15}, "no time"),
        ({"nbf": 9_999_999_999}, "not count yet"),
        ({"iat": 9_999_999_999}, "not count yet"),
        ({"nbf": "1"}, "no time"),
        ({"sub": None}, "`sub` is no name"),
        ({"sub": ""}, "`sub` is no name"),
        ({"sub": ["ann"]}, "`sub` is no name"),
        ({"sub": "ann\nroot"}, "`sub` is no name"),
        ({"sub": "a" * 300}, "`sub` is no name"),
        ({"cnf": {"jkt": "0ZcOCORZNYy"}}, "bound to a key"),
        ({"typ": "ID"}, "no access token"),
        ({"typ": "Refresh"}, "no access token"),
    ],
)
async def test_claims_that_do_not_hold_are_refused(server, issuers, claims, said) -> None:
    assert said in await refused(issuers, server.token(**claims))


async def test_clocks_may_differ_by_a_little(server, issuers) -> None:
    now = int(time.time())
    assert await issuers.identity(server.token(exp=now - 20, nbf=now + 20), HERE) is not None
    assert "expired" in await refused(issuers, server.token(exp=now - 40))
    assert "not count yet" in await refused(issuers, server.token(nbf=now + 40))


async def test_another_issuer_is_not_taken_whatever_it_signs(server, issuers) -> None:
    other = AuthorizationServer("https://evil.example")
    assert "not known here" in await refused(issuers, other.token())
    assert "not signed" in await refused(issuers, other.token(iss=server.issuer))
    for name in (f"{server.issuer}/", "HTTPS://ID.EXAMPLE", "https://id.example.evil", None):
        assert "issue" in await refused(issuers, server.token(iss=name))


async def test_of_two_issuers_neither_signs_for_the_other(server) -> None:
    other = AuthorizationServer("https://second.example")

    async def fetch(url, issuer):
        return await (server if url.startswith(server.issuer) else other).fetch(url, issuer)

    both = server.settings().model_copy(
        update={"issuers": (*server.settings().issuers, *other.settings().issuers)}
    )
    issuers = Issuers(lambda: both, fetch)
    assert (await issuers.identity(server.token(), HERE)).principal == "https://id.example#ann"
    assert (await issuers.identity(other.token(), HERE)).principal == "https://second.example#ann"
    assert "not signed" in await refused(issuers, other.token(iss=server.issuer))
    assert "not signed" in await refused(issuers, server.token(iss=other.issuer))


@pytest.mark.parametrize(
    "header",
    [
        {"jku": "https://evil.example/keys"},
        {"x5u": "https://evil.example/cert"},
        {"jwk": jwk(private_key("ES256", "mallory"), "ES256", "k1")},
        {"kid": "../../../../dev/null"},
        {"kid": "k1' OR '1'='1"},
        {"kid": "https://evil.example/keys"},
        {"kid": ""},
    ],
)
async def test_where_a_key_is_is_never_read_from_a_token(server, issuers, header) -> None:
    mallory = private_key("ES256", "mallory")
    assert "not signed" in await refused(issuers, server.token(header=header, key=mallory))
    assert all(url.startswith(server.issuer) for url in server.asked)


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ({"typ": "dpop+jwt"}, "`typ`"),
        ({"typ": "logout+jwt"}, "`typ`"),
        ({"typ": 7}, "`typ`"),
        ({"crit": ["exp"], "exp": 1}, "`crit`"),
        ({"crit": ["b64"], "b64": False}, "`crit`"),
        ({"kid": ["k1"]}, "no text"),
        ({"alg": ["ES256"]}, "how it is signed"),
    ],
)
async def test_a_header_that_says_something_else_is_refused(server, issuers, header, said) -> None:
    token = server.forged({"alg": "ES256", "kid": "k1", **header}, b"s" * 64)
    assert said in await refused(issuers, token)


@pytest.mark.parametrize("kind", ["at+jwt", "AT+JWT", "application/at+jwt", "JWT"])
async def test_access_tokens_may_say_what_they_are(server, issuers, kind) -> None:
    assert await issuers.identity(server.token(header={"typ": kind}), HERE) is not None


async def test_a_signature_counts_for_what_it_was_made_of(server, issuers) -> None:
    head, body, signature = server.token().split(".")
    changed = encoded(server.claims(sub="root"))
    assert "not signed" in await refused(issuers, f"{head}.{changed}.{signature}")
    assert "not signed" in await refused(issuers, f"{head}.{body}.{encoded(b'0' * 64)}")
    assert "not signed" in await refused(issuers, f"{head}.{body}.")


@pytest.mark.parametrize(
    "token",
    [
        "..",
        "a.b.c",
        "!.!.!",
        f"{encoded([])}.{encoded({})}.",
        f"{encoded(b'[' * 9_000)}.{encoded({})}.",
        f"{encoded({'alg': 'ES256'})}.{encoded(b'{' * 3)}.",
        "a." + "b" * LONGEST + ".c",
        "é.é.é",
    ],
)
async def test_what_is_no_token_is_refused_without_asking_anybody(server, issuers, token) -> None:
    await refused(issuers, token)
    assert server.asked == []


async def test_a_huge_token_is_refused_before_it_is_read(server, issuers) -> None:
    assert "longer" in await refused(issuers, server.token(more="x" * LONGEST))
    assert server.asked == []


async def test_an_issuer_that_was_taken_out_counts_no_more(server) -> None:
    settings = [server.settings()]
    issuers = Issuers(lambda: settings[0], server.fetch)
    assert await issuers.identity(server.token(), HERE) is not None
    settings[0] = settings[0].model_copy(update={"issuers": ()})
    assert "not known here" in await refused(issuers, server.token())


async def test_an_audience_of_the_issuers_own_takes_the_place_of_the_address(server) -> None:
    issuers = Issuers(lambda: server.settings(audience=["packhost"]), server.fetch)
    assert await issuers.identity(server.token(aud=["a", "packhost"]), HERE) is not None
    assert "another resource" in await refused(issuers, server.token())


def test_the_library_refuses_what_it_should() -> None:
    key = private_key("RS256", "any")
    with pytest.raises(jwt.InvalidKeyError):
        jwt.encode({}, pem(key), "HS256")
