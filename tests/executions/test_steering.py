"""A run that people pause, resume and end at any moment: it ends, whole, and runs nothing twice."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from packhost.errors import PackhostError
from packhost.kinds.context import CallContext
from packhost.store.ops import sessions

pytestmark = pytest.mark.anyio

ACTS = ("pause_by_person", "resume_by_person", "abort_by_person")


async def yielding(times: int) -> None:
    """Let everything else go on for a while."""
    for _ in range(times):
        await anyio.lowlevel.checkpoint()


async def steer(lab: Any, run_id: str, act: str, delay: int) -> None:
    """Do one thing to a run after a while; that it comes too late is no fault."""
    await yielding(delay)
    with suppress(PackhostError):
        await getattr(lab.runs, act)(run_id, by="ann")


async def carried_to_its_end(lab: Any, run_id: str) -> Any:
    """The run's row once it has ended, resumed as often as it stays paused."""
    while not (row := await lab.when(run_id, lambda row: row.status != "running")).ended:
        await steer(lab, run_id, "resume_by_person", 0)
    return row


@pytest.mark.parametrize("seed", range(25))
async def test_whatever_people_do_to_a_run_its_history_stays_whole(lab: Any, seed: int) -> None:
    chance = random.Random(seed)

    async def brief(context: CallContext, arguments: dict[str, Any]) -> Any:
        await yielding(chance.randrange(4))
        return 1

    lab.tool("note", brief)
    asks = [[{"id": f"{turn}{n}", "name": "lab_note"} for n in "ab"] for turn in range(3)]
    lab.script(*[{"tool_calls": calls} for calls in asks], {"text": "done"})
    run_id = await lab.background()
    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            for _ in range(chance.randrange(7)):
                group.start_soon(steer, lab, run_id, chance.choice(ACTS), chance.randrange(300))
        row = await carried_to_its_end(lab, run_id)
    made = [call.tool_use_id for call in lab.calls(run_id)]
    assert len(made) == len(set(made))
    assert row.status == "aborted" or (row.outcome, len(made)) == ("completed", 6)
    history = [kept.message for kept in lab.store.read(sessions.history, row.session_id)]
    for asked, answer in zip(history, [*history[1:], {"content": []}], strict=True):
        ids = [block["id"] for block in asked["content"] if block["type"] == "tool_call"]
        assert not ids or [block.get("tool_use_id") for block in answer["content"]] == ids
