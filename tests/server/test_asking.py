"""Questions to a person, over each transport in each era."""

from __future__ import annotations

import anyio
import pytest
from fake_host import FORM
from mcp import MCPError
from mcp import types as t

from packhost.server import inflight
from packhost.server.host import Consent

pytestmark = pytest.mark.anyio

WAYS = pytest.mark.parametrize(
    ("transport", "era"),
    [("stdio", "modern"), ("stdio", "legacy"), ("http", "modern"), ("http", "legacy"), ("sse", "legacy")],
)


@WAYS
async def test_an_accepted_dialog_runs_the_call_once(serve, transport, era) -> None:
    async with serve(transport, era) as served, served.client("accept") as client:
        result = await client.call_tool("demo_write", {"path": "a"})
    assert result.content[0].text == "written"
    assert served.dialogs == ["Run write?"]
    assert served.gate.ran == ["write"]
    assert served.gate.approvals["apr_1"]["by"] == "tester"


@WAYS
async def test_a_declined_dialog_denies_the_call(serve, transport, era) -> None:
    async with serve(transport, era) as served, served.client("decline") as client:
        result = await client.call_tool("demo_write", {"path": "a"})
    assert result.meta["packhost/refusal"]["code"] == "APPROVAL_DENIED"
    assert served.gate.ran == []


@WAYS
async def test_a_cancelled_dialog_leaves_the_record_pending(serve, transport, era) -> None:
    async with serve(transport, era) as served, served.client("cancel") as client:
        result = await client.call_tool("demo_write", {"path": "a"})
        refusal = result.meta["packhost/refusal"]
        assert (refusal["code"], refusal["approval_id"]) == ("APPROVAL_REQUIRED", "apr_1")
        served.gate.decide("apr_1", "approve", "cli")
        again = await client.call_tool("demo_write", {"path": "a"})
    assert again.content[0].text == "written"
    assert served.gate.ran == ["write"]


@WAYS
async def test_a_client_without_dialogs_is_held_and_told_how_to_decide(serve, transport, era) -> None:
    messages: list[str | None] = []

    async def progress(_: float, __: float | None, message: str | None) -> None:
        messages.append(message)

    async with serve(transport, era) as served, served.client() as client:
        result = await client.call_tool("demo_write", {"path": "a"}, progress_callback=progress)
    assert result.meta["packhost/refusal"]["code"] == "APPROVAL_REQUIRED"
    assert "packhost approvals approve apr_1" in (messages[0] or "")


@WAYS
async def test_a_held_call_runs_when_it_is_approved_elsewhere(serve, transport, era) -> None:
    results = []
    async with serve(transport, era) as served, served.client() as client:
        served.host.hold = 30.0

        async def call() -> None:
            results.append(await client.call_tool("demo_write", {"path": "a"}))

        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call)
                await served.gate.asked.wait()
                served.gate.decide("apr_1", "approve", "cli")
    assert results[0].content[0].text == "written"


@WAYS
async def test_questions_from_within_a_call_reach_the_dialog_one_by_one(serve, transport, era) -> None:
    async with serve(transport, era) as served, served.client("accept") as client:
        with anyio.fail_after(10):
            result = await client.call_tool("demo_turn", {"questions": 3})
    assert result.structured_content == {"said": ["yes", "yes", "yes"]}
    assert served.dialogs == ["Run step0?", "Run step1?", "Run step2?"]
    assert served.gate.ran == ["step0", "step1", "step2"]
    assert len(served.gate.requests) == 1


@WAYS
async def test_a_nested_question_may_be_declined_or_left_alone(serve, transport, era) -> None:
    def person(text: str) -> str:
        return "decline" if "step0" in text else "cancel"

    async with serve(transport, era) as served, served.client(person) as client:
        with anyio.fail_after(10):
            result = await client.call_tool("demo_turn", {"questions": 2})
    assert result.structured_content == {"said": ["APPROVAL_DENIED", "APPROVAL_REQUIRED"]}


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_more_questions_than_a_client_has_rounds_end_in_approval_required(serve, transport) -> None:
    async with serve(transport, "modern") as served, served.client("accept") as client:
        with anyio.fail_after(10):
            result = await client.call_tool("demo_turn", {"questions": 10})
    assert result.structured_content == {"said": ["yes"] * 8 + ["APPROVAL_REQUIRED"] * 2}
    assert len(served.dialogs) == 8


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_nested_question_decided_elsewhere_lets_the_call_go_on(serve, transport) -> None:
    def person(text: str) -> str:
        served.gate.decide("apr_1", "approve", "cli")
        return "decline"

    async with serve(transport, "modern") as served, served.client(person) as client:
        with anyio.fail_after(10):
            result = await client.call_tool("demo_turn", {"questions": 1})
    assert result.structured_content == {"said": ["yes"]}


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_cancelling_a_call_in_flight_ends_it(serve, transport) -> None:
    asked = anyio.Event()
    async with serve(transport, "modern") as served:
        served.host.hold = 30.0
        # Past the last round questions are held while the request stays open.
        async with served.client("accept") as client, anyio.create_task_group() as tasks:

            async def call() -> None:
                await client.call_tool("demo_turn", {"questions": 9})

            tasks.start_soon(call)
            with anyio.fail_after(10):
                while served.gate.approvals.get("apr_9") is None:
                    await anyio.lowlevel.checkpoint()
            asked.set()
            tasks.cancel_scope.cancel()
        with anyio.fail_after(5):
            await served.gate.cancelled.wait()
    assert asked.is_set()


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_an_abandoned_call_in_flight_ends_when_its_question_expires(serve, transport) -> None:
    async with serve(transport, "modern") as served:
        served.host.approval_timeout = 0.2
        async with served.client("accept") as client:
            first = await client.session.call_tool("demo_turn", {"questions": 1}, allow_input_required=True)
            assert isinstance(first, t.InputRequiredResult)
            with anyio.fail_after(5):
                while served.server._calling._flights._flights:
                    await anyio.lowlevel.checkpoint()
    assert served.gate.ran == []


async def test_an_answer_to_a_call_that_is_gone_names_the_run_to_resume(serve) -> None:
    async with serve("http", "modern") as served, served.client("accept") as client:
        first = await client.session.call_tool("demo_turn", {"questions": 1}, allow_input_required=True)
        served.server._calling._flights._flights.clear()
        second = await client.session.call_tool(
            "demo_turn",
            {"questions": 1},
            allow_input_required=True,
            input_responses={"approve": t.ElicitResult(action="accept")},
            request_state=first.request_state,
        )
    assert second.meta["packhost/refusal"]["run_id"] == "run_9"
    assert "resume_workflow" in second.content[0].text


async def test_a_state_is_good_for_the_very_call_it_was_given_to(serve) -> None:
    async with serve("http", "modern") as served, served.client("accept") as client:
        first = await client.session.call_tool("demo_write", {"path": "a"}, allow_input_required=True)
        with pytest.raises(MCPError, match="requestState"):
            await client.session.call_tool(
                "demo_write",
                {"path": "b"},
                allow_input_required=True,
                input_responses={"approve": t.ElicitResult(action="accept")},
                request_state=first.request_state,
            )
        with pytest.raises(MCPError, match="requestState"):
            await client.session.call_tool(
                "demo_write",
                {"path": "a"},
                allow_input_required=True,
                input_responses={"approve": t.ElicitResult(action="accept")},
                request_state='[1, "apr_1", null, false]',
            )
    assert served.gate.ran == []


async def test_an_answer_without_a_state_answers_nothing(serve) -> None:
    async with serve("http", "modern") as served, served.client("accept") as client:
        result = await client.session.call_tool(
            "demo_write",
            {"path": "a"},
            allow_input_required=True,
            input_responses={"approve": t.ElicitResult(action="accept")},
        )
    assert isinstance(result, t.InputRequiredResult)
    assert served.gate.ran == []


@WAYS
@pytest.mark.parametrize("tool", ["form", "forms"], ids=["direct", "within a call"])
async def test_a_form_with_fields_reaches_the_dialog_and_comes_back_as_it_was_filled_in(
    serve, transport, era, tool
) -> None:
    content = {"seat": "no", "bags": 2}
    async with serve(transport, era) as served, served.client("accept", content) as client:
        with anyio.fail_after(10):
            result = await client.call_tool(f"demo_{tool}", {})
    assert result.structured_content == {"verdict": "approve", "reason": "", "content": content}
    assert served.dialogs == ["Which seat?"]
    assert served.forms == [FORM]


@WAYS
@pytest.mark.parametrize("tool", ["form", "forms"], ids=["direct", "within a call"])
@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_form_that_is_sent_away_says_how(serve, transport, era, tool, action) -> None:
    async with serve(transport, era) as served, served.client(action) as client:
        with anyio.fail_after(10):
            result = await client.call_tool(f"demo_{tool}", {})
    assert result.structured_content == {"verdict": "deny", "reason": action, "content": None}


@WAYS
async def test_a_client_without_dialogs_is_told_where_a_form_is_answered(serve, transport, era) -> None:
    messages: list[str | None] = []

    async def progress(_: float, __: float | None, message: str | None) -> None:
        messages.append(message)

    async with serve(transport, era) as served, served.client() as client:
        result = await client.call_tool("demo_form", {}, progress_callback=progress)
    assert result.structured_content["verdict"] == "unanswered"
    assert "packhost questions answer qn_1" in (messages[0] or "")


@WAYS
async def test_status_puts_a_change_without_code_to_the_person(serve, transport, era) -> None:
    async with serve(transport, era) as served:
        served.host.change = Consent("d1", "write src/**", False, "/usr/bin/packhost accept")
        async with served.client("accept") as client:
            assert "packhost_status" in client.instructions
            assert "more than its person has accepted" in client.instructions
            result = await client.call_tool("packhost_status", {})
    assert served.host.accepted == [("d1", "tester", "client")]
    assert "write src/**" in served.dialogs[0]
    assert result.structured_content["waiting"] is None
    assert result.structured_content["withheld"] == [
        {"tool": "demo:gone", "layer": "workspace bound", "reason": "no overlap"}
    ]


@WAYS
@pytest.mark.parametrize("answer", ["decline", "cancel", None])
async def test_status_accepts_nothing_that_a_person_did_not(serve, transport, era, answer) -> None:
    async with serve(transport, era) as served:
        served.host.change = Consent("d1", "write src/**", False, "/usr/bin/packhost accept")
        async with served.client(answer) as client:
            result = await client.call_tool("packhost_status", {})
    assert served.host.accepted == []
    assert result.structured_content["waiting"]["change"] == "write src/**"
    assert "--yes" not in result.content[0].text


@pytest.mark.parametrize(("code", "operator"), [(True, False), (False, True)], ids=["code", "operator"])
async def test_status_shows_the_command_alone_for_what_no_dialog_may_accept(serve, code, operator) -> None:
    async with serve("http", "modern") as served:
        served.host.change = Consent("d1", "a change", code, "/usr/bin/packhost accept", operator)
        async with served.client("accept") as client:
            result = await client.call_tool("packhost_status", {})
    assert served.dialogs == []
    assert served.host.accepted == []
    assert "/usr/bin/packhost accept" in result.content[0].text


async def test_an_acceptance_counts_for_the_change_that_was_shown(serve) -> None:
    async with serve("http", "modern") as served:
        served.host.change = Consent("d1", "write src/**", False, "/usr/bin/packhost accept")

        def person(text: str) -> str:
            if "write src/**" in text:
                served.host.change = Consent("d2", "write **", False, "/usr/bin/packhost accept")
                return "accept"
            return "decline"

        async with served.client(person) as client:
            await client.call_tool("packhost_status", {})
    assert len(served.dialogs) == 2
    assert served.host.accepted == []


@WAYS
async def test_explain_tells_what_would_happen(serve, transport, era) -> None:
    async with serve(transport, era) as served, served.client() as client:
        trace = await client.call_tool("packhost_explain", {"tool": "demo_echo", "arguments": {}})
        bad = await client.call_tool("packhost_explain", {"tool": 1})
    assert trace.structured_content["verdict"] == "allow"
    assert bad.meta["packhost/refusal"]["code"] == "INVALID_INPUT"
    assert served.gate.requests == []


async def test_one_client_cannot_take_every_place_for_calls_between_two_questions(
    serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inflight, "MAX_FLIGHTS_EACH", 2)
    async with serve("http", "modern") as served:
        asked = []
        async with served.client("accept") as client:
            for questions in (1, 2, 3):
                arguments = {"questions": questions}
                asked.append(
                    await client.session.call_tool("demo_turn", arguments, allow_input_required=True)
                )
        other = served.client("accept", client_info=t.Implementation(name="other", version="1"))
        async with other as client:
            free = await client.session.call_tool("demo_turn", {"questions": 1}, allow_input_required=True)
    assert [isinstance(result, t.InputRequiredResult) for result in (*asked, free)] == [
        True,
        True,
        False,
        True,
    ]
    refusal = asked[2].meta["packhost/refusal"]
    assert (refusal["code"], refusal["retry_after"]) == ("LIMIT_EXCEEDED", 5)
