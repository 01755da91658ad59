"""Sessions and grants."""

from __future__ import annotations

import time

import pytest

from packhost.errors import Conflict, NotFound
from packhost.store.base import Store
from packhost.store.ops import events, grants, sessions
from packhost.store.rows import NewGrant

pytestmark = pytest.mark.anyio


async def test_a_session_exists_from_its_first_mention(store: Store) -> None:
    first = await store.write(sessions.open, "s", "me", "code", "guarded")
    again = await store.write(sessions.open, "s", "me", "code", "autonomous")
    assert again == first
    assert first.level == "guarded"
    assert [event.type for event in store.read(events.page)] == ["session.opened"]


@pytest.mark.parametrize(("principal", "client"), [("me", "other"), ("you", "code")])
async def test_a_session_is_hidden_from_others(store: Store, principal: str, client: str) -> None:
    await store.write(sessions.open, "s", "me", "code", "guarded")
    with pytest.raises(NotFound):
        await store.write(sessions.open, "s", principal, client, "guarded")


async def test_a_raise_falls_back_when_its_time_is_up(store: Store) -> None:
    await store.write(sessions.open, "s", "me", "code", "supervised")
    end = time.time() + 60
    await store.write(sessions.set_level, "s", "guarded", end, "person", "for a while")
    row = await store.write(sessions.set_level, "s", "autonomous", end, "person")
    assert (row.level_at(end - 1), row.level_at(end)) == ("autonomous", "supervised")
    lasting = await store.write(sessions.set_level, "s", "guarded", None, "person")
    assert (lasting.level_at(end + 1), lasting.level_before) == ("guarded", None)


async def test_what_only_lowers_raises_nothing_that_was_lowered_meanwhile(store: Store) -> None:
    await store.write(sessions.open, "s", "me", "code", "guarded")
    await store.write(sessions.set_level, "s", "observe", None, "person")
    with pytest.raises(Conflict):
        await store.write(sessions.set_level, "s", "supervised", None, "agent", no_higher=True)
    assert store.read(sessions.get, "s").level == "observe"
    same = await store.write(sessions.set_level, "s", "observe", None, "agent", no_higher=True)
    assert same.level == "observe"


async def test_lowering_reaches_sessions_opened_from_it_at_any_depth(store: Store) -> None:
    end = time.time() + 60
    await store.write(sessions.open, "top", "me", "code", "autonomous")
    await store.write(sessions.open, "child", "me", "code", "autonomous", "top")
    await store.write(sessions.open, "grandchild", "me", "code", "guarded", "child")
    await store.write(sessions.open, "low", "me", "code", "observe", "top")
    await store.write(sessions.open, "stranger", "me", "code", "autonomous")
    await store.write(sessions.set_level, "grandchild", "autonomous", end, "person")
    changed = await store.write(sessions.lower_children, "top", "supervised", "person", "stop")
    assert set(changed) == {"child", "grandchild"}
    assert store.read(sessions.get, "grandchild").level_before == "supervised"
    levels = {row.id: (row.level_at(end - 1), row.level_at(end)) for row in store.read(sessions.listing)}
    assert levels == {
        "top": ("autonomous", "autonomous"),
        "child": ("supervised", "supervised"),
        "grandchild": ("supervised", "supervised"),
        "low": ("observe", "observe"),
        "stranger": ("autonomous", "autonomous"),
    }


async def test_sessions_opened_from_each_other_do_not_hang_the_lowering(store: Store) -> None:
    await store.write(sessions.open, "a", "me", "code", "guarded", "b")
    await store.write(sessions.open, "b", "me", "code", "guarded", "a")
    assert await store.write(sessions.lower_children, "a", "observe", "person") == ("b",)


async def test_history_only_grows_and_keeps_its_order(store: Store) -> None:
    await store.write(sessions.open, "s", "me", "code", "guarded")
    assert await store.write(sessions.append_messages, "s", None, ['"one"', '"two"']) == 2
    assert await store.write(sessions.append_messages, "s", "run_1", ['"three"']) == 3
    assert await store.write(sessions.append_messages, "s", "run_1", []) == 3
    assert [row.message for row in store.read(sessions.history, "s")] == ["one", "two", "three"]
    (last,) = store.read(sessions.history, "s", 2)
    assert (last.seq, last.run_id) == (3, "run_1")
    assert len(store.read(sessions.history, "s", 0, 2)) == 2
    with pytest.raises(NotFound):
        await store.write(sessions.append_messages, "none", None, ["1"])


def grant(id: str, **changes: object) -> NewGrant:
    known = {"tool": "workspace:write_file", "tool_version": "1.0.0", "match_json": "{}", "created_by": "p"}
    return NewGrant(id, **{**known, **changes})


async def test_only_live_grants_are_found_for_a_tool(store: Store) -> None:
    for made in (
        grant("gr_1"),
        grant("gr_2", expires_at=time.time() - 1),
        grant("gr_3", max_uses=0),
        grant("gr_4", tool="workspace:move_path"),
        grant("gr_5"),
    ):
        await store.write(grants.add, made)
    revoked = await store.write(grants.revoke, "gr_5", "person")
    assert revoked.revoked_at is not None
    found = store.read(grants.for_tool, "workspace:write_file", time.time())
    assert [row.id for row in found] == ["gr_1"]
    assert [row.id for row in store.read(grants.listing)] == ["gr_4", "gr_1"]
    assert len(store.read(grants.listing, live=False)) == 5
    with pytest.raises(Conflict):
        await store.write(grants.revoke, "gr_5", "person")
    with pytest.raises(NotFound):
        await store.write(grants.revoke, "gr_9", "person")
    with pytest.raises(Conflict):
        await store.write(grants.add, grant("gr_1"))


async def test_a_raise_that_is_over_is_written_down_with_what_was_opened_under_it(store: Store) -> None:
    await store.write(sessions.open, "top", "me", "code", "observe")
    await store.write(sessions.set_level, "top", "guarded", time.time() - 1, "person")
    await store.write(sessions.open, "child", "me", "code", "guarded", "top")
    await store.write(sessions.open, "other", "me", "code", "guarded")
    assert store.read(sessions.due, time.time())
    assert await store.write(sessions.fall_back) == ("top",)
    assert not store.read(sessions.due, time.time())
    levels = {row.id: row.level for row in store.read(sessions.listing)}
    assert levels == {"top": "observe", "child": "observe", "other": "guarded"}
    assert await store.write(sessions.fall_back) == ()
