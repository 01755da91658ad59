"""Forms that people fill in, as the store keeps them: attached to, answered once, used once, let go."""

from __future__ import annotations

from typing import Any

import pytest

from packhost.errors import Conflict, NotFound
from packhost.store.ops import questions
from packhost.store.ops.questions import NewQuestion

pytestmark = pytest.mark.anyio


def new(id: str = "qn_1", binding: str = "b", ends: float = 600.0, **more: Any) -> NewQuestion:
    fields = {
        "id": id,
        "session_id": "s",
        "principal": "ann",
        "client": "editor",
        "tool": "t:x",
        "tool_version": "1",
        "binding": binding,
        "prompt": "?",
        "message": "?",
        "schema_json": '{"type":"object","properties":{"a":{"type":"string"}}}',
        "expires_at": ends,
        "told": {"tool": "t:x"},
        **more,
    }
    return NewQuestion(**fields)


async def ask(store: Any, *given: Any, **more: Any) -> Any:
    wanted = new(*given, **more)
    ends = store.now() + wanted.expires_at
    return await store.write(questions.ask, new(*given, **{**more, "ends": ends}))


async def test_the_same_call_attaches_to_the_question_that_stands(store: Any) -> None:
    first = await ask(store)
    assert (await ask(store, "qn_2")).id == first.id
    assert (await ask(store, "qn_3", "other")).id == "qn_3"


async def test_the_first_answer_stands_and_is_used_once(store: Any) -> None:
    await ask(store)
    row = await store.write(questions.answer, "qn_1", "accepted", {"a": "1"}, "ann", "cli", 60.0)
    assert (row.status, row.content) == ("accepted", {"a": "1"})
    with pytest.raises(Conflict):
        await store.write(questions.answer, "qn_1", "declined", None, "bob", "cli", 60.0)
    with pytest.raises(Conflict):
        await store.write(questions.use, "qn_1", "another", "call_1")
    await store.write(questions.use, "qn_1", "b", "call_1")
    with pytest.raises(Conflict) as caught:
        await store.write(questions.use, "qn_1", "b", "call_2")
    assert caught.value.data["consumed_by"] == "call_1"
    assert store.read(questions.find_live, "b", store.now()) is None


@pytest.mark.parametrize("status", ["declined", "cancelled"])
async def test_what_nobody_gave_is_used_by_no_call(store: Any, status: Any) -> None:
    await ask(store)
    await store.write(questions.answer, "qn_1", status, None, "ann", "cli", 60.0)
    with pytest.raises(Conflict):
        await store.write(questions.use, "qn_1", "b", "call_1")
    assert (await ask(store, "qn_2")).id == "qn_2"


async def test_a_question_ends_with_its_time_and_with_its_run(store: Any) -> None:
    await ask(store, ends=-1.0)
    await ask(store, "qn_2", "other", run_id="run_1")
    assert store.read(questions.due, store.now())
    await store.write(questions.expire_due)
    assert not store.read(questions.due, store.now())
    await store.write(questions.cancel_of_run, "run_1", "host")
    found = {row.id: row.status for row in store.read(questions.listing, None)}
    assert found == {"qn_1": "expired", "qn_2": "cancelled"}
    assert store.read(questions.listing) == ()


async def test_a_late_answer_is_told_so(store: Any) -> None:
    await ask(store, ends=-1.0)
    with pytest.raises(Conflict) as caught:
        await store.write(questions.answer, "qn_1", "accepted", {}, "ann", "cli", 60.0)
    assert caught.value.code == "APPROVAL_EXPIRED"


async def test_what_is_long_over_goes_with_the_next_question(store: Any) -> None:
    await ask(store, ends=-questions.KEPT - 1)
    await ask(store, "qn_2", "other")
    with pytest.raises(NotFound):
        store.read(questions.get, "qn_1")


async def test_one_sees_what_was_asked_for_one(store: Any) -> None:
    await ask(store)
    await ask(store, "qn_2", "other", principal="bob")
    assert [row.id for row in store.read(questions.listing, "pending", 10, "bob")] == ["qn_2"]
    assert len(store.read(questions.listing, "pending", 1)) == 1
