"""Tools that ask a person for fields before they are called: who gives what, in which order, and to whom."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

from packhost.errors import Conflict, InvalidInput
from packhost.gate import Answer, Caller, CallRequest, Completed, Prompt, Refusal
from packhost.server.afar import Afar
from packhost.store.ops import questions

pytestmark = pytest.mark.anyio

DONE = {"text": "done"}
SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["flight", "seat"],
    "properties": {
        "flight": {"type": "string", "maxLength": 8},
        "seat": {"type": "string", "enum": ["aisle", "window"]},
        "bags": {"type": "integer", "minimum": 0, "maximum": 3},
    },
}
ELICIT = {
    "message": "Which seat?",
    "requestedSchema": {
        "type": "object",
        "additionalProperties": False,
        "required": ["seat"],
        "properties": {"seat": SCHEMA["properties"]["seat"], "bags": SCHEMA["properties"]["bags"]},
    },
    "merge": "parameters",
}
CODE = "[flight, seat, bags]"
FLIGHT = "LH 1"
NEVER = (
    ({"seat": "aisle", "bags": "1"}, "a text is no number"),
    ({"seat": "roof"}, "not one of the texts"),
    ({"bags": 1}, "a needed field is missing"),
    ({"seat": "aisle", "flight": "XX 9"}, "the agent's own parameter"),
    ({"seat": "aisle", "bags": True}, "a truth is no number"),
    ({"seat": None}, "nothing is no text"),
    ({"seat": "aisle", "bags": 1.5}, "no whole number"),
)


def booking(**more: Any) -> dict[str, Any]:
    config = {"code": CODE, "elicit": ELICIT, **more.pop("config", {})}
    return {
        "name": "book",
        "description": "Book a seat.",
        "toolType": "custom",
        "parametersSchema": SCHEMA,
        "config": config,
        **more,
    }


def asks(*ids: str, name: str = "book", **arguments: Any) -> dict[str, Any]:
    given = arguments or {"flight": FLIGHT}
    return {"tool_calls": [{"id": one, "name": name, "arguments": given} for one in ids]}


class Person:
    """A person at a dialog: fills in each form as told, and approves what is to be approved."""

    def __init__(self, *contents: Any, verdict: Any = "approve") -> None:
        self.contents = list(contents)
        self.verdict = verdict
        self.shown: list[Prompt] = []

    async def ask(self, prompt: Prompt) -> Answer:
        self.shown.append(prompt)
        if prompt.form is None:
            return Answer(self.verdict, by="ann", channel="client")
        content = self.contents.pop(0)
        if isinstance(content, str):
            return Answer("deny", by="ann", channel="client", reason=content)
        return Answer("approve", by="ann", channel="client", content=content)


def results(lab: Any, run_id: str) -> list[Any]:
    return [json.loads(call.result_json) for call in lab.calls(run_id)]


async def run(lab: Any, person: Any, *replies: Any, **more: Any) -> Any:
    lab.script(*(replies or (asks("a"), DONE)))
    outcome = await lab.turn(loop=True, runtime_tools=[booking()], asker=person, **more)
    assert isinstance(outcome, Completed), outcome
    return outcome.value


async def said(lab: Any, session: str, id: str) -> str:
    """What the model was told of a call."""
    from packhost.store.ops import sessions

    for row in lab.store.read(sessions.history, session):
        for block in row.message["content"]:
            if block["type"] == "tool_result" and block["tool_use_id"] == id:
                return str(block["content"])
    raise AssertionError(f"no result of {id}")


async def test_what_the_person_gives_goes_to_the_tool_with_the_agents_arguments(lab: Any) -> None:
    ann = Person({"seat": "aisle", "bags": 2})
    value = await run(lab, ann)
    assert results(lab, value["run_id"]) == [[FLIGHT, "aisle", 2]]
    (prompt,) = ann.shown
    assert prompt.form == {
        "type": "object",
        "properties": ELICIT["requestedSchema"]["properties"],
        "required": ["seat"],
    }
    assert "inline:book asks for your input" in prompt.text
    assert "  | Which seat?" in prompt.text


async def test_the_model_sees_the_other_parameters_alone(lab: Any, monkeypatch: Any) -> None:
    from packhost_packs.agent_runtime.providers.scripted import ScriptedProvider

    sent: list[Any] = []
    before = ScriptedProvider.turn

    async def turn(self: Any, request: Any, **more: Any) -> Any:
        sent.extend(tool for tool in request.tools if tool.name == "book")
        return await before(self, request, **more)

    monkeypatch.setattr(ScriptedProvider, "turn", turn)
    await run(lab, Person({"seat": "aisle"}))
    assert sent[0].input_schema["properties"] == {"flight": {"type": "string", "maxLength": 8}}
    assert sent[0].input_schema["required"] == ["flight"]


@pytest.mark.parametrize(
    "arguments",
    [{"flight": FLIGHT, "seat": "aisle"}, {"flight": "far too long a name"}, {"flight": FLIGHT, "bags": 1}],
    ids=["the person's field", "a wrong one of its own", "an optional one of the person's"],
)
async def test_arguments_are_checked_before_anybody_is_asked(lab: Any, arguments: Any) -> None:
    ann = Person()
    value = await run(lab, ann, asks("a", **arguments), DONE)
    assert (ann.shown, lab.calls(value["run_id"])) == ([], ())
    assert "INVALID_INPUT" in await said(lab, value["session_id"], "a")


async def test_approval_comes_last_and_is_for_all_arguments(lab: Any) -> None:
    lab.rule("ask", "inline:book")
    ann = Person({"seat": "window"})
    value = await run(lab, ann)
    form, approval = ann.shown
    assert (form.form is not None, approval.form) == (True, None)
    assert "seat=window" in approval.text
    assert 'flight="LH 1"' in approval.text
    assert results(lab, value["run_id"]) == [[FLIGHT, "window", None]]


@pytest.mark.parametrize("how", ["decline", "cancel"])
async def test_who_gives_nothing_ends_that_very_call_and_no_other(lab: Any, how: str) -> None:
    ann = Person(how, {"seat": "aisle"})
    value = await run(lab, ann, asks("a", "b"), DONE)
    assert value["outcome"] == "completed"
    assert (await said(lab, value["session_id"], "a")).startswith("CANCELLED: the person")
    assert [call.tool_use_id for call in lab.calls(value["run_id"])] == ["b"]


@pytest.mark.parametrize(("content", "why"), NEVER, ids=[why for _, why in NEVER])
async def test_an_answer_that_does_not_fit_counts_for_nothing(lab: Any, content: Any, why: str) -> None:
    lab.script(asks("a"), DONE)
    run_id = await lab.background(runtime_tools=[booking()])
    row = await waiting(lab, run_id)
    with pytest.raises(InvalidInput, match="does not fit"):
        await lab.gate.questions.answer(row.id, "accept", content, by="ann", channel="cli")
    assert lab.store.read(questions.get, row.id).status == "pending"
    assert lab.calls(run_id) == ()
    await lab.gate.questions.answer(row.id, "accept", {"seat": "aisle"}, by="ann", channel="cli")
    await lab.until(run_id, "completed")
    assert results(lab, run_id) == [[FLIGHT, "aisle", None]]


async def waiting(lab: Any, run_id: str) -> Any:
    """The question that a run waits for."""
    found = await lab.when(run_id, lambda row: (row.waiting_on or "").startswith("question:"))
    return lab.store.read(questions.get, found.waiting_on.removeprefix("question:"))


async def test_a_run_that_nobody_attends_waits_and_says_what_for(lab: Any) -> None:
    lab.script(asks("a"), DONE)
    run_id = await lab.background(runtime_tools=[booking()])
    row = await waiting(lab, run_id)
    assert (row.tool, row.tool_use_id, row.message) == ("inline:book", "a", "Which seat?")
    told = await events_of(lab, run_id, "question.asked")
    assert told[0]["await_reason"] == "tool_elicitation"
    assert told[0]["elicitation"]["mode"] == "form"
    await lab.gate.questions.answer(row.id, "decline", None, by="ann", channel="cli")
    await lab.until(run_id, "completed")
    assert lab.calls(run_id) == ()


async def events_of(lab: Any, run_id: str, type: str) -> list[Any]:
    from packhost.store.ops import events

    await lab.store.flush()
    page = lab.store.read(events.page, 0, run_id, 1000)
    return [json.loads(record.data) for record in page if record.type == type]


async def test_the_first_answer_stands(lab: Any) -> None:
    lab.script(asks("a"), DONE)
    run_id = await lab.background(runtime_tools=[booking()])
    row = await waiting(lab, run_id)
    await lab.gate.questions.answer(row.id, "accept", {"seat": "aisle"}, by="ann", channel="cli")
    with pytest.raises(Conflict):
        await lab.gate.questions.answer(row.id, "accept", {"seat": "window"}, by="bob", channel="api")
    await lab.until(run_id, "completed")
    assert results(lab, run_id) == [[FLIGHT, "aisle", None]]


async def test_arguments_are_told_to_nobody_unless_the_tool_is_named(lab: Any) -> None:
    ann = Person({"seat": "aisle"})
    value = await run(lab, ann)
    (told,) = await events_of(lab, value["run_id"], "question.asked")
    assert "parameters" not in told
    assert FLIGHT not in ann.shown[0].text
    bob = Person({"seat": "aisle"})
    value = await run(lab, bob, asks("b"), DONE, disclose_tool_arguments={"tools": ["bo*"]})
    (told,) = await events_of(lab, value["run_id"], "question.asked")
    assert told["parameters"] == {"flight": FLIGHT}
    assert FLIGHT in bob.shown[0].text


async def test_what_the_person_gave_is_in_no_event_of_the_question(lab: Any) -> None:
    value = await run(lab, Person({"seat": "window"}))
    for type in ("question.asked", "question.accepted"):
        for told in await events_of(lab, value["run_id"], type):
            told.pop("elicitation", None)
            assert "window" not in json.dumps(told)


async def test_hidden_parameters_stay_hidden_where_arguments_are_told(lab: Any) -> None:
    schema = {**SCHEMA, "properties": {**SCHEMA["properties"], "account": {"type": "string"}}}
    tool = booking(
        parametersSchema=schema, hiddenParameterNames=["account"], config={"code": "[account, seat]"}
    )
    lab.script(asks("a"), DONE)
    ann = Person({"seat": "aisle"})
    outcome = await lab.turn(
        loop=True,
        runtime_tools=[tool],
        asker=ann,
        variables={"account": "acc-77"},
        disclose_tool_arguments={"tools": ["book"]},
    )
    assert results(lab, outcome.value["run_id"]) == [["acc-77", "aisle"]]
    (told,) = await events_of(lab, outcome.value["run_id"], "question.asked")
    assert told["parameters"]["account"] == "[REDACTED]"
    assert "acc-77" not in ann.shown[0].text


async def test_an_answer_is_used_once(lab: Any) -> None:
    ann = Person({"seat": "aisle"}, {"seat": "window"})
    value = await run(lab, ann, asks("a"), asks("b"), DONE)
    assert results(lab, value["run_id"]) == [[FLIGHT, "aisle", None], [FLIGHT, "window", None]]
    rows = lab.store.read(questions.listing, None)
    assert {row.consumed_by for row in rows} == {call.id for call in lab.calls(value["run_id"])}


async def test_a_form_that_nobody_fills_in_expires(lab: Any) -> None:
    lab.terms["timeout"] = 0.2
    lab.script(asks("a"), DONE)
    run_id = await lab.background(runtime_tools=[booking()])
    await lab.until(run_id, "completed")
    row = lab.row(run_id)
    assert "APPROVAL_EXPIRED" in await said(lab, row.session_id, "a")


async def test_ending_a_run_withdraws_its_question(lab: Any) -> None:
    lab.script(asks("a"), DONE)
    run_id = await lab.background(runtime_tools=[booking()])
    row = await waiting(lab, run_id)
    await lab.call("abort_turn", {"run_id": run_id}, asker=Person())
    await lab.until(run_id, "aborted")
    assert lab.store.read(questions.get, row.id).status == "cancelled"


async def test_what_was_given_outlives_the_host_and_is_asked_for_once(building: Any) -> None:
    async with building.host("one") as lab:
        lab.script(asks("a"), DONE)
        run_id = await lab.background(runtime_tools=[booking()])
        row = await waiting(lab, run_id)
    async with building.host("two") as lab:
        lab.script(asks("a"), DONE)
        await lab.until(run_id, "interrupted")
        await lab.gate.questions.answer(row.id, "accept", {"seat": "window"}, by="ann", channel="cli")
        await lab.call("resume_workflow", {"run_id": run_id}, asker=Person())
        await lab.until(run_id, "completed")
        assert results(lab, run_id) == [[FLIGHT, "window", None]]


# direct calls of a client


def of_pack(lab: Any, code: str = CODE) -> None:
    elicit = {"message": "Which seat?", "merge": "parameters"}
    elicit["requested_schema"] = {**ELICIT["requestedSchema"], "required": []}
    lab.pack_tool("book", "code", {"code": code, "elicit": elicit}, SCHEMA["properties"])


async def test_a_tool_of_a_pack_asks_its_clients_person(lab: Any) -> None:
    of_pack(lab)
    outcome = await lab.call("mine:book", {"flight": FLIGHT}, asker=Person({"seat": "aisle"}))
    assert outcome.value == [FLIGHT, "aisle", None]


async def test_a_client_that_can_ask_nobody_is_told_how_the_person_answers(lab: Any) -> None:
    of_pack(lab)
    refused = await lab.call("mine:book", {"flight": FLIGHT})
    assert isinstance(refused, Refusal)
    id = refused.data["question_id"]
    assert (refused.code, f"packhost questions answer {id}" in refused.text) == ("APPROVAL_REQUIRED", True)
    await lab.gate.questions.answer(id, "accept", {"seat": "aisle"}, by="ann", channel="cli")
    outcome = await lab.call("mine:book", {"flight": FLIGHT})
    assert outcome.value == [FLIGHT, "aisle", None]


async def test_an_approval_that_comes_later_finds_what_was_given(lab: Any) -> None:
    of_pack(lab)
    lab.rule("ask", "mine:book")
    ann = Person({"seat": "aisle"}, verdict="unanswered")
    refused = await lab.call("mine:book", {"flight": FLIGHT}, asker=ann)
    assert (refused.code, len(ann.shown)) == ("APPROVAL_REQUIRED", 2)
    await lab.gate.decide(refused.approval_id, "approve", by="ann", channel="cli")
    outcome = await lab.call("mine:book", {"flight": FLIGHT}, asker=Person())
    assert outcome.value == [FLIGHT, "aisle", None]


@pytest.mark.parametrize("change", ["arguments", "definition"])
async def test_another_call_or_another_tool_begins_anew(lab: Any, change: str) -> None:
    of_pack(lab)
    lab.rule("ask", "mine:book")
    await lab.call("mine:book", {"flight": FLIGHT}, asker=Person({"seat": "aisle"}, verdict="unanswered"))
    arguments = {"flight": FLIGHT}
    if change == "arguments":
        arguments = {"flight": "LH 2"}
    else:
        lab.retool("mine:book", version="1-b")
    ann = Person({"seat": "window"})
    outcome = await lab.call("mine:book", arguments, asker=ann)
    assert ann.shown[0].form is not None
    assert outcome.value[1] == "window"


async def test_where_nobody_is_to_be_waited_for_the_call_is_refused(lab: Any) -> None:
    of_pack(lab)
    lab.terms["unattended"] = "reject"
    lab.retool("mine:book")
    refused = await lab.call("mine:book", {"flight": FLIGHT})
    assert refused.code == "APPROVAL_MODE_UNSUPPORTED"


async def test_a_rule_that_denies_spares_the_question(lab: Any) -> None:
    of_pack(lab)
    lab.rule("deny", "mine:book")
    ann = Person({"seat": "aisle"})
    refused = await lab.call("mine:book", {"flight": FLIGHT}, asker=ann)
    assert (refused.code, ann.shown) == ("POLICY_DENIED", [])


async def test_explaining_says_that_a_person_is_asked_and_asks_none(lab: Any) -> None:
    of_pack(lab)
    trace = lab.gate.explain(
        CallRequest("mine:book", {"flight": FLIGHT}, Caller("ann", "editor", "s-editor"))
    )
    (step,) = (step for step in trace.steps if step.name == "ask")
    assert "`bags`, `seat`" in step.detail
    assert lab.store.read(questions.listing, None) == ()


# who may ask


async def test_a_subagents_call_asks_nobody(lab: Any) -> None:
    of_pack(lab)
    child = {
        "name": "helper",
        "description": "Helps.",
        "tool_type": "subagent",
        "parameters_schema": {"type": "object", "properties": {"task": {"type": "string"}}},
        "config": {"agent": {"model": "child"}, "allowed_tools": ["mine_book"]},
    }
    lab.script(asks("a", name="helper", task="book"), DONE)
    lab.section["models"]["child"] = {
        "provider": "scripted",
        "script": [asks("b", name="mine_book"), {"text": "no"}],
    }
    ann = Person({"seat": "aisle"})
    outcome = await lab.turn(loop=True, runtime_tools=[child], asker=ann)
    assert outcome.value["outcome"] == "completed"
    assert ann.shown == []
    assert lab.store.read(questions.listing, None) == ()


async def test_a_step_of_a_workflow_asks_nobody(lab: Any) -> None:
    of_pack(lab)
    node = {"id": "one", "call": {"tool": "mine:book", "arguments": {"flight": FLIGHT}}}
    ann = Person({"seat": "aisle"})
    outcome = await lab.call("execute-turn", {"workflow": {"nodes": [node]}}, asker=ann)
    assert (ann.shown, lab.store.read(questions.listing, None)) == ([], ())
    assert "APPROVAL_MODE_UNSUPPORTED" in json.dumps(outcome.value)


async def test_a_call_from_within_a_handler_asks_nobody(lab: Any) -> None:
    of_pack(lab)

    async def handler(context: Any, arguments: Any) -> Any:
        return await context.call_tool("mine:book", {"flight": FLIGHT})

    lab.tool("outer", handler, required_scopes=("tool mine:book",))
    ann = Person({"seat": "aisle"})
    refused = await lab.call("lab:outer", {}, asker=ann)
    assert isinstance(refused, Refusal)
    assert ann.shown == []


async def test_a_form_that_is_wrong_stops_everything_before_it_starts(lab: Any) -> None:
    wrong = {**ELICIT, "requestedSchema": {**ELICIT["requestedSchema"], "additionalProperties": True}}
    lab.script(asks("a"), DONE)
    refused = await lab.turn(loop=True, runtime_tools=[booking(config={"elicit": wrong})])
    assert refused.code == "INVALID_INPUT"
    assert refused.data["path"] == "/runtime_tools/0/config/elicit/requested_schema"


async def test_a_form_may_be_answered_at_a_host_that_does_not_have_the_call(lab: Any) -> None:
    lab.script(asks("a"), DONE)
    afar = Afar(lab.store, lab.gate.decide, lab.gate.questions.answer)
    session = await lab.gate.sessions.enter("s-editor", "ann", "editor")
    messages = [{"role": "user", "content": "go"}]
    arguments = {"messages": messages, "loop": True, "runtime_tools": [booking()]}
    caller = Caller("ann", "editor", session)
    request = CallRequest("agent-runtime:execute-turn", arguments, caller, idem_key="key")
    outcomes: list[Any] = []

    async def call() -> None:
        outcomes.append(await lab.gate.call(request, None))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(call)
            with lab.store.watch("approvals") as watch:
                while not lab.store.read(questions.listing):
                    await watch.changed()
            prompt = await afar.attend("key", None, "ann", last=False, hold=1)
            assert prompt.form["required"] == ["seat"]
            bad = (prompt.approval_id, "accept", {"seat": "roof"})
            again = await afar.attend("key", bad, "ann", last=False, hold=1)
            assert again.approval_id == prompt.approval_id
            good = (prompt.approval_id, "accept", {"seat": "aisle"})
            assert await afar.attend("key", good, "ann", last=False, hold=1) is None
    assert results(lab, outcomes[0].value["run_id"]) == [[FLIGHT, "aisle", None]]
