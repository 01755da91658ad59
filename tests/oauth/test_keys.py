"""The keys of an issuer: how long they count, how often they are asked for, and which are none."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from authorization import AuthorizationServer, jwk, private_key

from packhost.errors import PackhostError
from packhost.oauth.access import TokenInvalid
from packhost.oauth.issuers import Issuers
from packhost.oauth.keys import AGAIN, FRESH, KEPT, MOST_KEYS, KeyRing, KeySet

pytestmark = pytest.mark.anyio
HERE = frozenset({"https://tools.example/mcp"})


class Time:
    """A clock that goes by when it is told."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def server() -> AuthorizationServer:
    return AuthorizationServer()


@pytest.fixture
def clock() -> Time:
    return Time()


@pytest.fixture
def ring(server, clock) -> KeyRing:
    return KeyRing(server.settings().issuers[0], server.fetch, clock)


async def test_keys_are_asked_for_once_and_kept_for_a_while(server, ring, clock) -> None:
    for _ in range(50):
        assert len(await ring.find("ES256", "k1")) == 1
    assert server.fetched == 1
    clock.now += FRESH
    assert len(await ring.find("ES256", "k1")) == 1
    assert server.fetched == 2


async def test_a_new_key_is_found_as_soon_as_a_token_names_it(server, ring, clock) -> None:
    await ring.find("ES256", "k1")
    server.rotate("k2", keep=True)
    clock.now += AGAIN
    assert len(await ring.find("ES256", "k2")) == 1
    assert len(await ring.find("ES256", "k1")) == 1


async def test_a_key_that_was_taken_away_counts_for_minutes_at_the_most(server, ring, clock) -> None:
    assert len(await ring.find("ES256", "k1")) == 1
    server.rotate("k2")
    clock.now += FRESH - 1
    assert len(await ring.find("ES256", "k1")) == 1
    clock.now += 1
    assert await ring.find("ES256", "k1") == ()


async def test_a_flood_of_unknown_keys_asks_once_in_a_while(server, ring, clock) -> None:
    await ring.find("ES256", "k1")
    for second in range(60):
        clock.now += 1
        for number in range(20):
            assert await ring.find("ES256", f"no-{second}-{number}") == ()
    assert server.fetched <= 1 + 60 / AGAIN


async def test_many_at_once_ask_once(server, clock) -> None:
    asked = anyio.Event()
    count = 0

    async def slow(url: str, issuer: Any) -> Any:
        nonlocal count
        count += 1
        await asked.wait()
        return {"keys": server.keys}

    ring = KeyRing(server.settings(jwks="https://id.example/keys").issuers[0], slow, clock)
    found: list[int] = []

    async def find() -> None:
        found.append(len(await ring.find("ES256", "k1")))

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            for _ in range(100):
                tasks.start_soon(find)
            await anyio.wait_all_tasks_blocked()
            asked.set()
    assert (count, found) == (1, [1] * 100)


async def test_whoever_leaves_meanwhile_does_not_spoil_it_for_the_others(server, clock) -> None:
    asked, answer = anyio.Event(), anyio.Event()

    async def slow(url: str, issuer: Any) -> Any:
        asked.set()
        await answer.wait()
        return {"keys": server.keys}

    ring = KeyRing(server.settings(jwks="https://id.example/keys").issuers[0], slow, clock)
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ring.find, "ES256", "k1")
            await asked.wait()
            tasks.cancel_scope.cancel()
            answer.set()
        assert len(await ring.find("ES256", "k1")) == 1


async def test_without_keys_nothing_is_said_of_a_token(server, ring, clock) -> None:
    server.down = True
    for _ in range(20):
        with pytest.raises(PackhostError, match="cannot be had: it is down") as found:
            await ring.find("ES256", "k1")
        assert not isinstance(found.value, TokenInvalid)
    assert len(server.asked) == 2, "one look at each place of the metadata"
    server.down = False
    clock.now += AGAIN
    assert len(await ring.find("ES256", "k1")) == 1


async def test_while_the_server_is_down_the_last_keys_go_on_for_an_hour(server, ring, clock) -> None:
    await ring.find("ES256", "k1")
    server.down = True
    clock.now += KEPT - 1
    assert len(await ring.find("ES256", "k1")) == 1
    clock.now += 1
    with pytest.raises(PackhostError, match="cannot be had"):
        await ring.find("ES256", "k1")


@pytest.mark.parametrize(
    "document",
    [None, [], {}, {"keys": {}}, {"keys": "k"}, {"keys": [{"kid": str(n)} for n in range(10_000)]}],
)
async def test_what_is_no_set_of_keys_is_none(server, clock, document) -> None:
    async def fetch(url: str, issuer: Any) -> Any:
        return document

    ring = KeyRing(server.settings(jwks="https://id.example/keys").issuers[0], fetch, clock)
    with pytest.raises(PackhostError, match="cannot be had"):
        await ring.find("ES256", "k1")


async def test_too_many_keys_do_not_take_the_place_of_those_that_are_known(server, ring, clock) -> None:
    await ring.find("ES256", "k1")
    server.keys = server.keys * (MOST_KEYS + 1)
    clock.now += FRESH
    assert len(await ring.find("ES256", "k1")) == 1


ES, RS = private_key("ES256", "a"), private_key("RS256", "a")


@pytest.mark.parametrize(
    ("key", "fits"),
    [
        (jwk(ES, "ES256", "k"), True),
        (jwk(ES, "ES256", "k", key_ops=["verify"]), True),
        (jwk(ES, "ES256", "k", use="enc"), False),
        (jwk(ES, "ES256", "k", key_ops=["sign"]), False),
        (jwk(ES, "ES256", "k", key_ops="verify"), False),
        (jwk(ES, "ES256", "k", alg="ES384"), False),
        (jwk(ES, "ES256", "k", crv="P-384"), False),
        (jwk(ES, "ES256", "k", x="AAAA"), False),
        (jwk(RS, "RS256", "k", alg="ES256"), False),
        ({"kid": "k"}, False),
        ("k", False),
    ],
)
def test_a_key_counts_for_what_it_is_meant_for(key, fits) -> None:
    assert bool(KeySet({"keys": [key]}).find("ES256", "k")) is fits


def test_short_keys_and_strange_exponents_are_none() -> None:
    short = jwk(private_key("RS256", "short", bits=1024), "RS256", "k")
    strange = jwk(RS, "RS256", "k", e="AQAB" * 8)
    assert [KeySet({"keys": [one]}).find("RS256", "k") for one in (short, strange)] == [(), ()]


def test_a_token_that_names_no_key_is_tried_with_few() -> None:
    few = [jwk(private_key("ES256", str(n)), "ES256", None) for n in range(3)]
    assert len(KeySet({"keys": few}).find("ES256", None)) == 3
    assert KeySet({"keys": few * 2}).find("ES256", None) == ()


async def test_a_token_without_a_key_s_name_is_taken_where_there_is_one(server) -> None:
    server.kid = None
    assert await Issuers(server.settings, server.fetch).identity(server.token(), HERE) is not None


async def test_how_an_issuer_stands_is_told_without_its_keys(server) -> None:
    other = AuthorizationServer("https://second.example")
    both = server.settings().model_copy(
        update={"issuers": (*server.settings().issuers, *other.settings().issuers)}
    )
    found = await Issuers(lambda: both, server.fetch).examine()
    assert found[0] == {"issuer": "https://id.example", "keys": 1, "problem": ""}
    assert found[1]["keys"] == 0
    assert "publishes no metadata" in found[1]["problem"]
