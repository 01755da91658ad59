"""Whatever is sent as a token or published as keys: it is refused, and nothing breaks."""

from __future__ import annotations

import string
from typing import Any

import anyio
from authorization import ISSUER, AuthorizationServer, encoded
from hypothesis import given, settings
from hypothesis import strategies as st

from packhost.errors import PackhostError
from packhost.oauth.access import TokenInvalid
from packhost.oauth.issuers import Issuers
from packhost.oauth.keys import KeySet
from packhost.rules.identities import MOST

HERE = frozenset({"https://tools.example/mcp"})
SERVER = AuthorizationServer()
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
HEADS = st.dictionaries(st.sampled_from(["alg", "kid", "typ", "crit", "jwk", "b64"]), JSON)
CLAIMS = st.dictionaries(
    st.sampled_from(["exp", "nbf", "iat", "aud", "sub", "scope", "scp", "typ", "client_id", "groups"]), JSON
)
ROLES = [{"claim": "groups.inner", "value": "a", "role": "operator"}]


def asked(token: str, **more: Any) -> Any:
    return anyio.run(Issuers(lambda: SERVER.settings(**more), SERVER.fetch).identity, token, HERE)


def refused(token: str) -> bool:
    try:
        asked(token)
    except TokenInvalid:
        return True
    return False


@settings(max_examples=40, deadline=None)
@given(st.text(alphabet=string.printable + "é", max_size=60))
def test_any_text_with_two_dots_is_refused(text: str) -> None:
    parts = (text.replace(".", "") for _ in range(3))
    assert refused(".".join(parts))


@settings(max_examples=40, deadline=None)
@given(HEADS, CLAIMS, st.binary(max_size=70))
def test_any_header_and_claims_without_a_signature_are_refused(head: Any, claims: Any, signed: bytes) -> None:
    head, claims = {"alg": "ES256", "kid": "k1", **head}, {"iss": ISSUER, **claims}
    assert refused(f"{encoded(head)}.{encoded(claims)}.{encoded(signed)}")


@settings(max_examples=40, deadline=None)
@given(CLAIMS)
def test_whatever_an_issuer_signs_gives_no_more_than_the_role_can_have(claims: Any) -> None:
    try:
        found = asked(SERVER.token(**claims), roles=ROLES)
    except TokenInvalid:
        return
    assert found.scopes <= MOST[found.role]
    assert found.principal.startswith(f"{ISSUER}#")
    assert found.principal.isprintable()


@settings(max_examples=40, deadline=None)
@given(JSON | st.fixed_dictionaries({"keys": st.lists(st.dictionaries(st.text(max_size=4), JSON))}))
def test_whatever_is_published_breaks_nothing(document: Any) -> None:
    try:
        keys = KeySet(document)
    except PackhostError:
        return
    assert keys.find("ES256", "k1") == ()


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.sampled_from(["kty", "crv", "x", "y", "n", "e", "use", "key_ops", "alg"]), JSON))
def test_a_key_of_any_shape_is_a_key_or_none(key: Any) -> None:
    for algorithm in ("RS256", "ES256", "EdDSA"):
        kind = {"RS256": "RSA", "ES256": "EC", "EdDSA": "OKP"}[algorithm]
        curve = {"ES256": "P-256", "EdDSA": "Ed25519"}.get(algorithm)
        whole = {"kty": kind, "crv": curve, **key, "kid": "k1"}
        assert len(KeySet({"keys": [whole]}).find(algorithm, "k1")) <= 1
