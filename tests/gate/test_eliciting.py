"""Questions to a person from the middle of a call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import pytest

from packhost.errors import PackhostError
from packhost.gate.configuration import Terms
from packhost.gate.types import Answer, CallRequest, Completed, Outcome, Prompt, Refusal
from packhost.kinds.context import CallContext, Elicitation, Elicited
from packhost.store.ops import questions

pytestmark = pytest.mark.anyio
APPROVE = Answer("approve", by="person", channel="client")
FORM = {
    "type": "object",
    "properties": {"seat": {"type": "string", "enum": ["aisle", "window"]}, "bags": {"type": "integer"}},
    "required": ["seat"],
}
FORMED = Elicitation("Which seat?\nApprove it.", FORM, asks="airline")
LINKED = Elicitation("Sign in.", url="https://airline.example/login", asks="airline")


@dataclass
class Person:
    """A person at a dialog: answers each question as told and remembers what was shown."""

    answers: list[Answer]
    patience: anyio.Event | None = None
    """When set, answers come only after it."""
    shown: list[Prompt] = field(default_factory=list)
    asked: anyio.Event = field(default_factory=anyio.Event)

    async def ask(self, prompt: Prompt) -> Answer:
        self.shown.append(prompt)
        self.asked.set()
        if self.patience is not None:
            await self.patience.wait()
        return self.answers.pop(0)


def asking(bench: Any, wanted: Elicitation = FORMED, **spec: Any) -> list[Elicited]:
    """A tool that asks in the middle of its call; what it was told."""
    told: list[Elicited] = []

    async def handler(context: CallContext, _: Mapping[str, Any]) -> Any:
        told.append(await context.elicit(wanted))
        return {"told": told[-1].action}

    bench.tool("book", handler, **spec)
    return told


def filled(content: Mapping[str, Any]) -> Answer:
    return replace(APPROVE, content=content)


async def test_what_a_person_enters_is_handed_to_whoever_asked(bench: Any) -> None:
    told = asking(bench)
    person = Person([filled({"seat": "aisle"})])
    outcome = await bench.call("book", asker=person)
    assert isinstance(outcome, Completed)
    assert told == [Elicited("accept", {"seat": "aisle"})]
    prompt = person.shown[0]
    assert prompt.form == FORM
    assert prompt.nested
    row = bench.store.read(questions.get, prompt.approval_id)
    assert (row.consumed_by, row.run_id) == (outcome.call_id, None)


async def test_the_words_of_whoever_asks_are_shown_as_theirs(bench: Any) -> None:
    asking(bench)
    person = Person([filled({"seat": "aisle"})])
    await bench.call("book", asker=person)
    text = person.shown[0].text
    assert text.startswith('The server "airline" asks for your input while t:book runs, in its own words:')
    assert "  | Which seat?\n  | Approve it.\n" in text
    assert "it approves nothing" in text


@pytest.mark.parametrize(
    ("answer", "action"),
    [
        (Answer("deny", reason="decline"), "decline"),
        (Answer("deny", reason="cancel"), "cancel"),
        (Answer("unanswered"), "cancel"),
    ],
)
async def test_no_answer_has_no_content(bench: Any, answer: Answer, action: str) -> None:
    told = asking(bench)
    await bench.call("book", asker=Person([answer]))
    assert [(one.action, one.content) for one in told] == [(action, None)]


async def test_an_answer_that_does_not_fit_the_form_does_not_go_on_and_is_asked_again(bench: Any) -> None:
    told = asking(bench)
    wrong = [filled({"seat": "roof"}), filled({"seat": "aisle", "bags": "2"})]
    person = Person([*wrong, filled({"seat": "window", "bags": 2})])
    await bench.call("book", asker=person)
    assert told == [Elicited("accept", {"seat": "window", "bags": 2})]
    assert len(person.shown) == 3


async def test_a_link_is_followed_without_content_and_approves_nothing(bench: Any) -> None:
    told = asking(bench, LINKED)
    person = Person([filled({"seat": "aisle"})])
    await bench.call("book", asker=person)
    assert [(one.action, one.content) for one in told] == [("accept", {})]
    assert person.shown[0].url == LINKED.url
    assert "of the host airline.example" in person.shown[0].text
    assert bench.pending() == []


async def test_any_channel_may_answer_and_the_first_one_stands(bench: Any) -> None:
    told = asking(bench)
    person = Person([filled({"seat": "window"})], patience=anyio.Event())
    async with anyio.create_task_group() as group:
        group.start_soon(bench.call, "book", None, person)
        with anyio.fail_after(5):
            await person.asked.wait()
        id = person.shown[0].approval_id
        await bench.gate.questions.answer(id, "accept", {"seat": "aisle"}, by="ann", channel="cli")
    assert told == [Elicited("accept", {"seat": "aisle"})]


async def test_the_events_say_why_and_who_asks_and_hold_no_answer(bench: Any) -> None:
    asking(bench, LINKED)
    person = Person([APPROVE])
    await bench.call("book", asker=person)
    row = bench.store.read(questions.get, person.shown[0].approval_id)
    assert row.told["await_reason"] == "mcp_elicitation"
    assert row.told["pause_count"] == 1
    said = {"mode": "url", "url": LINKED.url, "server_name": "airline", "message": "Sign in."}
    assert row.told["elicitation"] == said
    assert {"question.asked", "question.accepted"} <= set(await bench.events())


async def test_the_time_of_a_call_and_of_those_around_it_stands_still(bench: Any) -> None:
    told = asking(bench, timeout=0.2)
    person = Person([filled({"seat": "aisle"})], patience=anyio.Event())

    async def outer(context: CallContext, _: Mapping[str, Any]) -> Any:
        return await context.call_tool("t:book", {})

    bench.tool("trip", outer, timeout=0.3, required_scopes=["tool t:book"])
    outcomes: list[Outcome] = []

    async def call() -> None:
        outcomes.append(await bench.call("trip", asker=person))

    async with anyio.create_task_group() as group:
        group.start_soon(call)
        with anyio.fail_after(5):
            await person.asked.wait()
        await anyio.sleep(0.5)  # longer than either limit: what is under test is the time itself
        assert person.patience is not None
        person.patience.set()
    assert isinstance(outcomes[0], Completed)
    assert told[0].action == "accept"


async def test_the_fourth_question_without_getting_on_fails_the_call(bench: Any) -> None:
    async def handler(context: CallContext, arguments: Mapping[str, Any]) -> Any:
        for _ in range(4):
            await context.elicit(FORMED)
            if arguments.get("gets_on"):
                await context.report_progress(1)
        return {}

    bench.tool("book", handler)
    answers = [filled({"seat": "aisle"}) for _ in range(4)]
    refused = await bench.call("book", asker=Person(list(answers)))
    assert isinstance(refused, Refusal)
    assert refused.code == "LIMIT_EXCEEDED"
    assert "with the server itself" in refused.hint
    assert isinstance(await bench.call("book", {"gets_on": True}, Person(list(answers))), Completed)


async def test_without_anybody_to_ask_it_is_a_cancel(bench: Any) -> None:
    told = asking(bench)
    await bench.call("book")
    bench.terms = Terms(timeout=600.0, unattended="reject")
    bench.reload()
    await bench.call("book", asker=Person([]), attended=False)
    assert [one.action for one in told] == ["cancel", "cancel"]


async def test_a_call_that_is_cancelled_withdraws_its_question(bench: Any) -> None:
    asking(bench)
    person = Person([], patience=anyio.Event())
    async with anyio.create_task_group() as group:
        group.start_soon(bench.call, "book", None, person)
        with anyio.fail_after(5):
            await person.asked.wait()
        group.cancel_scope.cancel()
    await bench.store.flush()
    assert bench.store.read(questions.get, person.shown[0].approval_id).status == "cancelled"


@pytest.mark.parametrize(
    "wanted",
    [
        Elicitation("both", FORM, "https://a.example/"),
        Elicitation("neither"),
        Elicitation("scheme", url="javascript:alert(1)"),
        Elicitation("plain", url="http://a.example/"),
        Elicitation("name", url="https://bank.example@a.example/"),
        Elicitation("hidden", url="https://a.example/\u202e"),
        Elicitation("deep", {"type": "object", "properties": {"a": {"type": "object"}}}),
        Elicitation("unknown", {"type": "object", "properties": {"a": {"type": "string", "not": {}}}}),
        Elicitation("top", {"type": "object", "properties": {}, "allOf": []}),
        Elicitation("required", {"type": "object", "properties": {}, "required": ["a"]}),
        Elicitation("broken", {"type": "object", "properties": {"a": {"type": "string", "minLength": "x"}}}),
    ],
    ids=lambda wanted: wanted.message,
)
async def test_what_cannot_be_put_to_a_person_is_not(bench: Any, wanted: Elicitation) -> None:
    async def handler(context: CallContext, _: Mapping[str, Any]) -> Any:
        with pytest.raises(PackhostError, match="cannot be put to a person"):
            await context.elicit(wanted)
        return {}

    bench.tool("book", handler)
    assert isinstance(await bench.call("book", asker=Person([])), Completed)


async def test_what_a_tool_says_while_it_runs_reaches_the_caller_without_secrets(bench: Any) -> None:
    bench.secret_values["KEY"] = "s3cret"
    lines: list[Any] = []

    async def handler(context: CallContext, _: Mapping[str, Any]) -> Any:
        await context.log("warning", {"at": "s3cret"}, "demo")
        return {}

    async def log(level: Any, data: Any, logger: str | None) -> None:
        lines.append((level, data, logger))

    bench.tool("book", handler)
    await bench.gate.call(CallRequest("t_book", {}, bench.caller, log=log))
    assert lines == [("warning", {"at": "[REDACTED]"}, "demo")]
