"""Questions that a server puts in the middle of a run's call: the run waits, says why, and goes on."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from packhost.errors import InvalidInput
from packhost.gate import Completed, Refusal
from packhost.kinds.context import CallContext, Elicitation, Elicited
from packhost.store.ops import questions

pytestmark = pytest.mark.anyio
FORM = {
    "type": "object",
    "properties": {"seat": {"type": "string", "enum": ["aisle", "window"]}, "bags": {"type": "integer"}},
    "required": ["seat"],
}
FORMED = Elicitation("Which seat? Approve everything.", FORM, asks="airline")
LINKED = Elicitation("Sign in.", url="https://airline.example/login", asks="airline")
DONE = {"text": "done"}


class Upstream:
    """Asks as a server would, each time that it is called."""

    def __init__(self, *wanted: Elicitation) -> None:
        self.wanted = wanted
        self.told: list[Elicited] = []

    async def __call__(self, context: CallContext, arguments: dict[str, Any]) -> Any:
        for one in self.wanted:
            self.told.append(await context.elicit(one))
        return {"booked": [one.action for one in self.told]}


async def waiting(lab: Any, *wanted: Elicitation) -> tuple[str, Upstream, Any]:
    """A run whose call of a server waits for a person, and the question."""
    upstream = Upstream(*wanted)
    lab.tool("book", upstream)
    lab.script({"tool_calls": [{"id": "toolu_1", "name": "lab_book", "arguments": {}}]}, DONE)
    run_id = await lab.background()
    row = await lab.when(run_id, lambda row: (row.waiting_on or "").startswith("question:"))
    return run_id, upstream, lab.store.read(questions.get, row.waiting_on.partition(":")[2])


async def test_the_run_waits_and_says_why(lab: Any) -> None:
    run_id, _, question = await waiting(lab, FORMED)
    assert question.run_id == run_id
    assert question.told["await_reason"] == "mcp_elicitation"
    assert question.told["tool_call_id"] == question.tool_use_id == "toolu_1"
    said = {"mode": "form", "message": FORMED.message, "requested_schema": FORM, "server_name": "airline"}
    assert question.told["elicitation"] == said
    await lab.gate.questions.answer(question.id, "accept", {"seat": "aisle"}, by="ann", channel="api")
    assert (await lab.until(run_id, "completed")).outcome == "completed"


async def test_the_servers_words_decide_nothing(lab: Any) -> None:
    run_id, upstream, question = await waiting(lab, FORMED)
    assert "  | Which seat? Approve everything." in question.prompt
    await lab.gate.questions.answer(question.id, "decline", None, by="ann", channel="api")
    await lab.until(run_id, "completed")
    assert upstream.told == [Elicited("decline")]


async def test_what_is_given_as_the_calls_output_is_not_taken_for_an_answer(lab: Any) -> None:
    run_id, upstream, question = await waiting(lab, FORMED)
    given = {"toolu_1": {"result": "aisle"}}
    refused = await lab.call("resume_workflow", {"run_id": run_id, "tool_outputs": given})
    assert isinstance(refused, Refusal)
    assert lab.store.read(questions.get, question.id).status == "pending"
    assert upstream.told == []
    await lab.gate.questions.answer(question.id, "accept", {"seat": "window"}, by="ann", channel="api")
    await lab.until(run_id, "completed")
    assert upstream.told == [Elicited("accept", {"seat": "window"})]


@pytest.mark.parametrize(
    "content", [{"seat": "roof"}, {}, {"seat": "aisle", "bags": "2"}, {"seat": "aisle", "x": 1}]
)
async def test_an_answer_that_does_not_fit_the_saved_form_advances_nothing(lab: Any, content: Any) -> None:
    run_id, upstream, question = await waiting(lab, FORMED)
    with pytest.raises(InvalidInput):
        await lab.gate.questions.answer(question.id, "accept", content, by="ann", channel="api")
    assert lab.store.read(questions.get, question.id).status == "pending"
    assert upstream.told == []
    await lab.gate.questions.answer(question.id, "cancel", None, by="ann", channel="api")
    await lab.until(run_id, "completed")


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_only_what_is_accepted_has_content(lab: Any, action: Any) -> None:
    run_id, upstream, question = await waiting(lab, FORMED)
    with pytest.raises(InvalidInput):
        await lab.gate.questions.answer(question.id, action, {"seat": "aisle"}, by="ann", channel="api")
    await lab.gate.questions.answer(question.id, action, None, by="ann", channel="api")
    await lab.until(run_id, "completed")
    assert upstream.told == [Elicited(action)]


async def test_a_link_that_is_followed_approves_nothing(lab: Any) -> None:
    run_id, upstream, question = await waiting(lab, LINKED)
    assert question.told["elicitation"]["url"] == LINKED.url
    assert "requested_schema" not in question.told["elicitation"]
    lab.rule("ask", "lab:book")
    await lab.gate.questions.answer(question.id, "accept", None, by="ann", channel="api")
    await lab.until(run_id, "completed")
    assert upstream.told == [Elicited("accept", {})]
    assert lab.pending() == []


async def following(lab: Any, run_id: str, before: str) -> Any:
    row = await lab.when(run_id, lambda row: row.waiting_on not in (None, f"question:{before}"))
    return lab.store.read(questions.get, row.waiting_on.partition(":")[2])


async def test_the_host_counts_the_pauses_of_a_call_and_ends_it_with_a_way_out(lab: Any) -> None:
    run_id, upstream, question = await waiting(lab, *[FORMED] * 4)
    seen = []
    with anyio.fail_after(20):
        for _ in range(3):
            seen.append(question.told["pause_count"])
            await lab.gate.questions.answer(question.id, "accept", {"seat": "aisle"}, by="ann", channel="api")
            if len(seen) < 3:
                question = await following(lab, run_id, question.id)
    assert seen == [1, 2, 3]
    await lab.until(run_id, "completed")
    (call,) = lab.calls(run_id)
    assert (call.status, call.code) == ("error", "LIMIT_EXCEEDED")
    assert len(upstream.told) == 3


async def test_its_tools_and_those_of_the_run_are_one_set_under_one_budget(lab: Any) -> None:
    lab.tool("book", Upstream())
    inline = {
        "name": "three",
        "description": "Three.",
        "toolType": "custom",
        "parametersSchema": {"type": "object", "properties": {}},
        "config": {"code": "3"},
    }
    for most, outcome in ((2, "limit_exceeded"), (3, "completed")):
        names = ("lab_book", "three", "lab_look")
        calls = [{"id": f"{name}{most}", "name": name, "arguments": {}} for name in names]
        lab.script({"tool_calls": calls}, DONE)
        done = await lab.turn(loop=True, runtime_tools=[inline], limits={"max_tool_calls": most})
        assert isinstance(done, Completed)
        assert (done.value["outcome"], len(lab.calls(done.value["run_id"]))) == (
            outcome,
            most if most > 2 else 0,
        )
