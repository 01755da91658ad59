"""Several questions of one batch: what a person has decided is kept, and only the rest is asked again."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from packhost.kinds.context import CallContext

pytestmark = pytest.mark.anyio

BATCH = {
    "tool_calls": [
        {"id": "a", "name": "lab_look", "arguments": {"n": 1}},
        {"id": "b", "name": "lab_look", "arguments": {"n": 2}},
    ]
}
DONE = {"text": "done"}


def prepared(lab: Any, ran: list[int]) -> None:
    async def look(context: CallContext, arguments: dict[str, Any]) -> Any:
        ran.append(arguments["n"])
        return {}

    lab.tool("look", look, permission="read")
    lab.rule("ask", "lab:look")
    lab.script(BATCH, DONE)


async def asked(lab: Any, count: int) -> list[Any]:
    with anyio.fail_after(5):
        while len(lab.pending()) < count:
            await anyio.sleep(0.005)
    return list(lab.pending())


async def test_what_was_decided_outlives_the_host_and_only_the_rest_is_asked_again(building: Any) -> None:
    ran: list[int] = []
    async with building.host("host_a") as lab:
        prepared(lab, ran)
        run_id = await lab.background()
        first, second = await asked(lab, 2)
        await lab.gate.decide(first.id, "approve", by="ann", channel="cli")
        await lab.when(run_id, lambda row: row.waiting_on == f"approval:{second.id}")
        with anyio.fail_after(5):
            while len(ran) < 1:
                await anyio.sleep(0.005)
    async with building.host("host_b") as lab:
        prepared(lab, ran)
        assert [one.id for one in lab.pending()] == [second.id]
        await lab.runs.resume_by_person(run_id, by="ann")
        await lab.when(run_id, lambda row: row.waiting_on == f"approval:{second.id}")
        assert [one.id for one in lab.pending()] == [second.id]
        await lab.gate.decide(second.id, "approve", by="ann", channel="cli")
        row = await lab.until(run_id, "completed")
        assert row.outcome == "completed"
        assert sorted(ran) == [1, 2]
        assert (await lab.events(run_id)).count("approval.requested") == 2
        assert (await lab.events(run_id)).count("turn.started") == 2


async def test_a_decision_that_was_given_while_no_host_was_there_is_used(building: Any) -> None:
    ran: list[int] = []
    async with building.host("host_a") as lab:
        prepared(lab, ran)
        run_id = await lab.background()
        questions = await asked(lab, 2)
    async with building.host("host_b") as lab:
        prepared(lab, ran)
        for one in questions:
            await lab.gate.decide(one.id, "approve", by="ann", channel="cli")
        assert ran == []
        await lab.runs.resume_by_person(run_id, by="ann")
        await lab.until(run_id, "completed")
        assert sorted(ran) == [1, 2]
        assert (await lab.events(run_id)).count("approval.requested") == 2
