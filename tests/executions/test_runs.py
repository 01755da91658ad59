"""The life of a run: started, waited for, paused, resumed, ended, interrupted."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from packhost.errors import PackhostError
from packhost.executions import ops
from packhost.executions.request import Request, request_of
from packhost.kinds.context import CallContext, RunResult, RunStopped
from packhost.rules.scopes import Layer, parse_scope
from packhost.store.ops import sessions

pytestmark = pytest.mark.anyio


def calls(*ids: str, tool: str = "lab_note", **more: Any) -> dict[str, Any]:
    return {"tool_calls": [{"id": identity, "name": tool, "arguments": {}} for identity in ids], **more}


DONE = {"text": "done"}


async def test_a_foreground_run_calls_governed_tools_and_returns_what_came_of_it(lab: Any) -> None:
    lab.script(calls("a"), DONE)
    outcome = await lab.turn(loop=True)
    assert (outcome.value["outcome"], outcome.value["text"]) == ("completed", "done")
    run_id = outcome.value["run_id"]
    assert [(call.tool, call.tool_use_id, call.status) for call in lab.calls(run_id)] == [
        ("lab:note", "a", "ok")
    ]
    types = [name for name in await lab.events(run_id) if name != "run.state"]
    turn = ["turn.started", "turn.completed"]
    ran = ["call.started", "call.ok"]
    said = ["session.messages"]
    assert types == ["run.queued", "run.running", *said, *turn, *ran, *said, *turn, *said, "run.completed"]


async def test_a_background_run_outlives_the_call_that_started_it(
    lab: Any, hanging: Callable[..., Any]
) -> None:
    slow = hanging()
    lab.tool("note", slow)
    lab.script(calls("a"), DONE)
    outcome = await lab.turn(loop=True, background=True)
    assert outcome.value["outcome"] == "running"
    slow.go_on.set()
    row = await lab.until(outcome.value["run_id"], "completed")
    assert row.outcome == "completed"


async def test_whoever_waits_is_told_what_goes_on_and_the_progress_only_grows(lab: Any) -> None:
    async def noisy(context: CallContext, arguments: dict[str, Any]) -> Any:
        await context.report_progress(90, 100, "nearly")
        return 1

    told: list[tuple[float, str | None]] = []

    async def progress(value: float, total: float | None, message: str | None) -> None:
        told.append((value, message))

    lab.tool("note", noisy)
    lab.script(calls("a"), DONE)
    await lab.turn(loop=True, progress=progress)
    assert [value for value, _ in told] == [1, 2, 3, 4]
    assert [message for _, message in told][1:3] == ["turn 1: `lab:note`", "nearly"]


async def test_hidden_parameters_are_not_shown_to_a_model(lab: Any) -> None:
    schema = {"type": "object", "properties": {"a": {}, "tenant": {}}, "required": ["a", "tenant"]}
    lab.variables["tenant"] = "acme"
    lab.tool("note", input_schema=schema, hidden_parameters=("tenant",))
    offered: list[Any] = []

    class Peeking:
        name = "peek:run"

        async def drive(self, run: Any) -> RunResult:
            offered.extend(run.offered(["lab:no*"]))
            return RunResult("completed", {})

    lab.drivers["peek:run"] = Peeking()
    lab.tool("start", _starter(lab, "peek:run"))
    await lab.call("lab:start")
    await lab.until(lab.run_ids()[0], "completed")
    assert [tool.name for tool in offered] == ["lab_note"]
    assert offered[0].input_schema == {"type": "object", "properties": {"a": {}}, "required": ["a"]}


async def test_a_driver_that_breaks_ends_its_run_and_not_the_host(lab: Any) -> None:
    class Broken:
        name = "broken:run"

        async def drive(self, run: Any) -> RunResult:
            raise ZeroDivisionError("by zero")

    lab.drivers["broken:run"] = Broken()
    lab.tool("start", _starter(lab, "broken:run"))
    await lab.call("lab:start")
    row = await lab.until(lab.run_ids()[0], "failed")
    assert (row.outcome, "by zero" in row.result_json) == ("error", True)
    lab.script(DONE)
    assert (await lab.turn()).value["outcome"] == "completed"


@pytest.mark.parametrize(("at", "then"), [(1e18, "paused"), (-5.0, "completed")])
async def test_a_driver_may_wait_for_any_time(lab: Any, at: float, then: str) -> None:
    class Waiting:
        name = "waiting:run"

        async def drive(self, run: Any) -> RunResult:
            if run.state:
                return RunResult("completed", {})
            run.state["waited"] = True
            raise RunStopped("waiting", wake_at=at)

    lab.drivers["waiting:run"] = Waiting()
    lab.tool("start", _starter(lab, "waiting:run"))
    await lab.call("lab:start")
    run_id = lab.run_ids()[0]
    row = await lab.until(run_id, then)
    assert (row.waiting_on or "").startswith("time:9987-") is (then == "paused")


class Losing:
    """A store that loses each state that is not waited for."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def post(self, op: Any, *args: Any) -> Any:
        if getattr(op, "__qualname__", "") != "Saving.write":
            return self._store.post(op, *args)
        return None


async def test_a_call_with_effects_does_not_start_without_what_the_run_would_go_on_from(
    building: Any, hanging: Callable[..., Any]
) -> None:
    building.store, store = Losing(building.store), building.store
    slow = hanging()
    async with building.host("host_a") as lab:
        lab.tool("note", slow)
        lab.script(calls("a"), calls("b", tool="lab_look"), DONE)
        outcome = await lab.turn(loop=True)
        assert (outcome.value["outcome"], slow.times) == ("completed", 0)
        history = [row.message for row in _history(lab, outcome.value["session_id"])]
        said = [block["content"].partition(":")[0] for block in history[2]["content"]]
        assert said == ["TOOL_INTENT_NOT_COMMITTED"]
        assert not history[4]["content"][0]["is_error"]
    building.store = store


async def test_a_runs_narrowing_holds_after_an_interruption(lab: Any, building: Any) -> None:
    narrow = Layer("subagent", (parse_scope("path read docs/**"), parse_scope("tool lab:*")))
    request = Request({"messages": []}, True, (narrow,))
    assert request_of(SimpleNamespace(spec_json=request.as_text())) == request  # type: ignore[arg-type]


async def test_time_in_which_a_person_is_asked_is_counted_apart(lab: Any) -> None:
    lab.rule("ask", "lab:note")
    lab.script(calls("a"), DONE)
    run_id = await lab.background(limits={"wall_clock": 0.3})
    await lab.when(run_id, lambda row: row.waiting_on is not None)
    with anyio.move_on_after(0.4):
        await anyio.sleep_forever()
    await lab.gate.decide(lab.pending()[0].id, "approve", by="ann", channel="cli")
    assert (await lab.until(run_id, "completed")).outcome == "completed"


async def test_history_is_the_sessions_and_goes_on_in_the_next_run(lab: Any) -> None:
    lab.script(calls("a"))
    first = await lab.turn()
    assert first.value["outcome"] == "tool_request"
    lab.script(DONE)
    refused = await lab.turn()
    assert (refused.code, "`a`" in refused.message) == ("INVALID_INPUT", True)
    result = {"type": "tool_result", "tool_use_id": "a", "content": "1"}
    answered = await lab.turn(messages=[{"role": "user", "content": [result]}])
    assert answered.value["outcome"] == "completed"


async def test_a_foreground_run_whose_reader_is_gone_ends_as_client_disconnect(
    lab: Any, hanging: Callable[..., Any]
) -> None:
    slow = hanging()
    lab.tool("note", slow)
    lab.script(calls("a"), DONE)
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: lab.turn(loop=True))
        with anyio.fail_after(5):
            await slow.started.wait()
        group.cancel_scope.cancel()
    row = lab.row(lab.run_ids()[0])
    assert (row.status, row.outcome) == ("aborted", "client_disconnect")
    assert (await lab.events(row.id)).count("run.aborted") == 1
    assert [call.status for call in lab.calls(row.id)] == ["unknown"]


async def test_a_run_is_paused_by_another_client_and_goes_on_where_it_stood(
    lab: Any, person: Callable[..., Any], hanging: Callable[..., Any]
) -> None:
    slow, results = hanging(), []
    lab.tool("note", slow)
    lab.script(calls("a", "b"), DONE)

    async def foreground() -> None:
        results.append(await lab.turn(loop=True))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(foreground)
            await slow.started.wait()
            run_id = lab.run_ids()[0]
            paused = await lab.call("pause_turn", {"run_id": run_id}, client="other", asker=person())
            assert paused.value["status"] == "running"
            slow.go_on.set()
    assert results[0].value["outcome"] == "paused"
    assert (lab.row(run_id).status, slow.times) == ("paused", 1)
    resumed = await lab.call("resume_workflow", {"run_id": run_id}, client="other")
    assert (resumed.value["outcome"], slow.times) == ("completed", 2)


async def test_a_pause_needs_a_persons_approval(lab: Any, person: Callable[..., Any]) -> None:
    denied = await lab.call("pause_turn", {"run_id": "run_x"}, asker=person("deny"))
    assert denied.code == "APPROVAL_DENIED"
    unasked = await lab.call("abort_turn", {"run_id": "run_x"})
    assert unasked.code == "APPROVAL_REQUIRED"


async def test_an_abort_by_another_client_ends_a_run_in_the_middle_of_a_tool(
    lab: Any, person: Callable[..., Any], hanging: Callable[..., Any]
) -> None:
    slow = hanging()
    lab.tool("note", slow)
    lab.script(calls("a", "b"), DONE)
    run_id = await lab.background()
    with anyio.fail_after(5):
        await slow.started.wait()
    with anyio.fail_after(1):
        aborted = await lab.call(
            "abort_turn", {"run_id": run_id, "reason": "enough"}, client="other", asker=person()
        )
    assert (aborted.value["status"], aborted.value["reason"]) == ("aborted", "enough")
    assert (await lab.events(run_id)).count("run.aborted") == 1
    lab.script(DONE)
    after = await lab.turn()
    assert after.value["outcome"] == "completed"


async def test_a_person_ends_a_paused_run_at_once(lab: Any, hanging: Callable[..., Any]) -> None:
    slow = hanging()
    lab.tool("note", slow)
    lab.script(calls("a"), DONE)
    run_id = await lab.background()
    await lab.runs.pause_by_person(run_id, by="ann")
    slow.go_on.set()
    await lab.until(run_id, "paused")
    view = await lab.runs.abort_by_person(run_id, by="ann", reason="no more")
    assert (view.status, view.outcome) == ("aborted", "cancelled")
    with pytest.raises(PackhostError) as caught:
        await lab.runs.abort_by_person(run_id, by="ann")
    assert caught.value.code == "RESUME_STATE_CHANGED"


@pytest.mark.parametrize("agent_first", [True, False])
async def test_a_run_that_a_person_paused_goes_on_only_by_a_persons_word(
    lab: Any, person: Callable[..., Any], hanging: Callable[..., Any], agent_first: bool
) -> None:
    slow = hanging()
    lab.tool("note", slow)
    lab.script(calls("a"), DONE)
    run_id = await lab.background()
    if agent_first:
        await lab.call("pause_turn", {"run_id": run_id}, asker=person())
    await lab.runs.pause_by_person(run_id, by="ann", reason="wait")
    slow.go_on.set()
    await lab.until(run_id, "paused")
    refused = await lab.call("resume_workflow", {"run_id": run_id}, asker=person())
    assert (refused.code, lab.row(run_id).status) == ("APPROVAL_REQUIRED", "paused")
    await lab.runs.resume_by_person(run_id, by="ann")
    assert (await lab.until(run_id, "completed")).outcome == "completed"


async def test_of_two_resumptions_one_wins(lab: Any, hanging: Callable[..., Any]) -> None:
    slow = hanging()
    lab.tool("note", slow)
    lab.script(calls("a", "b"), DONE)
    run_id = await lab.background()
    await lab.runs.pause_by_person(run_id, by="ann")
    slow.go_on.set()
    await lab.until(run_id, "paused")
    slow.go_on = anyio.Event()
    codes: list[str] = []

    async def resume() -> None:
        try:
            await lab.runs.resume_by_person(run_id, by="ann")
        except PackhostError as error:
            codes.append(error.code)

    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(resume)
    assert codes == ["CONTINUATION_IN_PROGRESS"] * 4
    slow.go_on.set()
    await lab.until(run_id, "completed")
    with pytest.raises(PackhostError) as late:
        await lab.runs.resume_by_person(run_id, by="ann")
    assert late.value.code == "RESUME_STATE_CHANGED"
    ended = await lab.call("resume_workflow", {"run_id": run_id})
    assert (ended.value["outcome"], ended.value["text"]) == ("completed", "done")
    assert slow.times == 2


async def test_an_abort_that_another_process_asked_for_is_taken_at_the_next_safe_point(
    lab: Any, hanging: Callable[..., Any]
) -> None:
    slow = hanging()
    lab.tool("note", slow)
    lab.script(calls("a", "b"), DONE)
    run_id = await lab.background()
    with anyio.fail_after(5):
        await slow.started.wait()
    await lab.store.write(ops.abort, run_id, "person:ann", "from elsewhere")
    slow.go_on.set()
    row = await lab.until(run_id, "aborted")
    assert (row.outcome, row.reason, slow.times) == ("cancelled", "from elsewhere", 1)


async def test_a_run_that_lives_on_keeps_its_lease(lab: Any, hanging: Callable[..., Any]) -> None:
    slow = hanging()
    lab.tool("note", slow)
    lab.script(calls("a"), DONE)
    run_id = await lab.background()
    until = lab.row(run_id).lease_until
    with anyio.fail_after(5):
        while lab.row(run_id).lease_until <= until:
            await anyio.lowlevel.checkpoint()
    assert lab.row(run_id).status == "running"


async def test_a_single_call_is_no_run_to_steer(lab: Any, person: Callable[..., Any]) -> None:
    made = await lab.call("lab:look")
    await lab.store.flush()
    codes = [
        (await lab.call(tool, {"run_id": made.run_id}, asker=person())).code
        for tool in ("pause_turn", "resume_workflow", "abort_turn")
    ]
    assert codes == ["RESUME_STATE_CHANGED"] * 3


async def test_an_unknown_run_and_another_principals_are_not_found(lab: Any) -> None:
    lab.script(DONE)
    outcome = await lab.turn()
    asked = {"run_id": outcome.value["run_id"]}
    theirs = await lab.call("resume_workflow", asked, principal="eve", client="eves")
    unknown = await lab.call("resume_workflow", {"run_id": "run_nope"})
    assert (theirs.code, unknown.code) == ("NOT_FOUND", "NOT_FOUND")


async def test_a_session_holds_one_run_of_turns_at_a_time(lab: Any, hanging: Callable[..., Any]) -> None:
    slow = hanging()
    lab.tool("note", slow)
    lab.script(calls("a"), DONE)
    run_id = await lab.background()
    busy = await lab.turn()
    assert busy.code == "CONTINUATION_IN_PROGRESS"
    assert f"`{run_id}`" in busy.message
    lab.script(DONE)
    elsewhere = await lab.turn(session_id="other")
    assert (elsewhere.value["outcome"], elsewhere.value["session_id"]) == ("completed", "other")


async def test_autonomy_taken_back_in_the_middle_of_a_run_holds_for_its_next_call(
    lab: Any, hanging: Callable[..., Any], person: Callable[..., Any]
) -> None:
    slow = hanging()
    lab.tool("note", slow)
    lab.script(calls("a"), calls("b"), DONE)
    run_id = await lab.background()
    with anyio.fail_after(5):
        await slow.started.wait()
    lowered = await lab.call("lower_autonomy", {"level": "observe"})
    assert lowered.value["level"] == "observe"
    slow.go_on.set()
    await lab.until(run_id, "completed")
    assert [call.tool_use_id for call in lab.calls(run_id)] == ["a"]
    assert "call.refused" in await lab.events(run_id)


async def test_autonomy_given_in_the_middle_of_a_run_holds_for_its_next_call(
    lab: Any, hanging: Callable[..., Any], person: Callable[..., Any]
) -> None:
    slow = hanging()
    lab.tool("look", slow, permission="read")
    lab.script(calls("a", tool="lab_look"), calls("b"), DONE)
    await lab.call("lower_autonomy", {"level": "observe"})
    run_id = await lab.background()
    with anyio.fail_after(5):
        await slow.started.wait()
    raised = await lab.call("elevate_autonomy", {"level": "guarded", "reason": "trust"}, asker=person())
    assert raised.value["level"] == "guarded"
    slow.go_on.set()
    await lab.until(run_id, "completed")
    assert [call.tool_use_id for call in lab.calls(run_id)] == ["a", "b"]


async def test_a_session_that_a_client_opened_can_be_lowered_from_its_own(lab: Any) -> None:
    lab.script(DONE)
    await lab.turn(session_id="work")
    lowered = await lab.call("lower_autonomy", {"session_id": "work", "level": "supervised"})
    assert lowered.value == {"session_id": "work", "level": "supervised", "expires_at": None}


async def test_a_call_inside_a_foreground_run_is_asked_through_the_waiting_client(
    lab: Any, person: Callable[..., Any]
) -> None:
    lab.rule("ask", "lab:note")
    lab.script(calls("a"), DONE)
    ann = person()
    outcome = await lab.turn(loop=True, asker=ann)
    assert outcome.value["outcome"] == "completed"
    assert [(prompt.tool, prompt.nested) for prompt in ann.shown] == [("lab:note", True)]


async def test_a_call_inside_a_background_run_waits_for_a_decision_from_elsewhere(lab: Any) -> None:
    lab.rule("ask", "lab:note")
    lab.script(calls("a"), DONE)
    run_id = await lab.background()
    row = await lab.when(run_id, lambda row: row.waiting_on is not None)
    (asked,) = lab.pending()
    assert row.waiting_on == f"approval:{asked.id}"
    await lab.gate.decide(asked.id, "approve", by="ann", channel="cli")
    row = await lab.until(run_id, "completed")
    assert row.waiting_on is None
    assert [call.status for call in lab.calls(run_id)] == ["ok"]


async def test_an_approval_of_a_run_is_put_to_the_person_of_its_own_client(
    lab: Any, person: Callable[..., Any]
) -> None:
    lab.rule("ask", "lab:note")
    lab.script(calls("a"), DONE)
    run_id = await lab.background()
    await lab.when(run_id, lambda row: row.waiting_on is not None)
    asked = {"approval_id": lab.pending()[0].id, "decision": "deny"}
    assert (await lab.call("approve_inflight", asked)).code == "APPROVAL_REQUIRED"
    assert (await lab.call("approve_inflight", asked, client="other", asker=person())).code == "NOT_FOUND"
    decided = await lab.call("approve_inflight", asked, asker=person("approve"))
    assert decided.value["status"] == "approved"
    await lab.until(run_id, "completed")
    assert [call.status for call in lab.calls(run_id)] == ["ok"]


async def test_a_run_that_its_host_left_is_interrupted_and_resumed_without_running_a_call_twice(
    building: Any, hanging: Callable[..., Any]
) -> None:
    slow = hanging()
    script = (calls("a", "b"), DONE)
    async with building.host("host_a") as first:
        first.tool("note", slow)
        first.script(*script)
        run_id = await first.background()
        with anyio.fail_after(5):
            await slow.started.wait()
    async with building.host("host_b") as second:
        second.script(*script)
        assert second.row(run_id).status == "interrupted"
        await second.runs.resume_by_person(run_id, by="ann")
        row = await second.until(run_id, "completed")
        assert (row.epoch, slow.times) == (3, 1)
        made = [(call.tool_use_id, call.status) for call in second.calls(run_id)]
        assert made == [("a", "unknown")]
        (asked, answer) = [row.message for row in _history(second, row.session_id)][1:3]
        assert [block["id"] for block in asked["content"]] == ["a", "b"]
        assert [block["content"].partition(":")[0] for block in answer["content"]] == [
            "EFFECTS_UNKNOWN",
            "NOT_EXECUTED",
        ]


async def test_a_call_that_may_be_repeated_is_made_again_after_an_interruption(
    building: Any, hanging: Callable[..., Any]
) -> None:
    slow = hanging()
    async with building.host("host_a") as first:
        first.tool("note", slow, idempotent=True)
        first.script(calls("a"), DONE)
        run_id = await first.background()
        with anyio.fail_after(5):
            await slow.started.wait()
    async with building.host("host_b") as second:
        second.tool("note", idempotent=True)
        second.script(calls("a"), DONE)
        outcome = await second.call("resume_workflow", {"run_id": run_id})
        assert outcome.value["outcome"] == "running"
        await second.until(run_id, "completed")
        assert [call.status for call in second.calls(run_id)][-1] == "ok"


@pytest.mark.parametrize(("then", "now"), [(True, False), (False, True)])
async def test_a_call_is_made_again_only_if_it_might_be_repeated_when_it_started_and_still_may(
    building: Any, hanging: Callable[..., Any], then: bool, now: bool
) -> None:
    slow, again = hanging(), hanging()
    again.go_on.set()
    async with building.host("host_a") as first:
        first.tool("note", slow, idempotent=then)
        first.script(calls("a"), DONE)
        run_id = await first.background()
        with anyio.fail_after(5):
            await slow.started.wait()
    async with building.host("host_b") as second:
        second.tool("note", again, idempotent=now)
        second.script(calls("a"), DONE)
        await second.runs.resume_by_person(run_id, by="ann")
        row = await second.until(run_id, "completed")
        assert (slow.times, again.times) == (1, 0)
        answer = _history(second, row.session_id)[2].message["content"][0]
        assert answer["content"].startswith("EFFECTS_UNKNOWN")
        assert answer["is_error"]


async def test_a_host_that_stops_leaves_its_runs_to_the_next(
    building: Any, hanging: Callable[..., Any]
) -> None:
    slow = hanging()
    async with building.host("host_a") as first:
        first.tool("note", slow)
        first.script(calls("a"), DONE)
        run_id = await first.background()
        with anyio.fail_after(5):
            await slow.started.wait()
            await first.runs.shut_down()
        assert first.row(run_id).status == "running"
    async with building.host("host_b") as second:
        assert second.row(run_id).status == "interrupted"


async def test_without_a_model_the_call_says_how_to_set_one_up(lab: Any) -> None:
    outcome = await lab.turn()
    assert outcome.code == "MODEL_NOT_CONFIGURED"
    assert "default_model: main" in outcome.hint
    assert lab.run_ids() == []


async def test_an_intent_catalog_is_ignored(lab: Any) -> None:
    lab.script(DONE)
    outcome = await lab.turn(intent_catalog={"run": "lab_note"}, stream=False)
    assert outcome.value["outcome"] == "completed"


async def test_a_script_file_lies_under_agent_runtime_and_nowhere_else(lab: Any, building: Any) -> None:
    (building.root / ".agent-runtime" / "demo.yaml").write_text("- {text: from a file}\n")
    (building.root / "demo.yaml").write_text("- {text: from outside}\n")
    lab.script(script=".agent-runtime/demo.yaml")
    inside = await lab.turn()
    lab.script(script="demo.yaml")
    outside = await lab.turn()
    assert (inside.value["text"], outside.code) == ("from a file", "SCOPE_DENIED")


def _starter(lab: Any, driver: str) -> Any:
    async def start(context: CallContext, arguments: dict[str, Any]) -> Any:
        return await lab.runs.start(driver, {}, context=context, session_id=None, background=True)

    return start


def _history(lab: Any, session_id: str) -> Any:
    return lab.store.read(sessions.history, session_id)


def test_half_a_character_in_a_request_can_be_written_down_and_comes_back() -> None:
    text = Request({"messages": [{"content": "\ud800"}]}).as_text()
    assert text.encode()
    assert json.loads(text)["spec"] == {"messages": [{"content": "\ud800"}]}
