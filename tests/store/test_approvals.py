"""Questions to people."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from packhost.errors import Conflict, NotFound
from packhost.store.base import Store
from packhost.store.ops import approvals, events
from packhost.store.rows import ApprovalAnswer

pytestmark = pytest.mark.anyio
Make = Callable[..., Any]


async def test_the_same_question_attaches_to_the_live_record(store: Store, new_approval: Make) -> None:
    first = await store.write(approvals.request, new_approval())
    again = await store.write(approvals.request, new_approval())
    assert again == first
    await store.write(approvals.answer, first.id, ApprovalAnswer("approve", "person", "cli"))
    assert (await store.write(approvals.request, new_approval())).id == first.id
    other = await store.write(approvals.request, new_approval(binding="c" * 64))
    assert other.id != first.id


async def test_a_denied_question_is_asked_afresh(store: Store, new_approval: Make) -> None:
    first = await store.write(approvals.request, new_approval())
    await store.write(approvals.answer, first.id, ApprovalAnswer("deny", "person", "cli", at=50.0))
    second = await store.write(approvals.request, new_approval())
    assert second.id != first.id
    assert second.status == "pending"
    assert store.read(approvals.denied_since, first.binding, 49.0) == [50.0]
    assert store.read(approvals.denied_since, first.binding, 51.0) == []
    assert store.read(approvals.denied_since, "c" * 64, 0.0) == []


async def test_the_first_answer_wins(store: Store, new_approval: Make) -> None:
    row = await store.write(approvals.request, new_approval())
    lost: list[Conflict] = []

    async def answer(by: str) -> None:
        try:
            await store.write(approvals.answer, row.id, ApprovalAnswer("approve", by, "api"))
        except Conflict as error:
            lost.append(error)

    async with anyio.create_task_group() as tasks:
        for number in range(5):
            tasks.start_soon(answer, f"person-{number}")
    decided = store.read(approvals.get, row.id)
    assert decided.status == "approved"
    assert len(decided.answers) == 1
    assert {error.data["decided_by"] for error in lost} == {decided.decided_by}
    assert len(lost) == 4


async def test_who_decided_and_how_is_kept(store: Store, new_approval: Make) -> None:
    row = await store.write(approvals.request, new_approval(names=("a:x", "a:y")))
    given = ApprovalAnswer("deny", "person", "dialog", "not now", at=12.5)
    decided = await store.write(approvals.answer, row.id, given)
    assert (decided.status, decided.decided_by, decided.decided_channel) == ("denied", "person", "dialog")
    assert (decided.reason, decided.decided_at) == ("not now", 12.5)
    assert decided.answers == (given,)
    assert decided.names == ("a:x", "a:y")
    assert decided.arguments == {"path": "a.txt"}


async def test_two_approvers_are_two_people(store: Store, new_approval: Make) -> None:
    row = await store.write(approvals.request, new_approval(approvers_needed=2))
    for _ in range(2):
        row = await store.write(approvals.answer, row.id, ApprovalAnswer("approve", "one", "cli"))
    assert (row.status, row.decided_by) == ("pending", None)
    row = await store.write(approvals.answer, row.id, ApprovalAnswer("approve", "two", "cli"))
    assert (row.status, row.decided_by) == ("approved", "two")


async def test_client_assurance_does_not_answer_for_an_operator(store: Store, new_approval: Make) -> None:
    row = await store.write(approvals.request, new_approval(assurance="operator"))
    row = await store.write(approvals.answer, row.id, ApprovalAnswer("approve", "one", "dialog"))
    assert row.status == "pending"
    given = ApprovalAnswer("approve", "one", "cli", assurance="operator")
    assert (await store.write(approvals.answer, row.id, given)).status == "approved"


async def test_an_expired_question_takes_no_answer(store: Store, new_approval: Make) -> None:
    late = await store.write(approvals.request, new_approval(expires_at=1.0))
    live = await store.write(approvals.request, new_approval(binding="c" * 64))
    with pytest.raises(Conflict) as caught:
        await store.write(approvals.answer, late.id, ApprovalAnswer("approve", "person", "cli"))
    assert caught.value.code == "APPROVAL_EXPIRED"
    assert store.read(approvals.find_live, late.binding, 2.0) is None
    assert store.read(approvals.due, late.expires_at)
    assert await store.write(approvals.expire_due) == (late.id,)
    assert not store.read(approvals.due, late.expires_at)
    assert store.read(approvals.get, late.id).status == "expired"
    assert [row.id for row in store.read(approvals.listing, "pending")] == [live.id]
    assert [row.id for row in store.read(approvals.listing)] == sorted([late.id, live.id], reverse=True)


async def test_a_withdrawn_question_takes_no_answer(store: Store, new_approval: Make) -> None:
    row = await store.write(approvals.request, new_approval())
    await store.write(approvals.cancel, row.id, "host", "the client left")
    with pytest.raises(Conflict, match="cancelled"):
        await store.write(approvals.answer, row.id, ApprovalAnswer("approve", "person", "cli"))
    with pytest.raises(NotFound):
        await store.write(approvals.cancel, "apr_none", "host")


async def test_whoever_waits_for_an_approval_is_woken_by_its_answer(store: Store, new_approval: Make) -> None:
    row = await store.write(approvals.request, new_approval())
    with store.watch(f"approval:{row.id}") as one, store.watch("approvals") as every, anyio.fail_after(5):
        await store.write(approvals.answer, row.id, ApprovalAnswer("approve", "person", "cli"))
        await one.changed()
        await every.changed()
    assert [event.type for event in store.read(events.page)] == ["approval.requested", "approval.approved"]
