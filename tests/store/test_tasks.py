"""Tasks and deliveries in each store: made once, held by one host, ended once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from packhost.store.base import Store
from packhost.store.ops import replicas, tasks, webhooks
from packhost.store.ops.replicas import NewReplica
from packhost.store.ops.tasks import NewTask
from packhost.store.ops.webhooks import Telling

pytestmark = pytest.mark.anyio


def task(id: str = "task_1", **changes: Any) -> NewTask:
    known: dict[str, Any] = {
        "id": id,
        "principal": "ann",
        "client": "code",
        "session_id": "s",
        "tool": "demo:write",
        "idem_key": f"key:{id}",
        "request": "sealed",
        "owner": "host_1",
        "ttl": 60.0,
        "asked": {},
    }
    return NewTask(**{**known, **changes})


async def test_a_call_has_one_task(store: Store) -> None:
    first = await store.write(tasks.create, task("task_1", idem_key="same"))
    second = await store.write(tasks.create, task("task_2", idem_key="same"))
    assert first.id == second.id == "task_1"
    assert store.read(tasks.find, "task_2") is None


async def test_only_who_has_a_task_ends_it(store: Store) -> None:
    await store.write(tasks.create, task())
    assert not await store.write(tasks.finish, "task_1", "host_2", "completed", "{}")
    assert await store.write(tasks.take_over, "task_1", "host_1", "host_2")
    assert not await store.write(tasks.take_over, "task_1", "host_1", "host_3")
    assert await store.write(tasks.finish, "task_1", "host_2", "completed", '{"a":1}')
    assert not await store.write(tasks.finish, "task_1", "host_2", "cancelled", None)
    found = store.read(tasks.find, "task_1")
    assert found is not None
    assert (found.status, found.result_json) == ("completed", '{"a":1}')
    assert found.expires_at - found.created_at > tasks.KEPT_AFTER - 60


async def test_what_a_client_wants_of_a_task_is_kept_for_its_host(store: Store) -> None:
    await store.write(tasks.create, task(asked={"ap_1": {}, "ap_2": {}}))
    await store.write(tasks.wish, "task_1", dismissed=("ap_1",))
    await store.write(tasks.wish, "task_1", cancel=True, dismissed=("ap_2",))
    found = store.read(tasks.find, "task_1")
    assert found is not None
    assert found.wish == {"cancel": True, "dismissed": ["ap_1", "ap_2"]}
    assert found.asked == {}


async def test_what_is_over_goes_when_its_time_has_come(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "KEPT_AFTER", 0.0)
    await store.write(tasks.create, task("task_1", ttl=0.0))
    await store.write(tasks.create, task("task_2", ttl=0.0))
    await store.write(tasks.finish, "task_1", "host_1", "completed", "{}")
    assert store.read(tasks.find, "task_1") is None
    assert store.read(tasks.find, "task_2") is not None
    await store.write(tasks.create, task("task_3"))
    assert store.read(tasks.by_key, "key:task_1") is None


async def test_a_delivery_is_made_once_and_one_host_has_it(store: Store, reopen: Callable[[], Store]) -> None:
    telling = Telling("team", 7, "run.failed", "{}")
    for _ in range(2):
        await store.write(webhooks.advance, {"team": 7}, [telling])
    assert store.read(webhooks.cursors, ["team"]) == {"team": 7}
    (taken,) = await store.write(webhooks.claim, "team", "host_1", 60.0, 4)
    assert await store.write(webhooks.claim, "team", "host_2", 60.0, 4) == ()
    await store.write(webhooks.failed, taken.id, "host_2", None, "not its own", 0.0)
    assert store.read(webhooks.get, taken.id).attempts == 0
    await store.write(webhooks.failed, taken.id, "host_1", 500, "it answered 500", 0.0)
    (again,) = await store.write(webhooks.claim, "team", "host_2", 60.0, 4)
    assert (again.id, again.attempts, again.answered) == (taken.id, 1, 500)
    await store.write(webhooks.delivered, taken.id, "host_2", 204)
    standing = store.read(webhooks.standing, "team")
    assert (standing.waiting, standing.delivered, standing.dead, standing.oldest) == (0, 1, 0, None)
    assert store.read(webhooks.next_due, "team") is None


async def test_a_delivery_of_a_host_that_is_gone_is_taken_by_the_next(store: Store) -> None:
    await store.write(webhooks.advance, {}, [Telling("team", 1, "run.failed", "{}")])
    assert len(await store.write(webhooks.claim, "team", "host_1", 0.0, 4)) == 1
    assert len(await store.write(webhooks.claim, "team", "host_2", 60.0, 4)) == 1


async def test_a_host_lets_go_of_what_another_had_that_is_gone(store: Store) -> None:
    await store.write(webhooks.advance, {}, [Telling("team", 1, "run.failed", "{}")])
    await store.write(webhooks.claim, "team", "host_1", 60.0, 4)
    await store.write(webhooks.let_go, "host_2")  # which is no host
    assert await store.write(webhooks.claim, "team", "host_2", 60.0, 4) == ()
    new = NewReplica("host_2", "machine", 1, "1", "", "", serving=True)
    await store.write(replicas.join, new, 60.0, shared=False)
    await store.write(webhooks.let_go, "host_2")
    assert len(await store.write(webhooks.claim, "team", "host_2", 60.0, 4)) == 1


async def test_each_endpoint_is_claimed_in_order_and_by_itself(store: Store) -> None:
    for number in range(1, 4):
        for hook in ("team", "other"):
            await store.write(webhooks.advance, {}, [Telling(hook, number, "run.failed", "{}")])
    first = await store.write(webhooks.claim, "team", "host_1", 60.0, 2)
    assert [one.event_id for one in first] == [1, 2]
    assert [one.event_id for one in await store.write(webhooks.claim, "team", "host_1", 60.0, 2)] == [3]
    assert len(await store.write(webhooks.claim, "other", "host_1", 60.0, 4)) == 3


async def test_tests_do_not_stand_in_the_way_of_events(store: Store) -> None:
    ids = [await store.write(webhooks.test, "team", "{}") for _ in range(2)]
    await store.write(webhooks.advance, {}, [Telling("team", 1, "run.failed", "{}")])
    assert len(set(ids)) == 2
    assert store.read(webhooks.standing, "team").waiting == 3
