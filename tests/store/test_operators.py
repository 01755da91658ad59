"""Whose signatures count, as the store knows it."""

from __future__ import annotations

import pytest

from packhost.errors import Conflict
from packhost.store.base import Store
from packhost.store.ops import events, operators

pytestmark = pytest.mark.anyio


async def test_one_operator_follows_another_and_all_of_it_is_on_record(store: Store) -> None:
    assert store.read(operators.current) is None
    await store.write(operators.succeed, None, "a", "aa", "ann", "")
    await store.write(operators.succeed, "a", "b", "bb", "ann", "signed")
    present = store.read(operators.current)
    assert present is not None
    assert (present.fingerprint, present.public_key, present.set_by) == ("b", "bb", "ann")
    await store.write(operators.succeed, "b", None, "", "ann", "signed")
    assert store.read(operators.current) is None
    assert [event.type for event in store.read(events.page)] == [
        "operator.set",
        "operator.set",
        "operator.removed",
    ]


@pytest.mark.parametrize("present", [None, "b"])
async def test_only_the_present_operator_is_followed(store: Store, present: str | None) -> None:
    await store.write(operators.succeed, None, "a", "aa", "ann", "")
    with pytest.raises(Conflict):
        await store.write(operators.succeed, present, "c", "cc", "mallory", "")
