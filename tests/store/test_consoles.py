"""Sessions of consoles and passkeys, in a store of each kind."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from packhost.errors import Conflict, NotFound
from packhost.names import new_id
from packhost.store.base import Store
from packhost.store.ops import consoles, events, tokens
from packhost.store.ops.consoles import PasskeyRow

pytestmark = pytest.mark.anyio


async def entered(store: Store, sha: str = "sha", **more: Any) -> consoles.ConsoleRow:
    known: dict[str, Any] = {
        "principal": "ann",
        "role": "operator",
        "scopes": ["tools:read"],
        "way": "ticket",
    }
    return await store.write(consoles.enter, new_id("cs"), sha, **{**known, **more})


async def aged(store: Store, id: str, column: str, seconds: float) -> None:
    def earlier(tx: Any) -> None:
        tx.execute(f"UPDATE console_sessions SET {column}={column}-? WHERE id=?", (seconds, id))

    await store.write(earlier)


def passkey(credential: str = "c", **more: Any) -> PasskeyRow:
    return PasskeyRow(
        new_id("pk"), credential, "key", "x.localhost", "laptop", "ann", 1.0, **{"signature": "s", **more}
    )


async def test_a_session_is_found_by_its_digest_until_it_is_left(store: Store) -> None:
    row = await entered(store)
    assert store.read(consoles.by_digest, "sha") == row
    assert store.read(consoles.by_digest, "other") is None
    await store.write(consoles.leave, row.id, "ann")
    await store.write(consoles.leave, row.id, "ann")
    assert store.read(consoles.by_digest, "sha") is None
    told = [record.type for record in store.read(events.page)]
    assert told == ["console.entered", "console.left"]


@pytest.mark.parametrize(
    ("column", "seconds"), [("expires_at", consoles.LONGEST), ("seen_at", consoles.IDLE)]
)
async def test_a_session_is_over_in_time(store: Store, column: str, seconds: float) -> None:
    row = await entered(store)
    await aged(store, row.id, column, seconds - 60)
    assert store.read(consoles.by_digest, "sha") is not None
    await aged(store, row.id, column, 61)
    assert store.read(consoles.by_digest, "sha") is None
    assert store.read(consoles.live) == ()


async def test_a_session_counts_as_long_as_its_token(store: Store) -> None:
    token = await store.write(
        tokens.add,
        "tok",
        "t",
        name="",
        role="operator",
        principal="ann",
        scopes=[],
        expires_in=None,
        by="ann",
    )
    await entered(store, token_id=token.id)
    await entered(store, "gone", token_id="never")
    assert store.read(consoles.by_digest, "gone") is None
    assert store.read(consoles.by_digest, "sha") is not None
    await store.write(tokens.revoke, token.id, "ann")
    assert store.read(consoles.by_digest, "sha") is None


async def test_what_ended_long_ago_is_forgotten(store: Store) -> None:
    row = await entered(store)
    await aged(store, row.id, "expires_at", 30 * 86_400.0)
    await entered(store, "new")
    with pytest.raises(NotFound):
        store.read(consoles.get, row.id)


async def test_a_passkey_is_known_once_and_gone_when_it_is_removed(store: Store) -> None:
    made = await store.write(consoles.add_passkey, passkey())
    with pytest.raises(Conflict):
        await store.write(consoles.add_passkey, passkey())
    assert store.read(consoles.passkeys) == (made,)
    assert await store.write(consoles.remove_passkey, made.id, "ann") == made
    assert store.read(consoles.passkeys) == ()
    with pytest.raises(NotFound):
        await store.write(consoles.remove_passkey, made.id, "ann")
    assert dataclasses.asdict(made)["signature"] == "s"


async def test_nothing_waits_in_an_empty_store(store: Store) -> None:
    assert store.read(consoles.waiting) == 0
