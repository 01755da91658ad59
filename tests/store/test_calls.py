"""Intents, outcomes and refusals."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from packhost.errors import Conflict, NotFound
from packhost.journal import canonical, digest
from packhost.store.base import Store
from packhost.store.ops import approvals, calls, events, executions, grants
from packhost.store.rows import ApprovalAnswer, NewGrant, RefusedCall

pytestmark = pytest.mark.anyio
Make = Callable[..., Any]


async def approved(store: Store, new_approval: Make, **changes: Any) -> str:
    row = await store.write(approvals.request, new_approval(**changes))
    await store.write(approvals.answer, row.id, ApprovalAnswer("approve", "person", "cli"))
    return row.id


async def test_a_direct_call_makes_and_ends_its_run(store: Store, new_call: Make) -> None:
    call = new_call(enforcement="partial")
    assert await store.write(calls.begin, call) == 1
    run = store.read(executions.get, call.execution_id)
    assert (run.kind, run.status, run.owner, run.session_id) == ("call", "running", "host-1", "s")
    row = store.read(calls.by_id, call.id)
    assert (row.status, row.idempotent, row.enforcement, row.step) == ("started", False, "partial", 1)
    await store.write(calls.end, call.id, "ok", None, '{"written":true}', finish_execution=True)
    row = store.read(calls.by_id, call.id)
    assert (row.status, row.result_json) == ("ok", '{"written":true}')
    run = store.read(executions.get, call.execution_id)
    assert (run.status, run.outcome, run.owner) == ("completed", "ok", None)


async def test_a_failed_direct_call_names_its_code_as_the_outcome(store: Store, new_call: Make) -> None:
    call = new_call()
    await store.write(calls.begin, call)
    await store.write(calls.end, call.id, "error", "TOOL_TIMEOUT", finish_execution=True)
    run = store.read(executions.get, call.execution_id)
    assert (run.status, run.outcome) == ("failed", "TOOL_TIMEOUT")


async def test_steps_of_a_run_count_up(store: Store, new_run: Make, new_call: Make) -> None:
    run = new_run()
    await store.write(executions.create, run)
    await store.write(executions.claim, run.id, "host-1", 15.0, 0)
    made = [new_call(execution_id=run.id) for _ in range(3)]
    assert [await store.write(calls.begin, call) for call in made] == [1, 2, 3]
    assert [row.id for row in store.read(calls.of_execution, run.id)] == [call.id for call in made]
    await store.write(calls.end, made[0].id, "ok", finish_execution=True)
    assert store.read(executions.get, run.id).status == "running"


async def test_a_call_ends_once(store: Store, new_call: Make) -> None:
    call = new_call()
    await store.write(calls.begin, call)
    await store.write(calls.end, call.id, "ok")
    with pytest.raises(Conflict) as caught:
        await store.write(calls.end, call.id, "error", "TOOL_FAILED")
    assert caught.value.data["status"] == "ok"
    with pytest.raises(NotFound):
        await store.write(calls.end, "call_none", "ok")


async def test_a_late_outcome_replaces_unknown(store: Store, new_call: Make) -> None:
    call = new_call()
    await store.write(calls.begin, call)
    await store.write(executions.interrupt_orphans, "host-2")
    await store.write(calls.end, call.id, "ok", None, "1", finish_execution=True)
    assert store.read(calls.by_id, call.id).status == "ok"
    assert store.read(executions.get, call.execution_id).status == "completed"


async def test_an_approval_is_used_exactly_once(store: Store, new_call: Make, new_approval: Make) -> None:
    id = await approved(store, new_approval)
    made = [new_call(approval_id=id, binding="b" * 64) for _ in range(16)]
    lost: list[Conflict] = []

    async def begin(call: Any) -> None:
        try:
            await store.write(calls.begin, call)
        except Conflict as error:
            lost.append(error)

    async with anyio.create_task_group() as tasks:
        for call in made:
            tasks.start_soon(begin, call)
    winner = store.read(approvals.get, id).consumed_by
    assert winner in {call.id for call in made}
    assert [error.data["consumed_by"] for error in lost] == [winner] * 15
    started = [event for event in store.read(events.page) if event.type == "call.started"]
    assert [event.call_id for event in started] == [winner]
    assert len(store.read(executions.listing)) == 1


@pytest.mark.parametrize(
    ("changes", "binding", "verdict", "code"),
    [
        ({}, "c" * 64, "approve", "APPROVAL_REQUIRED"),
        ({}, None, "approve", "APPROVAL_REQUIRED"),
        ({}, "b" * 64, "deny", "APPROVAL_DENIED"),
        ({}, "b" * 64, None, "APPROVAL_REQUIRED"),
        ({"expires_at": 1.0}, "b" * 64, None, "APPROVAL_EXPIRED"),
    ],
)
async def test_an_approval_that_does_not_fit_starts_nothing(
    store: Store,
    new_call: Make,
    new_approval: Make,
    changes: dict[str, Any],
    binding: str | None,
    verdict: Any,
    code: str,
) -> None:
    row = await store.write(approvals.request, new_approval(**changes))
    if verdict:
        await store.write(approvals.answer, row.id, ApprovalAnswer(verdict, "person", "cli"))
    call = new_call(approval_id=row.id, binding=binding)
    with pytest.raises(Conflict) as caught:
        await store.write(calls.begin, call)
    assert caught.value.code == code
    assert store.read(approvals.get, row.id).consumed_by is None
    with pytest.raises(NotFound):
        store.read(calls.by_id, call.id)
    with pytest.raises(NotFound):
        store.read(executions.get, call.execution_id)


async def test_an_approval_is_kept_when_the_call_cannot_be_written(
    store: Store, new_call: Make, new_approval: Make
) -> None:
    id = await approved(store, new_approval)
    first = new_call()
    await store.write(calls.begin, first)
    clash = new_call(id=first.id, approval_id=id, binding="b" * 64)
    with pytest.raises(Conflict):
        await store.write(calls.begin, clash)
    assert store.read(approvals.get, id).consumed_by is None


async def test_a_grant_runs_out(store: Store, new_call: Make) -> None:
    grant = NewGrant("gr_1", "workspace:write_file", "1.0.0", "{}", "person", max_uses=2)
    await store.write(grants.add, grant)
    for _ in range(2):
        await store.write(calls.begin, new_call(grant_id="gr_1"))
    with pytest.raises(Conflict) as caught:
        await store.write(calls.begin, new_call(grant_id="gr_1"))
    assert caught.value.code == "APPROVAL_REQUIRED"
    assert store.read(grants.get, "gr_1").uses == 2


async def test_an_idempotency_key_names_the_call_that_used_it(store: Store, new_call: Make) -> None:
    first = new_call(idem_key="k")
    await store.write(calls.begin, first)
    with pytest.raises(Conflict) as caught:
        await store.write(calls.begin, new_call(idem_key="k"))
    assert caught.value.data["call_id"] == first.id


async def test_the_intents_event_holds_the_arguments_as_an_object(store: Store, new_call: Make) -> None:
    call = new_call(args_json=canonical({"path": "a.txt", "content": 'say "hi"\ud800'}))
    await store.write(calls.begin, call)
    (event,) = store.read(events.page)
    assert event.data is not None
    data = json.loads(event.data)
    assert data["arguments"] == {"path": "a.txt", "content": 'say "hi"\ud800'}
    assert (data["tool"], data["client"], data["session_id"]) == (call.tool, "code", "s")
    assert canonical(data) == event.data
    assert (event.execution_id, event.call_id, event.actor) == (call.execution_id, call.id, "me")


async def test_the_outcomes_event_binds_the_result(store: Store, new_call: Make) -> None:
    call = new_call(enforcement="advisory")
    await store.write(calls.begin, call)
    await store.write(calls.end, call.id, "ok", None, '{"a":1}')
    event = store.read(events.page)[-1]
    assert event.data is not None
    data = json.loads(event.data)
    assert data["result_sha"] == digest('{"a":1}')
    assert data["enforcement"] == "advisory"


async def test_a_refused_call_leaves_an_event_and_no_row(store: Store) -> None:
    refused = RefusedCall(
        "workspace:write_file",
        "SCOPE_DENIED",
        "outside of every pattern",
        "s",
        "me",
        "code",
        "me",
        args_json='{"path":"b"}',
        detail_json='{"layer":"bound"}',
    )
    await store.write(calls.record_refusal, refused)
    (event,) = store.read(events.page)
    assert event.data is not None
    data = json.loads(event.data)
    assert event.type == "call.refused"
    assert (data["code"], data["layer"], data["arguments"]) == ("SCOPE_DENIED", "bound", {"path": "b"})
    assert store.read(executions.listing) == ()
