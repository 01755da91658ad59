"""Autonomy on a run that goes on: each level, given, taken back, over by itself, and on record."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import anyio
import pytest

from packhost.errors import PackhostError
from packhost.rules.policy import Rule
from packhost.store.ops import events, sessions
from packhost.store.rows import SessionRow

pytestmark = pytest.mark.anyio
SESSION = "s-editor"
DONE = {"text": "done"}
Hanging = Callable[..., Any]


def call(identity: str, tool: str) -> dict[str, Any]:
    return {"tool_calls": [{"id": identity, "name": tool, "arguments": {}}]}


@pytest.fixture
def slow(lab: Any, hanging: Hanging) -> Any:
    """A reading tool that hangs, in the midst of a run whose next call writes."""
    tool = hanging()
    lab.tool("hang", tool, permission="read")
    lab.tool("boss", permission="admin")
    return tool


async def begun(lab: Any, slow: Any, then: str = "lab_note") -> str:
    """A run in the background that hangs before its second call."""
    lab.script(call("a", "lab_hang"), call("b", then), DONE)
    run_id = str(await lab.background())
    with anyio.fail_after(5):
        await slow.started.wait()
    return run_id


async def ended(lab: Any, slow: Any, run_id: str) -> Any:
    """What came of the second call: its status, the code of its refusal, or that it waits for a person."""
    slow.go_on.set()

    def settled(row: Any) -> bool:
        return row.status in ("completed", "failed") or (row.waiting_on or "").startswith("approval:")

    row = await lab.when(run_id, settled)
    if row.waiting_on:
        return "asks"
    second = [made for made in lab.calls(run_id) if made.tool_use_id == "b"]
    if second:
        return second[0].status
    await lab.store.flush()
    refused = [
        json.loads(record.data)["code"]
        for record in lab.store.read(events.page, 0, run_id, 1_000)
        if record.type == "call.refused"
    ]
    return refused[0]


def configure(lab: Any, **autonomy: Any) -> None:
    """Another maximum or default, as an edit of packhost.yaml would bring it."""
    now = lab.configuration()
    lab._configuration = replace(now, autonomy=replace(now.autonomy, **autonomy))


async def over(lab: Any, session_id: str = SESSION) -> None:
    """The time of the raise is over."""

    def end(tx: Any) -> None:
        tx.execute("UPDATE sessions SET level_expires_at=? WHERE id=?", (tx.now() - 1, session_id))

    await lab.store.write(end)
    lab.gate.sessions._rows.clear()


async def changes(lab: Any, session_id: str = SESSION) -> list[tuple[str, str, str, str]]:
    """The recorded changes of a level: from, to, by whom, why."""
    await lab.store.flush()
    return [
        (data["from"], data["to"], record.actor, data["reason"])
        for record in lab.store.read(events.page, 0, None, 10_000)
        if record.type == "session.level" and (data := json.loads(record.data))["id"] == session_id
    ]


@pytest.mark.parametrize(
    ("level", "tool", "comes"),
    [
        ("observe", "lab_look", "ok"),
        ("observe", "lab_note", "AUTONOMY_DENIED"),
        ("observe", "lab_boss", "AUTONOMY_DENIED"),
        ("supervised", "lab_look", "ok"),
        ("supervised", "lab_note", "asks"),
        ("supervised", "lab_boss", "asks"),
        ("guarded", "lab_note", "ok"),
        ("guarded", "lab_boss", "asks"),
        ("autonomous", "lab_note", "ok"),
        ("autonomous", "lab_boss", "ok"),
    ],
)
async def test_a_level_set_in_the_midst_of_a_run_decides_its_next_call(
    level: Any, tool: str, comes: str, lab: Any, slow: Any
) -> None:
    run_id = await begun(lab, slow, tool)
    await lab.gate.sessions.change(SESSION, level, by="ann", reason="the test says so")
    assert await ended(lab, slow, run_id) == comes
    assert (await changes(lab))[-1] == ("guarded", level, "ann", "the test says so")


@pytest.mark.parametrize(("level", "comes"), [("guarded", "asks"), ("autonomous", "ok")])
async def test_what_may_be_relaxed_is_relaxed_at_the_highest_level_alone(
    level: Any, comes: str, lab: Any, slow: Any
) -> None:
    lab.rules.append(Rule("ask", "looked at first", relaxable=True, tool="lab:note"))
    run_id = await begun(lab, slow)
    await lab.gate.sessions.change(SESSION, level, by="ann")
    assert await ended(lab, slow, run_id) == comes


async def test_a_raise_that_is_over_falls_back_by_itself_in_the_midst_of_a_run(lab: Any, slow: Any) -> None:
    run_id = await begun(lab, slow, "lab_boss")
    await lab.gate.sessions.change(SESSION, "autonomous", by="ann", expires_in=600.0)
    assert lab.gate.sessions.level(SESSION) == "autonomous"
    await over(lab)
    assert lab.gate.sessions.level(SESSION) == "guarded"
    assert await ended(lab, slow, run_id) == "asks"


async def test_that_a_raise_is_over_goes_on_record_once(lab: Any) -> None:
    await lab.gate.sessions.enter(SESSION, "ann", "editor")
    await lab.gate.sessions.change(SESSION, "autonomous", by="ann", expires_in=600.0, reason="a while")
    await over(lab)
    for _ in range(2):
        await lab.gate.sessions.fall_back()
    assert await changes(lab) == [
        ("guarded", "autonomous", "ann", "a while"),
        ("autonomous", "guarded", "host", "its time is over"),
    ]
    row: SessionRow = lab.store.read(sessions.get, SESSION)
    assert (row.level, row.level_expires_at, row.level_before) == ("guarded", None, None)


async def test_a_raise_before_its_time_stays(lab: Any) -> None:
    await lab.gate.sessions.enter(SESSION, "ann", "editor")
    await lab.gate.sessions.change(SESSION, "autonomous", by="ann", expires_in=600.0)
    await lab.gate.sessions.fall_back()
    assert lab.gate.sessions.level(SESSION) == "autonomous"
    assert len(await changes(lab)) == 1


async def test_a_raise_from_below_the_default_falls_back_below_it(lab: Any) -> None:
    await lab.gate.sessions.enter(SESSION, "ann", "editor")
    await lab.gate.sessions.change(SESSION, "observe", by="ann")
    await lab.gate.sessions.change(SESSION, "guarded", by="ann", expires_in=600.0)
    await over(lab)
    assert lab.gate.sessions.level(SESSION) == "observe"


@pytest.mark.parametrize("written_down", [False, True])
async def test_what_was_opened_under_a_raise_falls_back_with_it(written_down: bool, lab: Any) -> None:
    held = lab.gate.sessions
    await held.enter(SESSION, "ann", "editor")
    await held.change(SESSION, "observe", by="ann")
    await held.change(SESSION, "guarded", by="ann", expires_in=600.0)
    await held.enter("child", "ann", "editor", opener=SESSION)
    await held.enter("grandchild", "ann", "editor", opener="child")
    assert held.level("grandchild") == "guarded"
    await over(lab)
    if written_down:
        await held.fall_back()
        assert (await changes(lab, "grandchild"))[-1][:3] == ("guarded", "observe", "host")
    assert [held.level(each) for each in ("child", "grandchild")] == ["observe", "observe"]


async def test_a_maximum_that_was_lowered_holds_for_a_session_that_was_raised(lab: Any, slow: Any) -> None:
    run_id = await begun(lab, slow, "lab_boss")
    await lab.gate.sessions.change(SESSION, "autonomous", by="ann", expires_in=600.0)
    configure(lab, maximum="supervised")
    assert lab.gate.sessions.level(SESSION) == "supervised"
    assert await ended(lab, slow, run_id) == "asks"
    with pytest.raises(PackhostError) as caught:
        await lab.gate.sessions.change(SESSION, "guarded", by="ann")
    assert caught.value.code == "AUTONOMY_DENIED"


async def test_a_maximum_that_is_raised_again_gives_back_no_more_than_was_given(lab: Any) -> None:
    await lab.gate.sessions.enter(SESSION, "ann", "editor")
    await lab.gate.sessions.change(SESSION, "autonomous", by="ann", expires_in=600.0)
    configure(lab, maximum="observe")
    await over(lab)
    configure(lab, maximum="autonomous")
    assert lab.gate.sessions.level(SESSION) == "guarded"


async def test_a_child_is_lowered_with_its_parent_in_the_midst_of_its_run(lab: Any, slow: Any) -> None:
    await lab.gate.sessions.enter(SESSION, "ann", "editor")
    await lab.gate.sessions.enter("child", "ann", "editor", opener=SESSION)
    lab.script(call("a", "lab_hang"), call("b", "lab_note"), DONE)
    run_id = str(await lab.background(session_id="child"))
    with anyio.fail_after(5):
        await slow.started.wait()
    await lab.gate.sessions.change(SESSION, "observe", by="ann", reason="enough")
    assert await ended(lab, slow, run_id) == "AUTONOMY_DENIED"
    assert await changes(lab, "child") == [("guarded", "observe", "ann", "enough")]


async def test_a_run_does_not_raise_itself(lab: Any, slow: Any) -> None:
    reply = {"tool_calls": [{"id": "b", "name": "agent-runtime_elevate_autonomy", "arguments": {}}]}
    reply["tool_calls"][0]["arguments"] = {"level": "autonomous", "reason": "it is quicker"}  # type: ignore[index]
    lab.script(call("a", "lab_hang"), reply, DONE)
    run_id = str(await lab.background(tools=["agent-runtime:elevate_autonomy", "lab:hang"]))
    with anyio.fail_after(5):
        await slow.started.wait()
    assert await ended(lab, slow, run_id) == "asks"
    assert lab.gate.sessions.level(SESSION) == "guarded"
