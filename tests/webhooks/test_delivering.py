"""Deliveries: signed, tried again, told once, in nobody's way."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from packhost.store.ops import approvals, webhooks
from packhost.store.rows import ApprovalAnswer
from packhost.webhooks import delivering

pytestmark = pytest.mark.anyio


async def settled(store: Any, name: str, **wanted: int) -> Any:
    """How an endpoint fares, once it does so."""
    with anyio.fail_after(10):
        while True:
            found = store.read(webhooks.standing, name)
            if all(getattr(found, key) == value for key, value in wanted.items()):
                return found
            await anyio.sleep(0.01)


async def test_what_is_told_is_verified_by_the_receivers_library(
    store: Any, endpoints: Any, hooks: Any, telling: Any, asked: Any
) -> None:
    team = await endpoints()
    async with telling({"team": hooks(team.url)}):
        await store.write(approvals.request, asked())
        ((headers, body),) = await team.count(1)
        secret = "whsec_a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s="
        told = Webhook(secret).verify(body, headers)
        with pytest.raises(WebhookVerificationError):
            Webhook(secret).verify(body.replace(b"ap_1", b"ap_2"), headers)
        await settled(store, "team", delivered=1)
    assert told["type"] == "approval.requested"
    assert told["data"] == {
        "approvers_needed": 1,
        "asked_by": "code",
        "assurance": "client",
        "decided_by": None,
        "expires_at": "2033-05-18T03:33:20.000Z",
        "id": "ap_1",
        "preview": ["Allow demo:write path=a?", "Would do: +[REDACTED]"],
        "principal": "ann",
        "run_id": None,
        "session_id": "s",
        "status": "pending",
        "tool": "demo:write",
        "url": "http://127.0.0.1:8400/console/approvals/ap_1",
    }


async def test_it_is_told_who_decided_and_how(
    store: Any, endpoints: Any, hooks: Any, telling: Any, asked: Any
) -> None:
    team = await endpoints()
    async with telling({"team": hooks(team.url, events=["approval.decided"], preview=False)}):
        await store.write(approvals.request, asked())
        await store.write(approvals.answer, "ap_1", ApprovalAnswer("deny", "ann", "cli", "no"))
        ((_, body),) = await team.count(1)
    data = json.loads(body)["data"]
    assert (data["status"], data["decided_by"], "preview" in data) == ("denied", "ann", False)


async def test_what_is_not_taken_is_sent_again_the_same(
    store: Any, endpoints: Any, hooks: Any, telling: Any, asked: Any
) -> None:
    team = await endpoints("500 Oops", "302 Found\r\nLocation: http://127.0.0.1:1/", "204 No Content")
    async with telling({"team": hooks(team.url)}):
        await store.write(approvals.request, asked())
        got = await team.count(3)
        await settled(store, "team", delivered=1)
    assert {headers["webhook-id"] for headers, _ in got} == {got[0][0]["webhook-id"]}
    assert {body for _, body in got} == {got[0][1]}
    assert store.read(webhooks.get, got[0][0]["webhook-id"]).attempts == 3


async def test_what_is_never_taken_is_given_up_and_can_be_tried_anew(
    store: Any, endpoints: Any, hooks: Any, telling: Any, asked: Any
) -> None:
    team = await endpoints("500 Oops", "500 Oops", "500 Oops", "500 Oops", "200 OK")
    async with telling({"team": hooks(team.url)}):
        await store.write(approvals.request, asked())
        await settled(store, "team", dead=1)
        (given_up,) = store.read(webhooks.listing, "team")
        assert (given_up.attempts, given_up.answered, given_up.error) == (4, 500, "it answered 500")
        assert await store.write(webhooks.retry, "team", None) == 1
        await settled(store, "team", delivered=1, dead=0)


async def test_no_moment_that_an_endpoint_names_takes_the_host_down(
    store: Any, endpoints: Any, hooks: Any, telling: Any, asked: Any
) -> None:
    no_moment = "Retry-After: Mon, 01 Jan 99999999999999999999 00:00:00 GMT"
    team = await endpoints(f"503 Busy\r\n{no_moment}", "200 OK")
    async with telling({"team": hooks(team.url)}):
        await store.write(approvals.request, asked())
        await settled(store, "team", delivered=1)
    assert len(team.got) == 2


async def test_an_endpoint_that_is_gone_for_good_is_not_tried_again(
    store: Any, endpoints: Any, hooks: Any, telling: Any, asked: Any
) -> None:
    team = await endpoints("410 Gone")
    async with telling({"team": hooks(team.url)}):
        await store.write(approvals.request, asked())
        await settled(store, "team", dead=1)
    assert len(team.got) == 1


async def test_a_slow_endpoint_holds_up_no_other(
    store: Any, endpoints: Any, hooks: Any, telling: Any, asked: Any
) -> None:
    slow, quick = await endpoints(), await endpoints()
    slow.held = anyio.Event()
    async with telling({"slow": hooks(slow.url), "quick": hooks(quick.url)}):
        for number in range(5):
            await store.write(approvals.request, asked(f"ap_{number}"))
        await settled(store, "quick", delivered=5)
        assert store.read(webhooks.standing, "slow").delivered == 0
        slow.held.set()
        await settled(store, "slow", delivered=5)


async def test_one_that_does_not_answer_in_time_is_tried_again(
    store: Any, endpoints: Any, hooks: Any, telling: Any, asked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivering, "TIME", 0.1)
    slow = await endpoints()
    slow.held = anyio.Event()
    async with telling({"slow": hooks(slow.url)}):
        await store.write(approvals.request, asked())
        await slow.count(2)
        (one,) = store.read(webhooks.listing, "slow")
        assert one.error == "it did not answer within 0.1 s"
        slow.held.set()
        await settled(store, "slow", delivered=1)


async def test_two_hosts_tell_once(store: Any, endpoints: Any, hooks: Any, telling: Any, asked: Any) -> None:
    team = await endpoints()
    told = {"team": hooks(team.url)}
    async with telling(told, "host_1"), telling(told, "host_2"):
        for number in range(10):
            await store.write(approvals.request, asked(f"ap_{number}"))
        await settled(store, "team", delivered=10, waiting=0)
        await anyio.sleep(0.2)
    assert len(team.got) == 10


async def test_the_next_host_goes_on_where_one_stopped(
    store: Any, endpoints: Any, hooks: Any, telling: Any, asked: Any
) -> None:
    team = await endpoints("503 Busy")
    told = {"team": hooks(team.url)}
    async with telling(told):
        await store.write(approvals.request, asked("ap_1"))
        await team.count(1)
    await store.write(approvals.request, asked("ap_2"))
    team.answers = ["200 OK"]
    async with telling(told, "host_2"):
        await settled(store, "team", delivered=2, waiting=0)
    assert {json.loads(body)["data"]["id"] for _, body in team.got} == {"ap_1", "ap_2"}


async def test_a_new_endpoint_is_not_told_of_what_was(
    store: Any, endpoints: Any, hooks: Any, telling: Any, asked: Any
) -> None:
    team = await endpoints()
    await store.write(approvals.request, asked("ap_1"))
    async with telling({"team": hooks(team.url)}):
        await store.write(approvals.request, asked("ap_2"))
        ((_, body),) = await team.count(1)
    assert json.loads(body)["data"]["id"] == "ap_2"


async def test_an_inner_address_is_reached_only_where_that_is_said(
    store: Any, endpoints: Any, hooks: Any, telling: Any, asked: Any
) -> None:
    team = await endpoints()
    inner = team.url.replace("http://127.0.0.1", "https://localhost")
    async with telling({"team": hooks(inner, private=False)}):
        await store.write(approvals.request, asked())
        await settled(store, "team", dead=1)
    (one,) = store.read(webhooks.listing, "team")
    assert "not public" in (one.error or "")
    assert team.got == []


@pytest.mark.parametrize("value", ["too short", "whsec_AAAA", "whsec_?"])
async def test_without_a_sound_key_nothing_is_sent(
    value: str, store: Any, endpoints: Any, hooks: Any, telling: Any, asked: Any
) -> None:
    team = await endpoints()
    async with telling({"team": hooks(team.url)}, secrets={"KEY": value}):
        await store.write(approvals.request, asked())
        await settled(store, "team", dead=1)
    assert team.got == []


async def test_what_is_too_much_is_written_down_and_not_sent(
    store: Any, endpoints: Any, hooks: Any, telling: Any, asked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "MOST", 2)
    slow = await endpoints()
    slow.held = anyio.Event()
    async with telling({"slow": hooks(slow.url)}):
        for number in range(3):
            await store.write(approvals.request, asked(f"ap_{number}"))
        await settled(store, "slow", dead=1, waiting=2)
        slow.held.set()
        await settled(store, "slow", dead=1, delivered=2)


async def test_what_is_not_wanted_any_more_is_not_sent(
    store: Any, endpoints: Any, hooks: Any, telling: Any, asked: Any
) -> None:
    team, other = await endpoints("503 Busy"), await endpoints()
    told = {"team": hooks(team.url), "other": hooks(other.url)}
    async with telling(told):
        await store.write(approvals.request, asked("ap_1"))
        await team.count(1)
        del told["team"]
        await store.write(approvals.request, asked("ap_2"))
        await other.count(2)
        before = len(team.got)
        await anyio.sleep(0.2)
        assert len(team.got) == before
