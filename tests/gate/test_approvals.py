"""Step five: one record a question, the first answer wins, an approval is used once."""

from __future__ import annotations

import anyio
import pytest

from packhost.errors import Conflict, PackhostError
from packhost.gate import approve
from packhost.gate.configuration import Terms
from packhost.gate.types import Answer, Completed, Deferred, Refusal
from packhost.rules.policy import Rule
from packhost.store.ops import grants
from packhost.store.rows import NewGrant

APPROVE = Answer("approve", by="person", channel="client")
DENY = Answer("deny", by="person", channel="client", reason="not now")
NOBODY = Answer("unanswered", channel="client")

pytestmark = pytest.mark.anyio


@pytest.fixture
def person():
    from dataclasses import dataclass, field

    @dataclass
    class Person:
        answers: list
        shown: list = field(default_factory=list)
        asked: anyio.Event = field(default_factory=anyio.Event)
        patience: anyio.Event | None = None

        async def ask(self, prompt):
            self.shown.append(prompt)
            self.asked.set()
            if self.patience is not None:
                await self.patience.wait()
            return self.answers.pop(0)

    return Person


@pytest.fixture
def asking(bench):
    bench.rules = [Rule("ask", "writes are looked at first", True, None, permission="write")]
    bench.tool("change", permission="write")
    return bench


async def test_an_approved_call_runs_once_and_the_next_asks_again(asking, person):
    ann = person([APPROVE, APPROVE])
    for _ in range(2):
        assert isinstance(await asking.call("change", {"n": 1}, ann), Completed)
    assert len({prompt.approval_id for prompt in ann.shown}) == 2
    assert asking.ran == ["change", "change"]


async def test_the_prompt_shows_tool_arguments_reason_and_preview_with_nothing_hidden(asking, person):
    asking.kind.previews["change"] = "-old\n+new"
    ann = person([APPROVE])
    await asking.call("change", {"text": "a\u202eb\x1b[2J"}, ann)
    text = ann.shown[0].text
    assert "t:change" in text
    assert "writes are looked at first" in text
    assert "+new" in text
    assert "\\u202e" in text
    assert "\u202e" not in text
    assert "\x1b" not in text


async def test_the_first_three_lines_say_what_would_run_and_change_and_where_the_whole_is(asking, person):
    asking.kind.previews["change"] = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-sail at eight\n+sail at nine"
    ann = person([APPROVE])
    await asking.call("change", {"path": "notes/plan.txt", "content": "x" * 5000}, ann)
    first, second, third = ann.shown[0].text.split("\n")[:3]
    assert first == "Allow t:change path=notes/plan.txt content=…?"
    assert second == "Would do: -sail at eight ⏎ +sail at nine"
    assert f"packhost approvals show {ann.shown[0].approval_id}" in third
    assert max(map(len, (first, second, third))) <= 112


async def test_a_rejected_call_does_not_run_and_may_ask_three_times(asking, person):
    ann = person([DENY, DENY, DENY])
    for _ in range(3):
        found = await asking.call("change", {}, ann)
        assert isinstance(found, Refusal)
        assert found.code == "APPROVAL_DENIED"
        assert "not now" in found.message
    found = await asking.call("change", {}, ann)
    assert found.code == "APPROVAL_DENIED"
    assert len(ann.shown) == 3
    assert asking.ran == []


async def test_nobody_answering_leaves_the_record_pending_and_says_how_to_decide_it(asking, person):
    found = await asking.call("change", {}, person([NOBODY]))
    assert found.code == "APPROVAL_REQUIRED"
    assert f"packhost approvals approve {found.approval_id}" in found.text
    assert [row.id for row in asking.pending()] == [found.approval_id]


async def test_a_late_answer_counts_for_the_identical_call(asking, person):
    first = await asking.call("change", {"n": 1}, person([NOBODY]))
    await asking.gate.decide(first.approval_id, "approve", by="person", channel="cli")
    assert (await asking.call("change", {"n": 2}, None)).code == "APPROVAL_REQUIRED"
    assert isinstance(await asking.call("change", {"n": 1}, None), Completed)
    assert (await asking.call("change", {"n": 1}, None)).code == "APPROVAL_REQUIRED"
    assert asking.ran == ["change"]


@pytest.mark.parametrize(
    "other", [{"principal": "bob"}, {"client": "other-client"}], ids=["principal", "client"]
)
async def test_an_approval_counts_for_its_requester_alone(asking, person, other):
    first = await asking.call("change", {}, person([NOBODY]))
    await asking.gate.decide(first.approval_id, "approve", by="person", channel="cli")
    found = await asking.call("change", {}, None, session_id="s-2", **other)
    assert found.code == "APPROVAL_REQUIRED"
    assert found.approval_id != first.approval_id


async def test_a_decision_elsewhere_ends_the_dialog_and_the_call_goes_on(asking, person):
    ann = person([NOBODY], patience=anyio.Event())
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:

            async def decide():
                await ann.asked.wait()
                await asking.gate.decide(ann.shown[0].approval_id, "approve", by="bob", channel="cli")

            group.start_soon(decide)
            assert isinstance(await asking.call("change", {}, ann), Completed)


async def test_the_first_answer_wins(asking, person):
    first = await asking.call("change", {}, person([NOBODY]))
    await asking.gate.decide(first.approval_id, "deny", by="bob", channel="cli")
    with pytest.raises(Conflict):
        await asking.gate.decide(first.approval_id, "approve", by="ann", channel="cli")


async def test_two_identical_calls_share_one_question_and_run_once(asking, person):
    ann, bob = person([APPROVE], patience=anyio.Event()), person([NOBODY], patience=anyio.Event())
    outcomes = []
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:

            async def call(asker):
                outcomes.append(await asking.call("change", {"n": 1}, asker))

            group.start_soon(call, ann)
            await ann.asked.wait()
            group.start_soon(call, bob)
            await bob.asked.wait()
            ann.patience.set()
    assert asking.ran == ["change"]
    assert [type(outcome) for outcome in outcomes] == [Completed, Completed]
    assert outcomes[0].call_id == outcomes[1].call_id


async def test_a_deferring_client_gets_the_prompt_back_and_the_record_stays_pending(asking, person):
    outcome = await asking.call("change", {}, person([Answer("deferred")]))
    assert isinstance(outcome, Deferred)
    assert [row.id for row in asking.pending()] == [outcome.prompt.approval_id]


async def test_a_cancelled_wait_leaves_the_question_open(asking, person):
    ann = person([APPROVE], patience=anyio.Event())
    with anyio.move_on_after(5) as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(asking.call, "change", {}, ann)
            await ann.asked.wait()
            group.cancel_scope.cancel()
    assert not scope.cancelled_caught
    assert len(asking.pending()) == 1
    assert asking.ran == []


async def test_an_unanswered_question_expires(asking, person):
    asking.terms = Terms(timeout=0.05, unattended="hold")
    asking.reload()
    with anyio.fail_after(5):
        found = await asking.call("change", {}, person([NOBODY], patience=anyio.Event()))
    assert found.code == "APPROVAL_EXPIRED"
    assert asking.pending() == []


async def test_where_nobody_can_be_asked_a_workspace_may_refuse_at_once(asking):
    asking.terms = Terms(timeout=600, unattended="reject")
    asking.reload()
    assert (await asking.call("change", {}, None)).code == "APPROVAL_MODE_UNSUPPORTED"
    assert asking.pending() == []


async def test_a_required_approval_asks_at_every_level(bench, person):
    bench.approval("go")
    bench.autonomy = type(bench.autonomy)("autonomous", "autonomous")
    bench.tool("change", permission="write", required_approvals=("t:go",))
    ann = person([APPROVE])
    assert isinstance(await bench.call("change", {}, ann), Completed)
    assert len(ann.shown) == 1


async def test_a_relaxable_rule_no_longer_asks_at_autonomous(asking, person):
    asking.autonomy = type(asking.autonomy)("autonomous", "autonomous")
    asking.reload()
    ann = person([])
    assert isinstance(await asking.call("change", {}, ann), Completed)
    assert ann.shown == []


async def test_operator_assurance_cannot_be_given_by_a_client(bench, person):
    bench.approval("go", assurance="operator")
    bench.tool("change", permission="write", required_approvals=("t:go",))
    found = await bench.call("change", {}, person([APPROVE]))
    assert found.code == "APPROVAL_REQUIRED"
    with pytest.raises(PackhostError) as raised:
        await bench.gate.decide(found.approval_id, "approve", by="ann", channel="cli")
    assert raised.value.code == "APPROVAL_MODE_UNSUPPORTED"
    assert bench.ran == []


async def test_a_live_grant_answers_and_a_revoked_one_does_not(asking, person):
    new = NewGrant("gr_1", "t:change", "1-abc", '{"n":1}', "ann", principal="ann")
    await asking.store.write(grants.add, new)
    assert isinstance(await asking.call("change", {"n": 1}, None), Completed)
    assert (await asking.call("change", {"n": 2}, None)).code == "APPROVAL_REQUIRED"
    await asking.store.write(grants.revoke, "gr_1", "ann")
    assert (await asking.call("change", {"n": 1}, None)).code == "APPROVAL_REQUIRED"


async def test_a_client_that_has_asked_very_much_asks_no_more_until_some_is_answered(
    bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(approve, "MAX_WAITING", 3)
    bench.tool("act", permission="write")
    bench.autonomy = type(bench.autonomy)("supervised", "autonomous")
    bench.reload()
    outcomes = [await bench.call("act", {"n": n}) for n in range(4)]
    assert [outcome.code for outcome in outcomes] == ["APPROVAL_REQUIRED"] * 3 + ["LIMIT_EXCEEDED"]
    assert outcomes[-1].as_json()["retry_after"] == 60
    assert (await bench.call("act", {"n": 0})).code == "APPROVAL_REQUIRED"
    assert (await bench.call("act", {"n": 9}, client="another", session_id="s-2")).code == "APPROVAL_REQUIRED"
    await bench.gate.decide(outcomes[0].approval_id, "deny", by="ann", channel="cli")
    assert (await bench.call("act", {"n": 4})).code == "APPROVAL_REQUIRED"


async def test_no_dialog_of_an_end_user_answers_what_is_their_owners_to_answer(asking):
    asking.tool("change", permission="write")
    outcome = await asking.call("change", end_user=True)
    assert outcome.code == "APPROVAL_REQUIRED"
    (row,) = asking.pending()
    with pytest.raises(PackhostError, match="answers for the workspace") as raised:
        await asking.gate.decide(row.id, "approve", by="ann", channel="client")
    assert raised.value.code == "POLICY_DENIED"
    assert (await asking.gate.decide(row.id, "approve", by="bob", channel="api")).status == "approved"
