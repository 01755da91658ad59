"""A call that is made again under its key: answered from its record, or run, and never done twice."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import anyio
import pytest

from packhost.errors import InvalidInput, PackhostError
from packhost.gate.recall import key_of
from packhost.gate.types import Answer, Caller, CallRequest, Completed, Prompt, Refusal
from packhost.store.ops import executions

pytestmark = pytest.mark.anyio


@pytest.fixture
def keyed(bench: Any) -> Any:
    """Calls a tool under a key."""
    bench.autonomy = type(bench.autonomy)("autonomous", "autonomous")

    async def call(tool: str, key: str = "k", asker: Any = None, **arguments: Any) -> Any:
        return await bench.gate.call(CallRequest(f"t:{tool}", arguments, bench.caller, idem_key=key), asker)

    return call


class Approver:
    """A person who approves, once patience is set where there is any."""

    def __init__(self, patience: anyio.Event | None = None) -> None:
        self.patience = patience
        self.asked = anyio.Event()
        self.shown: list[str] = []

    async def ask(self, prompt: Prompt) -> Answer:
        self.shown.append(prompt.approval_id)
        self.asked.set()
        if self.patience is not None:
            await self.patience.wait()
        return Answer("approve", by="person", channel="client")


async def die(bench: Any) -> None:
    """What the next host does with what a dead one left."""
    await bench.store.flush()
    await bench.store.write(executions.interrupt_orphans, "another")


async def test_a_call_that_ran_is_answered_from_its_record(bench: Any, keyed: Any) -> None:
    bench.tool("act", permission="write")
    first = await keyed("act", a=1)
    assert await keyed("act", a=1) == first
    assert bench.ran == ["act"]
    assert isinstance(await keyed("act", "other", a=1), Completed)
    assert bench.ran == ["act", "act"]


async def test_untrusted_output_comes_back_as_it_was(bench: Any, keyed: Any) -> None:
    bench.tool("act", permission="write", untrusted_output=True)
    first = await keyed("act", text="one\ntwo")
    assert await keyed("act", text="one\ntwo") == first


async def test_a_recorded_failure_is_told_again(bench: Any, keyed: Any) -> None:
    async def fail(context: Any, arguments: Any) -> None:
        bench.ran.append("fail")
        raise PackhostError("no such thing", code="TOOL_FAILED")

    bench.tool("fail", fail, permission="write")
    first, again = await keyed("fail"), await keyed("fail")
    assert (again.code, again.message, again.call_id) == ("TOOL_FAILED", "no such thing", first.call_id)
    assert bench.ran == ["fail"]


async def test_a_call_under_way_is_joined(bench: Any, keyed: Any) -> None:
    begun, go = anyio.Event(), anyio.Event()

    async def wait(context: Any, arguments: Any) -> Any:
        bench.ran.append("wait")
        begun.set()
        await go.wait()
        return {"done": True}

    bench.tool("wait", wait, permission="write")
    outcomes = []

    async def call() -> None:
        outcomes.append(await keyed("wait"))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await begun.wait()
            tasks.start_soon(call)
            await anyio.wait_all_tasks_blocked()
            go.set()
    assert outcomes[0] == outcomes[1]
    assert bench.ran == ["wait"]


@pytest.mark.parametrize("idempotent", [True, False])
async def test_a_call_whose_host_died_is_unknown_or_made_again(
    bench: Any, keyed: Any, idempotent: bool
) -> None:
    begun = anyio.Event()

    async def hang(context: Any, arguments: Any) -> Any:
        bench.ran.append("hang")
        if len(bench.ran) == 1:
            begun.set()
            await anyio.sleep_forever()
        return {"done": True}

    bench.tool("hang", hang, permission="write", idempotent=idempotent)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(keyed, "hang")
            await begun.wait()
            await die(bench)
            bench.gate._flights._known.clear()  # the next host knows none of them
            again = await keyed("hang")
            tasks.cancel_scope.cancel()
    assert len(bench.ran) == (2 if idempotent else 1)
    assert isinstance(again, Completed if idempotent else Refusal)
    if isinstance(again, Refusal):
        assert again.code == "EFFECTS_UNKNOWN"


async def test_a_call_that_only_waited_for_a_person_is_asked_again_and_runs_once(
    bench: Any, keyed: Any
) -> None:
    bench.approval("yes")
    bench.tool("act", permission="write", required_approvals=["t:yes"])
    bench.reload()
    waits, once = Approver(patience=anyio.Event()), Approver()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(keyed, "act", asker=waits))
            await waits.asked.wait()
            tasks.cancel_scope.cancel()
    first = await keyed("act", asker=once)
    assert await keyed("act", asker=once) == first
    assert bench.ran == ["act"]
    assert [waits.shown] == [once.shown]


async def test_a_result_that_the_record_does_not_hold_is_read_anew_or_said_to_be_lost(
    bench: Any, keyed: Any
) -> None:
    bench.tool("act", permission="write")
    bench.tool("look", permission="write", idempotent=True)
    await keyed("act", text="x" * 70_000)
    lost = await keyed("act", text="x" * 70_000)
    assert lost.code == "OUTPUT_TOO_LARGE"
    assert "xxx" in lost.data["begins"]
    await keyed("look", "l", text="x" * 70_000)
    assert len((await keyed("look", "l", text="x" * 70_000)).text) > 70_000
    assert bench.ran == ["act", "look", "look"]


@pytest.mark.parametrize(("then", "now"), [(True, False), (False, True)])
async def test_a_call_that_was_cut_off_runs_again_only_if_it_might_be_repeated_then_and_now(
    bench: Any, keyed: Any, then: bool, now: bool
) -> None:
    begun = anyio.Event()

    async def hang(context: Any, arguments: Any) -> Any:
        bench.ran.append("hang")
        begun.set()
        await anyio.sleep_forever()

    bench.tool("hang", hang, permission="write", idempotent=then)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(keyed, "hang")
            await begun.wait()
            await die(bench)
            bench.gate._flights._known.clear()
            bench.tool("hang", hang, permission="write", idempotent=now)
            again = await keyed("hang")
            tasks.cancel_scope.cancel()
    assert again.code == "EFFECTS_UNKNOWN"
    assert bench.ran == ["hang"]


async def test_a_key_stands_for_one_tool_and_one_set_of_arguments(bench: Any, keyed: Any) -> None:
    for name in ("act", "other"):
        bench.tool(name, permission="write")
    first = await keyed("act", a=1)
    for refused in (await keyed("act", a=2), await keyed("act"), await keyed("other", a=1)):
        assert refused.code == "INVALID_INPUT"
        assert "t:act" in refused.message
        assert refused.call_id == first.call_id
    assert await keyed("act", a=1) == first
    assert bench.ran == ["act"]


async def test_what_the_host_fills_in_may_change_between_two_calls_under_one_key(
    bench: Any, keyed: Any
) -> None:
    schema = {"type": "object", "properties": {"who": {"type": "string"}, "a": {"type": "integer"}}}
    bench.variables = {"who": "ann"}
    bench.tool("act", permission="write", input_schema=schema, hidden_parameters=["who"])
    first = await keyed("act", a=1)
    bench.variables = {"who": "bo"}
    bench.reload()
    assert await keyed("act", a=1) == first
    assert (await keyed("act", a=2)).code == "INVALID_INPUT"
    assert bench.ran == ["act"]


async def test_a_key_whose_call_runs_at_another_host_says_so(bench: Any, keyed: Any) -> None:
    begun = anyio.Event()

    async def hang(context: Any, arguments: Any) -> Any:
        bench.ran.append("hang")
        begun.set()
        await anyio.sleep_forever()

    bench.tool("hang", hang, permission="write", idempotent=True)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(keyed, "hang")
            await begun.wait()
            bench.gate._flights._known.clear()
            bench.gate._past._owner = "another"  # as the other host sees it
            again = await keyed("hang")
            tasks.cancel_scope.cancel()
    assert again.code == "CONTINUATION_IN_PROGRESS"
    assert bench.ran == ["hang"]


async def test_two_calls_of_one_key_at_once_with_other_arguments_do_not_share_an_outcome(
    bench: Any, keyed: Any
) -> None:
    bench.tool("act", permission="write")
    outcomes: dict[int, Any] = {}

    async def call(number: int) -> None:
        outcomes[number] = await keyed("act", a=number)

    async with anyio.create_task_group() as tasks:
        for number in range(8):
            tasks.start_soon(call, number)
    done = [one for one in outcomes.values() if isinstance(one, Completed)]
    assert len(done) == 1
    assert {one.code for one in outcomes.values() if isinstance(one, Refusal)} == {"INVALID_INPUT"}
    assert bench.ran == ["act"]


def test_a_callers_key_is_nobody_elses() -> None:
    ann = Caller("ann", "editor", "s")
    assert key_of("k", ann, "/key") == key_of("k", replace(ann, session_id="t"), "/key")
    others = (replace(ann, principal="bo"), replace(ann, client="other"))
    assert len({key_of("k", one, "/key") for one in (ann, *others)}) == 3
    for bad in ("", "a b", "x" * 256, "é", 3, None):
        with pytest.raises(InvalidInput):
            key_of(bad, ann, "/key")
