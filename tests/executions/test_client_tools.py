"""Tools that the caller of a run runs itself: the run waits for their outputs, and loses none of them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

import packhost_packs.agent_runtime
from packhost.control.base import Parts
from packhost.control.evidence import evidence_of, runs_trace
from packhost.errors import PackhostError
from packhost.executions.answers import Resumption, checkpoint_of, resume
from packhost.hookspecs import build_plugins
from packhost.store.ops import events, executions, sessions
from packhost.trace import check

pytestmark = pytest.mark.anyio
(WRITERS,) = build_plugins([packhost_packs.agent_runtime]).hook.packhost_trace_writers()


def tool(name: str, **more: Any) -> dict[str, Any]:
    """A definition of a client tool that takes a number."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    said = {"name": name, "description": name, "parameters_schema": schema, "origin": "sdk"}
    return {**said, **more}


def asks(*calls: tuple[str, str]) -> dict[str, Any]:
    """A reply that asks for calls, given as ids and tools."""
    return {
        "tool_calls": [
            {"id": identity, "name": name, "arguments": {"n": number}}
            for number, (identity, name) in enumerate(calls)
        ]
    }


DONE = {"text": "done"}


@pytest.fixture
def proof(lab: Any) -> Callable[[str], Any]:
    """What the record proves of a run."""
    nothing: Any = SimpleNamespace()
    parts = Parts(nothing, lab.store, lab.gate, lab.runs, lab.configuration, nothing, "ann", WRITERS)
    return lambda run_id: evidence_of(parts, lab.row(run_id))


@pytest.fixture
def client(lab: Any) -> Callable[..., Any]:
    """Starts a run with the client tools `one` and `two`, and resumes it."""

    class Client:
        run_id = ""

        async def start(self, *script: Any, **arguments: Any) -> Any:
            lab.script(*script)
            arguments = {"client_tools": [tool("one"), tool("two")], **arguments}
            outcome = await lab.turn(loop=True, **arguments)
            self.run_id = outcome.value["run_id"] if hasattr(outcome, "value") else ""
            return outcome

        async def send(self, _checkpoint: str | None = None, **results: Any) -> Any:
            outputs = {
                name: result if isinstance(result, dict) else {"result": result}
                for name, result in results.items()
            }
            named = {} if _checkpoint is None else {"checkpoint": _checkpoint}
            asked = {"run_id": self.run_id, "tool_outputs": outputs, **named}
            with anyio.fail_after(5):
                return await lab.call("resume_workflow", asked)

        def results(self) -> list[tuple[str, bool, str]]:
            row = lab.row(self.run_id)
            history = [kept.message for kept in lab.store.read(sessions.history, row.session_id)]
            return [
                (block["tool_use_id"], block["is_error"], block["content"])
                for message in history
                for block in message["content"]
                if block["type"] == "tool_result"
            ]

        async def told(self, type: str) -> list[Any]:
            await lab.store.flush()
            page = lab.store.read(events.page, 0, self.run_id, 1000)
            return [json.loads(record.data) for record in page if record.type == type]

    return Client()


def waiting(outcome: Any) -> list[str]:
    return [call["tool_call_id"] for call in outcome.value.get("awaits", [])]


async def test_a_run_pauses_for_a_client_tool_and_goes_on_with_what_came_of_it(client: Any) -> None:
    outcome = await client.start(asks(("a", "one")), DONE)
    value = outcome.value
    assert (value["outcome"], value["waiting_on"]) == ("paused", "client:a")
    (call,) = value["awaits"]
    assert call.pop("awaited_at").endswith("+00:00")
    assert call == {"tool_call_id": "a", "tool_name": "one", "parameters": {"n": 0}, "origin": "sdk"}
    outcome = await client.send(a={"result": {"found": [1]}})
    assert (outcome.value["outcome"], outcome.value["text"]) == ("completed", "done")
    assert "awaits" not in outcome.value
    assert client.results() == [("a", False, '{"found":[1]}')]
    (told,) = await client.told("call.awaited")
    assert (told["tool_call_id"], told["checkpoint"]) == ("a", value["checkpoint"])


async def test_answers_of_a_batch_are_kept_until_all_are_there_and_the_model_is_asked_nothing(
    client: Any, lab: Any
) -> None:
    await client.start(asks(("a", "one"), ("b", "one"), ("c", "two")), DONE)
    outcome = await client.send(b="B")
    assert (outcome.value["outcome"], waiting(outcome)) == ("paused", ["a", "c"])
    assert lab.row(client.run_id).epoch == 1
    assert len(await client.told("turn.started")) == 1
    assert [one["tool_call_id"] for one in await client.told("call.awaited")] == ["a", "b", "c", "a", "c"]
    outcome = await client.send(a="A")
    assert waiting(outcome) == ["c"]
    assert (await client.send(two="C")).value["outcome"] == "completed"
    assert client.results() == [("a", False, "A"), ("b", False, "B"), ("c", False, "C")]
    assert len(await client.told("call.answered")) == 3


async def test_an_answer_may_be_sent_again_but_not_changed(client: Any) -> None:
    await client.start(asks(("a", "one"), ("b", "one")), DONE)
    await client.send(a="A")
    assert waiting(await client.send(a="A")) == ["b"]
    refused = await client.send(a="other", b="B")
    assert refused.code == "RESUME_STATE_CHANGED"
    assert (await client.send(b="B")).value["outcome"] == "completed"
    assert client.results() == [("a", False, "A"), ("b", False, "B")]
    assert len(await client.told("call.answered")) == 2


async def test_an_output_for_an_unknown_call_is_refused_by_name_and_nothing_of_it_is_kept(
    client: Any,
) -> None:
    await client.start(asks(("a", "one"), ("b", "one")), DONE)
    await client.send(a="A")
    for name in ("z", "one"):  # two calls have this name
        refused = await client.send(**{"b": "B", name: "Z"})
        assert refused.code == "INVALID_INPUT"
        assert f"`{name}`" in refused.message
        assert refused.hint == "it waits for `b`"
    assert waiting(await client.send(a="A")) == ["b"]


async def test_a_pause_that_is_over_takes_no_answers(client: Any) -> None:
    first = await client.start(asks(("a", "one")), asks(("b", "one")), DONE)
    second = await client.send(_checkpoint=first.value["checkpoint"], a="A")
    assert waiting(second) == ["b"]
    assert second.value["checkpoint"] != first.value["checkpoint"]
    for refused in (
        await client.send(_checkpoint=first.value["checkpoint"], b="B"),
        await client.send(a="A"),
        await client.send(_checkpoint=first.value["checkpoint"], a="A"),
    ):
        assert refused.code == "RESUME_STATE_CHANGED"
    assert (await client.send(_checkpoint=second.value["checkpoint"], b="B")).value["outcome"] == "completed"
    ended = await client.send(_checkpoint=second.value["checkpoint"], b="B")
    assert ended.code == "NOT_FOUND"
    assert client.results() == [("a", False, "A"), ("b", False, "B")]


async def test_without_outputs_a_run_that_waits_for_its_client_stays_where_it_is(
    client: Any, lab: Any
) -> None:
    first = await client.start(asks(("a", "one")), DONE)
    again = await lab.call("resume_workflow", {"run_id": client.run_id})
    assert (again.value["outcome"], waiting(again)) == ("paused", ["a"])
    assert again.value["checkpoint"] == first.value["checkpoint"]
    assert lab.row(client.run_id).epoch == 1


async def test_while_a_resumption_goes_on_another_is_told_so(client: Any, lab: Any, hanging: Any) -> None:
    tool_of_host = hanging()
    lab.tool("hang", tool_of_host)
    first = await client.start(asks(("a", "one"), ("b", "lab_hang")), DONE)
    checkpoint = first.value["checkpoint"]
    async with anyio.create_task_group() as group:

        async def resume() -> None:
            assert (await client.send(_checkpoint=checkpoint, a="A")).value["outcome"] == "completed"

        group.start_soon(resume)
        with anyio.fail_after(5):
            await tool_of_host.started.wait()
        loser = await client.send(a="A")
        assert loser.code == "CONTINUATION_IN_PROGRESS"
        late = await client.send(_checkpoint=checkpoint, a="A")
        assert late.code in ("CONTINUATION_IN_PROGRESS", "RESUME_STATE_CHANGED")
        tool_of_host.go_on.set()
    assert tool_of_host.times == 1


async def test_calls_keep_their_order_around_those_of_the_client(client: Any, lab: Any) -> None:
    outcome = await client.start(
        asks(("a", "lab_note"), ("b", "one"), ("c", "two"), ("d", "lab_note"), ("e", "one")), DONE
    )
    assert waiting(outcome) == ["b", "c"]
    assert [call.tool_use_id for call in lab.calls(client.run_id)] == ["a"]
    outcome = await client.send(b="B", c="C")
    assert waiting(outcome) == ["e"]
    assert [call.tool_use_id for call in lab.calls(client.run_id)] == ["a", "d"]
    assert (await client.send(e="E")).value["outcome"] == "completed"
    assert [identity for identity, _, _ in client.results()] == ["a", "b", "c", "d", "e"]


async def test_a_call_that_failed_at_the_client_ends_its_batch(client: Any, lab: Any) -> None:
    await client.start(asks(("a", "one"), ("b", "two"), ("c", "lab_note")), DONE)
    await client.send(a={"result": "it broke", "is_error": True}, b="B")
    (a, b, c) = client.results()
    assert (a, b) == (("a", True, "it broke"), ("b", False, "B"))
    assert (c[1], c[2].partition(":")[0]) == (True, "NOT_EXECUTED")
    assert lab.calls(client.run_id) == ()


async def test_arguments_that_do_not_fit_never_reach_the_client(client: Any) -> None:
    bad = {"tool_calls": [{"id": "a", "name": "one", "arguments": {"n": "x"}}]}
    assert (await client.start(bad, DONE)).value["outcome"] == "completed"
    ((identity, is_error, text),) = client.results()
    assert (identity, is_error, text.partition(":")[0]) == ("a", True, "INVALID_INPUT")


async def test_a_page_s_output_is_between_marks_that_stay_the_same(client: Any, lab: Any) -> None:
    tools = [tool("one", origin="webmcp"), tool("two", untrusted_content_hint=True)]
    await client.start(asks(("a", "one"), ("b", "two")), DONE, client_tools=tools)
    await client.send(a="A", b="B")
    first = client.results()
    assert all(text.startswith("<UNTRUSTED_TOOL_OUTPUT ") for _, _, text in first)
    await lab.turn(loop=True, session_id=lab.row(client.run_id).session_id)
    assert client.results() == first


async def test_a_client_tool_takes_the_place_of_any_other_of_its_name(client: Any, lab: Any) -> None:
    outcome = await client.start(asks(("a", "lab_note")), DONE, client_tools=[tool("lab_note")])
    assert waiting(outcome) == ["a"]
    assert lab.calls(client.run_id) == ()


async def test_a_run_that_waits_for_its_client_can_be_ended(client: Any, lab: Any) -> None:
    await client.start(asks(("a", "one"), ("b", "one")), DONE)
    await client.send(a="A")
    await lab.runs.abort_by_person(client.run_id, by="ann")
    assert (await client.send(b="B")).code == "NOT_FOUND"


async def test_a_persons_pause_holds_also_for_whoever_sends_outputs(client: Any, lab: Any) -> None:
    await client.start(asks(("a", "one")), DONE)
    await lab.runs.pause_by_person(client.run_id, by="ann")
    assert (await client.send(a="A")).code == "APPROVAL_REQUIRED"
    view = await lab.runs.resume_by_person(client.run_id, by="ann")
    assert (view.status, view.waiting_on) == ("paused", "client:a")
    assert (await client.send(a="A")).value["outcome"] == "completed"


async def test_a_resumption_that_dies_before_it_got_on_can_be_made_again(building: Any, hanging: Any) -> None:
    async with building.host("host_a") as lab:
        lab.script(asks(("a", "one"), ("b", "one")), DONE)
        outcome = await lab.turn(loop=True, client_tools=[tool("one")])
        run_id, checkpoint = outcome.value["run_id"], outcome.value["checkpoint"]
        sent = {"a": {"result": "A"}}
        await lab.call("resume_workflow", {"run_id": run_id, "tool_outputs": sent})
    async with building.host("host_b") as lab:
        lab.script(asks(("a", "one"), ("b", "one")), DONE)
        row = lab.row(run_id)
        assert (row.status, checkpoint_of(row.state_json)) == ("paused", checkpoint)
        # this host claims the run and dies before it has done anything
        await lab.store.write(executions.claim, run_id, lab.owner, 60.0, row.epoch)
    async with building.host("host_c") as lab:
        lab.script(asks(("a", "one"), ("b", "one")), DONE)
        assert lab.row(run_id).status == "interrupted"
        sent = {"b": {"result": "B"}}
        asked = {"run_id": run_id, "tool_outputs": sent, "checkpoint": checkpoint}
        with anyio.fail_after(5):
            outcome = await lab.call("resume_workflow", asked)
        assert outcome.value["outcome"] == "completed"


async def test_a_trace_holds_the_callers_tools_to_their_schema_and_their_marks(client: Any, lab: Any) -> None:
    tools = [tool("one", origin="webmcp"), tool("two")]
    await client.start(asks(("a", "one"), ("b", "two")), DONE, client_tools=tools)
    await client.send(a="A", b="B")
    nothing: Any = SimpleNamespace()
    parts = Parts(nothing, lab.store, lab.gate, lab.runs, lab.configuration, nothing, "ann", WRITERS)
    trace = await runs_trace(parts, {"id": client.run_id, "node": ""})
    shown = {one["name"]: one for one in trace["tools"] if one["name"] in ("one", "two")}
    assert shown["one"]["input_schema"] == tools[0]["parameters_schema"]
    assert [shown[name]["untrusted_output"] for name in ("one", "two")] == [True, False]
    assert list(check(trace).issues) == []
    bare = json.loads(json.dumps(trace).replace("UNTRUSTED_TOOL_OUTPUT", "OUTPUT"))
    assert "UNTRUSTED_UNWRAPPED" in check(bare).codes


async def test_evidence_says_which_calls_were_made_by_the_caller_and_which_still_wait(
    client: Any, lab: Any, proof: Callable[[str], Any]
) -> None:
    await client.start(asks(("a", "one"), ("b", "one")), DONE)
    await client.send(a="A")
    shown = {line["tool_use_id"]: line["outcome"] for line in proof(client.run_id)["correlation"]}
    assert shown == {"a": "made by its caller", "b": "waits for its caller"}


async def test_secrets_in_an_output_are_kept_from_the_record(client: Any, lab: Any) -> None:
    lab.secrets["KEY"] = "sk-very-secret"
    await client.start(asks(("a", "one"), ("b", "one")), DONE)
    await client.send(a={"result": {"seen": "sk-very-secret"}})
    assert "sk-very-secret" not in (lab.row(client.run_id).state_json or "")
    await client.send(b="B")
    assert client.results()[0] == ("a", False, '{"seen":"[REDACTED]"}')


async def test_nodes_of_a_workflow_wait_for_the_client_each_for_itself(client: Any, lab: Any) -> None:
    nodes = [{"id": "n", "prompt": "go"}, {"id": "m", "prompt": "go"}]
    lab.script(asks(("a", "one")), DONE)
    outcome = await lab.call("execute-turn", {"workflow": {"nodes": nodes}, "client_tools": [tool("one")]})
    client.run_id = outcome.value["run_id"]
    assert sorted(waiting(outcome)) == ["m/a", "n/a"]
    outcome = await client.send(**{"n/a": "N"})
    assert (outcome.value["outcome"], waiting(outcome)) == ("paused", ["m/a"])
    outcome = await client.send(**{"m/a": "M"})
    assert outcome.value["outcome"] == "completed"


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"name": "1st"}, "name"),
        ({"name": "n" * 65}, "name"),
        ({"name": "packhost_x"}, "name"),
        ({"name": "Tool-Search"}, "name"),
        ({"name": ""}, "name"),
        ({"description": "d" * 2049}, "description"),
        ({"origin": "page"}, "origin"),
        ({"config": {}}, "config"),
        ({"untrusted_content_hint": 1}, "untrusted_content_hint"),
        ({"parameters_schema": {"type": "array"}}, "parameters_schema"),
        ({"parameters_schema": {"type": "object", "title": "t" * 2049}}, "parameters_schema"),
        ({"parameters_schema": {"type": "object", "properties": 3}}, "parameters_schema"),
    ],
)
async def test_a_definition_that_could_not_run_is_refused_before_anything_runs(
    client: Any, lab: Any, change: Any, place: str
) -> None:
    refused = await client.start(DONE, client_tools=[tool("first"), {**tool("one"), **change}])
    assert (refused.code, refused.data.get("path")) == ("INVALID_INPUT", f"/client_tools/1/{place}")
    assert lab.run_ids() == []


async def test_definitions_are_unique_bounded_and_may_be_spelled_in_camel_case(client: Any, lab: Any) -> None:
    assert (await client.start(DONE, client_tools=[tool("one"), tool("one")])).code == "INVALID_INPUT"
    many = [tool(f"t{number}", description="d" * 2000) for number in range(140)]
    assert (await client.start(DONE, client_tools=many)).code == "INVALID_INPUT"
    camel = tool("one")
    camel["parametersSchema"] = camel.pop("parameters_schema")
    assert waiting(await client.start(asks(("a", "one")), DONE, client_tools=[camel])) == ["a"]


async def test_no_pause_of_a_persons_is_passed_by_an_instant(client: Any, lab: Any) -> None:
    """Whoever looked before the person did resumes nothing after."""
    await client.start(asks(("a", "one")), DONE)
    before = lab.row(client.run_id)
    await lab.runs.pause_by_person(client.run_id, by="ann")
    for by, passes in (("call_of_an_agent", False), ("person:ann", True)):
        wanted = Resumption(by, before.epoch, answers={"a": {"text": "A", "is_error": False}})
        with contextlib.nullcontext() if passes else pytest.raises(PackhostError, match="a person paused"):
            await lab.store.write(resume, client.run_id, "host_test", 60.0, wanted)
        if not passes:
            assert lab.row(client.run_id).state_json == before.state_json
