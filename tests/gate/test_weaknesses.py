"""Known weaknesses of systems that ask people, each tried: what must not come of an answer."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from packhost.errors import Conflict, PackhostError
from packhost.gate.configuration import Terms
from packhost.gate.operators import Operators, Signed
from packhost.gate.types import Answer, CallRequest, Completed, Deferred
from packhost.rules.policy import NamedApproval, Rule
from packhost.rules.statements import decision_statement
from packhost.store.ops import approvals, grants
from packhost.store.ops import operators as operator_rows
from packhost.store.rows import ApprovalAnswer, NewGrant
from packhost.workspace import operator as operator_files
from packhost.workspace.operator import OperatorFile, make_record

APPROVE = Answer("approve", by="person", channel="client")
DENY = Answer("deny", by="person", channel="client")
NOBODY = Answer("unanswered", channel="client")

pytestmark = pytest.mark.anyio


class Dialog:
    """A client's dialog that gives these answers."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.shown: list[Any] = []
        self.asked = anyio.Event()
        self.patience: anyio.Event | None = None

    async def ask(self, prompt: Any) -> Answer:
        self.shown.append(prompt)
        self.asked.set()
        if self.patience is not None:
            await self.patience.wait()
        return self.answers.pop(0)


@pytest.fixture
def asking(bench: Any) -> Any:
    """A write tool with a path and a content, which a rule asks about."""
    bench.rules = [Rule("ask", "writes are looked at first", True, None, permission="write")]
    bench.tool(
        "change",
        permission="write",
        required_scopes=("path write src/**",),
        input_schema={
            "type": "object",
            "properties": {"path": {"type": "string", "x-path": "write"}, "content": {"type": "string"}},
        },
    )
    return bench


@pytest.fixture
def edited(tmp_path: Path) -> Callable[..., None]:
    """Edits the database by hand, behind the host's back."""

    def edit(sql: str, *params: Any) -> None:
        with sqlite3.connect(tmp_path / "store.db") as database:
            database.execute(sql, params)
        database.close()

    return edit


class Pen:
    """An operator's key, as whoever knows the passphrase has it."""

    def __init__(self, bench: Any, signer: Any) -> None:
        self.bench = bench
        self.signer = signer

    def sign(self, row: Any, *, by: str = "ann", verdict: str = "approve", **other: Any) -> Signed:
        at = self.bench.store.read(lambda tx: tx.now())
        facts = {
            "workspace": row.workspace,
            "approval_id": row.id,
            "binding": row.binding,
            "verdict": verdict,
            "reason": "",
            "by": by,
            "at": at,
            "expires_at": row.expires_at,
        }
        return Signed(at, self.signer.sign(decision_statement(**{**facts, **other})))


@pytest.fixture
async def operator(asking: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pen:
    """An operator is set up, and the tool `change` needs one."""
    monkeypatch.setattr(operator_files, "COST", 2**12)
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    record, signer = make_record("correct horse", by="ann", at=0.0)
    operators = Operators(asking.store, OperatorFile(state))
    gate = asking.gate
    gate.operators = gate.approvals._operators = operators
    await operators.succeed(record, None, "ann")
    asking.named["t:go"] = NamedApproval("t:go", "Go", "operator")
    asking.tool("change", permission="write", required_approvals=("t:go",))
    return Pen(asking, signer)


async def wanting(bench: Any, arguments: dict[str, Any] | None = None, **caller: Any) -> Any:
    """The record that a call waits for."""
    found: Any = await bench.call("change", arguments or {}, Dialog(NOBODY), **caller)
    return bench.store.read(approvals.get, found.approval_id)


# --- an answer that does too little, or too much -----------------------------------------------------


async def test_an_approval_lets_the_call_run_afterwards(asking: Any) -> None:
    row = await wanting(asking, {"path": "src/a.txt"})
    await asking.gate.decide(row.id, "approve", by="ann", channel="cli")
    assert isinstance(await asking.call("change", {"path": "src/a.txt"}), Completed)


async def test_a_rejection_does_not_resume_the_call(asking: Any) -> None:
    dialog = Dialog(DENY)
    found: Any = await asking.call("change", {"path": "src/a.txt"}, dialog)
    assert found.code == "APPROVAL_DENIED"
    with pytest.raises(Conflict):
        await asking.gate.decide(dialog.shown[0].approval_id, "approve", by="ann", channel="cli")
    assert asking.ran == []


async def test_one_approval_is_not_replayed(asking: Any, edited: Callable[..., None]) -> None:
    row = await wanting(asking)
    await asking.gate.decide(row.id, "approve", by="ann", channel="cli")
    assert isinstance(await asking.call("change", {}), Completed)
    edited("UPDATE approvals SET consumed_by=NULL, status='approved' WHERE id=?", row.id)
    found: Any = await asking.call("change", {})
    assert found.code == "APPROVAL_REQUIRED"
    assert asking.ran == ["change"]


async def test_a_used_approval_stays_used_for_a_host_that_was_started_again(
    asking: Any, edited: Callable[..., None]
) -> None:
    row = await wanting(asking)
    await asking.gate.decide(row.id, "approve", by="ann", channel="cli")
    assert isinstance(await asking.call("change", {}), Completed)
    edited("UPDATE approvals SET consumed_by=NULL WHERE id=?", row.id)
    asking.gate.approvals._used.clear()
    await asking.call("change", {})
    assert asking.ran == ["change"]


@pytest.mark.parametrize(
    "arguments",
    [
        {"path": "src/b.txt", "content": "x"},
        {"path": "src/a.txt", "content": "y"},
        {"path": "src/a.txt", "content": "x", "mode": "w"},
        {"path": "src/a.txt"},
        {"path": "src/a.tXt", "content": "x"},
    ],
)
async def test_other_arguments_are_not_approved_along(asking: Any, arguments: dict[str, Any]) -> None:
    row = await wanting(asking, {"path": "src/a.txt", "content": "x"})
    await asking.gate.decide(row.id, "approve", by="ann", channel="cli")
    assert (await asking.call("change", arguments)).code == "APPROVAL_REQUIRED"
    assert asking.ran == []


async def test_a_hidden_argument_that_changed_is_not_approved_along(asking: Any) -> None:
    asking.variables = {"tenant": "one"}
    asking.tool("change", permission="write", hidden_parameters=("tenant",))
    row = await wanting(asking)
    await asking.gate.decide(row.id, "approve", by="ann", channel="cli")
    asking.variables = {"tenant": "two"}
    asking.reload()
    assert (await asking.call("change", {})).code == "APPROVAL_REQUIRED"


async def test_a_tool_that_changed_is_not_approved_along(asking: Any) -> None:
    row = await wanting(asking)
    await asking.gate.decide(row.id, "approve", by="ann", channel="cli")
    asking.tools["t:change"] = replace(asking.tools["t:change"], version="1-def")
    asking.reload()
    assert (await asking.call("change", {})).code == "APPROVAL_REQUIRED"


async def test_a_session_lowered_while_a_person_reads_is_lowered(asking: Any) -> None:
    dialog = Dialog(APPROVE)
    dialog.patience = anyio.Event()
    outcome: list[Any] = []
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:

            async def call() -> None:
                outcome.append(await asking.call("change", {}, dialog))

            group.start_soon(call)
            await dialog.asked.wait()
            await asking.gate.sessions.change("s-1", "observe", by="ann")
            dialog.patience.set()
    assert outcome[0].code == "AUTONOMY_DENIED"
    assert asking.ran == []


async def test_a_rule_that_came_while_a_person_read_holds(asking: Any) -> None:
    row = await wanting(asking)
    await asking.gate.decide(row.id, "approve", by="ann", channel="cli")
    asking.rules = [Rule("deny", "not any more", tool="t:change")]
    asking.reload()
    assert (await asking.call("change", {})).code == "POLICY_DENIED"


async def test_terms_that_rose_after_the_question_are_asked_afresh(asking: Any) -> None:
    row = await wanting(asking)
    await asking.gate.decide(row.id, "approve", by="ann", channel="cli")
    asking.rules = [Rule("ask", "two must agree", tool="t:change", approvers=2)]
    asking.reload()
    again = await wanting(asking)
    assert (again.id != row.id, again.approvers_needed) == (True, 2)
    assert asking.store.read(approvals.get, row.id).status == "cancelled"


async def test_the_rejections_of_a_call_end_its_asking(asking: Any) -> None:
    dialog = Dialog(DENY, DENY, DENY)
    for _ in range(4):
        assert (await asking.call("change", {}, dialog)).code == "APPROVAL_DENIED"
    assert len(dialog.shown) == 3


async def test_an_approval_at_the_very_end_of_its_time_is_too_late(
    asking: Any, edited: Callable[..., None]
) -> None:
    row = await wanting(asking)
    await asking.gate.decide(row.id, "approve", by="ann", channel="cli")
    edited("UPDATE approvals SET expires_at=? WHERE id=?", asking.store.read(lambda tx: tx.now()), row.id)
    assert (await asking.call("change", {})).code == "APPROVAL_REQUIRED"
    with pytest.raises(Conflict):
        await asking.gate.decide(row.id, "approve", by="ann", channel="cli")


async def test_of_answers_at_once_exactly_one_counts(asking: Any) -> None:
    row = await wanting(asking)
    won: list[str] = []

    async def answer(verdict: Any) -> None:
        with suppress(Conflict):
            won.append((await asking.gate.decide(row.id, verdict, by="ann", channel="cli")).status)

    async with anyio.create_task_group() as group:
        for verdict in ("approve", "deny") * 5:
            group.start_soon(answer, verdict)
    assert len(won) == 1
    assert asking.store.read(approvals.get, row.id).status == won[0]


@pytest.mark.parametrize("by", ["ann", " Ann ", "ANN"])
async def test_one_person_is_not_two(asking: Any, by: str) -> None:
    asking.rules = [Rule("ask", "two must agree", tool="t:change", approvers=2)]
    asking.reload()
    row = await wanting(asking)
    assert (await asking.gate.decide(row.id, "approve", by="ann", channel="cli")).status == "pending"
    with pytest.raises(Conflict):
        await asking.gate.decide(row.id, "approve", by=by, channel="client")
    assert (await asking.gate.decide(row.id, "approve", by="bob", channel="api")).status == "approved"
    assert isinstance(await asking.call("change", {}), Completed)


async def test_a_dialogs_answer_that_is_not_enough_says_so(asking: Any) -> None:
    asking.rules = [Rule("ask", "two must agree", tool="t:change", approvers=2)]
    asking.reload()
    with anyio.fail_after(5):
        found: Any = await asking.call("change", {}, Dialog(APPROVE))
    assert found.code == "APPROVAL_REQUIRED"
    assert "another person" in found.message


# --- whoever asks does not answer --------------------------------------------------------------------


async def test_a_nested_call_does_not_use_the_approval_of_a_direct_one(asking: Any) -> None:
    row = await wanting(asking, {"path": "src/a.txt"})
    await asking.gate.decide(row.id, "approve", by="ann", channel="cli")
    found: list[Any] = []

    async def outer(context: Any, arguments: Any) -> Any:
        try:
            await context.call_tool("t:change", {"path": "src/a.txt"})
        except PackhostError as error:
            found.append(error.code)
        return {}

    asking.tool("outer", outer, required_scopes=("tool t:change",))
    dialog = Dialog(DENY)
    await asking.call("outer", {}, dialog)
    assert found == ["APPROVAL_DENIED"]
    assert dialog.shown[0].approval_id != row.id


async def test_an_agent_puts_only_its_own_questions_and_its_word_decides_nothing(asking: Any) -> None:
    row = await wanting(asking)
    answers: list[Any] = []

    async def put(context: Any, arguments: Any) -> Any:
        try:
            found = await asking.gate.approvals.put_to_person(row.id, "approve", "please", context=context)
        except PackhostError as error:
            found = {"code": error.code}
        answers.append(found)
        return {}

    asking.tool("put", put)
    await asking.call("put", {})
    await asking.call("put", {}, Dialog(NOBODY))
    await asking.call("put", {}, Dialog(APPROVE), client="another", session_id="s-2")
    assert answers == [{"code": "APPROVAL_REQUIRED"}, {"code": "APPROVAL_REQUIRED"}, {"code": "NOT_FOUND"}]
    assert asking.store.read(approvals.get, row.id).status == "pending"
    await asking.call("put", {}, Dialog(DENY))
    assert asking.store.read(approvals.get, row.id).status == "denied"


async def test_a_relaying_client_that_defers_holds_nothing_but_the_question(asking: Any) -> None:
    found = await asking.call("change", {}, Dialog(Answer("deferred")))
    assert isinstance(found, Deferred)
    assert asking.store.read(approvals.get, found.prompt.approval_id).status == "pending"
    assert asking.ran == []


async def test_nothing_that_a_handler_is_given_can_make_a_grant(asking: Any) -> None:
    reached: list[str] = []

    async def look(context: Any, arguments: Any) -> Any:
        services = asking.gate.approvals
        reached.extend(name for name in dir(services) if "grant" in name and not name.startswith("_"))
        return {}

    asking.tool("look", look)
    await asking.call("look", {})
    assert reached == []


# --- records that were edited by hand ----------------------------------------------------------------

FORGED = [
    "UPDATE approvals SET status='approved' WHERE id=:id",
    "UPDATE approvals SET status='approved', decided_by='ann', answers_json=:client WHERE id=:id",
    "UPDATE approvals SET status='approved', assurance='client', answers_json=:client WHERE id=:id",
    "UPDATE approvals SET status='approved', answers_json=:unsigned WHERE id=:id",
    "UPDATE approvals SET status='approved', answers_json=:badly WHERE id=:id",
    "UPDATE approvals SET status='approved', answers_json='[{}]' WHERE id=:id",
    "UPDATE approvals SET status='approved', answers_json='x' WHERE id=:id",
]


def answers(assurance: str, signature: str) -> str:
    return json.dumps(
        [
            {
                "verdict": "approve",
                "by": "ann",
                "channel": "cli",
                "reason": "",
                "assurance": assurance,
                "at": 1.0,
                "signature": signature,
            }
        ]
    )


@pytest.mark.parametrize("sql", FORGED)
async def test_an_edited_row_approves_nothing_that_needs_an_operator(
    sql: str, asking: Any, operator: Pen, tmp_path: Path
) -> None:
    row = await wanting(asking)
    with sqlite3.connect(tmp_path / "store.db") as database:
        database.execute(
            sql,
            {
                "id": row.id,
                "client": answers("client", ""),
                "unsigned": answers("operator", ""),
                "badly": answers("operator", "00" * 64),
            },
        )
    database.close()
    found: Any = await asking.call("change", {}, Dialog(NOBODY))
    assert found.code == "APPROVAL_REQUIRED"
    assert asking.ran == []


async def test_a_forged_status_approves_nothing_at_all(asking: Any, edited: Callable[..., None]) -> None:
    row = await wanting(asking)
    edited("UPDATE approvals SET status='approved', decided_by='ann' WHERE id=?", row.id)
    assert (await asking.call("change", {})).code == "APPROVAL_REQUIRED"
    assert asking.ran == []


async def test_what_the_operator_signs_runs_once(asking: Any, operator: Pen) -> None:
    row = await wanting(asking)
    await asking.gate.decide(row.id, "approve", by="ann", channel="cli", signed=operator.sign(row))
    assert isinstance(await asking.call("change", {}), Completed)
    assert (await asking.call("change", {})).code == "APPROVAL_REQUIRED"


@pytest.mark.parametrize(
    "other",
    [
        {"approval_id": "ap_other"},
        {"binding": "0" * 64},
        {"workspace": "elsewhere"},
        {"verdict": "deny"},
        {"by": "bob"},
        {"reason": "because"},
        {"expires_at": 1e12},
        {"at": 1.0},
    ],
    ids=lambda other: next(iter(other)),
)
async def test_a_signature_is_for_one_answer_to_one_question(
    other: dict[str, Any], asking: Any, operator: Pen
) -> None:
    row = await wanting(asking)
    with pytest.raises(PackhostError) as caught:
        await asking.gate.decide(
            row.id, "approve", by="ann", channel="cli", signed=operator.sign(row, **other)
        )
    assert caught.value.code == "APPROVAL_MODE_UNSUPPORTED"
    assert asking.store.read(approvals.get, row.id).status == "pending"


async def test_an_old_signature_is_no_answer(asking: Any, operator: Pen) -> None:
    row = await wanting(asking)
    at = asking.store.read(lambda tx: tx.now()) - 3_600
    signed = Signed(at, operator.sign(row, at=at).signature)
    with pytest.raises(PackhostError) as caught:
        await asking.gate.decide(row.id, "approve", by="ann", channel="cli", signed=signed)
    assert "another time" in caught.value.message


async def test_another_approvals_signature_does_not_serve_in_the_row(
    asking: Any, operator: Pen, edited: Callable[..., None]
) -> None:
    first = await wanting(asking, {"path": "src/a"})
    await asking.gate.decide(first.id, "approve", by="ann", channel="cli", signed=operator.sign(first))
    second = await wanting(asking, {"path": "src/b"})
    edited(
        "UPDATE approvals SET status='approved', answers_json=(SELECT answers_json FROM approvals WHERE id=?)"
        " WHERE id=?",
        first.id,
        second.id,
    )
    assert (await asking.call("change", {"path": "src/b"})).code == "APPROVAL_REQUIRED"
    assert isinstance(await asking.call("change", {"path": "src/a"}), Completed)


async def test_a_longer_life_written_into_the_row_breaks_the_signature(
    asking: Any, operator: Pen, edited: Callable[..., None]
) -> None:
    row = await wanting(asking)
    await asking.gate.decide(row.id, "approve", by="ann", channel="cli", signed=operator.sign(row))
    edited("UPDATE approvals SET expires_at=expires_at+86400 WHERE id=?", row.id)
    assert (await asking.call("change", {})).code == "APPROVAL_REQUIRED"


async def test_another_key_in_the_store_approves_nothing(
    asking: Any, operator: Pen, edited: Callable[..., None]
) -> None:
    record, signer = make_record("mallory's own", by="mallory", at=0.0)
    edited("UPDATE operators SET public_key=?, fingerprint=?", record.public_key, record.fingerprint)
    row = await wanting(asking)
    for pen in (operator, Pen(asking, signer)):
        with pytest.raises(PackhostError) as caught:
            await asking.gate.decide(row.id, "approve", by="ann", channel="cli", signed=pen.sign(row))
        assert caught.value.code == "APPROVAL_MODE_UNSUPPORTED"


async def test_a_key_exchanged_in_both_places_is_noticed_by_the_host_that_runs(
    asking: Any, operator: Pen, edited: Callable[..., None], tmp_path: Path
) -> None:
    row = await wanting(asking)
    record, signer = make_record("mallory's own", by="mallory", at=0.0)
    edited("UPDATE operators SET public_key=?, fingerprint=?", record.public_key, record.fingerprint)
    (tmp_path / "state" / "operator.json").write_text(json.dumps(record.as_json()))
    with pytest.raises(PackhostError) as caught:
        await asking.gate.decide(
            row.id, "approve", by="ann", channel="cli", signed=Pen(asking, signer).sign(row)
        )
    assert "exchanged" in caught.value.message


async def test_a_former_operators_answers_end_with_them(asking: Any, operator: Pen) -> None:
    row = await wanting(asking)
    await asking.gate.decide(row.id, "approve", by="ann", channel="cli", signed=operator.sign(row))
    present = asking.store.read(operator_rows.current)
    await asking.store.write(operator_rows.succeed, present.fingerprint, None, "", "ann", "")
    found: Any = await asking.call("change", {}, Dialog(NOBODY))
    assert found.code == "APPROVAL_REQUIRED"
    assert found.approval_id != row.id


async def test_no_dialog_gives_an_operators_approval(asking: Any, operator: Pen) -> None:
    dialog = Dialog(APPROVE)
    with anyio.fail_after(5):
        found: Any = await asking.call("change", {}, dialog)
    assert found.code == "APPROVAL_REQUIRED"
    assert "packhost approvals approve" in dialog.shown[0].text
    assert "No dialog can give that" in dialog.shown[0].text
    assert asking.pending()


# --- grants that are wider than they were given -------------------------------------------------------


@pytest.fixture
def granted(asking: Any) -> Callable[..., Any]:
    """Gives a grant for `t:change`."""

    async def give(match: dict[str, Any], **more: Any) -> None:
        facts = {"principal": "ann", "tool_version": "1-abc", **more}
        version = facts.pop("tool_version")
        await asking.store.write(
            grants.add, NewGrant("gr_1", "t:change", version, json.dumps(match), "ann", **facts)
        )

    return give


BELOW = {"path": {"glob": "src/**"}, "content": {"any": True}}


@pytest.mark.parametrize(
    "arguments",
    [
        {"path": "src", "content": "x"},
        {"path": "src/a.txt", "content": "x", "mode": "w"},
        {"content": "x"},
        {"path": "src/../src2/a", "content": "x"},
        {"path": "src/./../packhost.yaml", "content": "x"},
        {"path": "./docs/a", "content": "x"},
        {"path": "/src/a", "content": "x"},
        {"path": "srcs/a", "content": "x"},
    ],
)
async def test_a_grant_for_a_folder_is_for_nothing_beside_it(
    arguments: dict[str, Any], asking: Any, granted: Any
) -> None:
    asking.bound = ["path read **", "path write **", "tool *"]
    asking.reload()
    await granted(BELOW)
    assert not isinstance(await asking.call("change", arguments), Completed)
    assert asking.ran == []
    assert isinstance(await asking.call("change", {"path": "src/a/b.txt", "content": "y"}), Completed)


@pytest.mark.parametrize("where", ["link", "src/link"])
async def test_a_grant_does_not_follow_a_link_out_of_its_folder(
    where: str, asking: Any, granted: Any
) -> None:
    (asking.root / "docs").mkdir()
    (asking.root / where).symlink_to(asking.root / "docs")
    await granted(BELOW)
    assert not isinstance(await asking.call("change", {"path": f"{where}/a", "content": "x"}), Completed)
    assert asking.ran == []


@pytest.mark.parametrize(
    "more",
    [
        {"principal": "bob"},
        {"tool_version": "1-abd"},
        {"expires_at": 1.0},
        {"max_uses": 0},
        {"hidden": "of other hidden arguments"},
    ],
    ids=lambda more: next(iter(more)),
)
async def test_a_grant_for_something_else_covers_nothing(more: Any, asking: Any, granted: Any) -> None:
    await granted(BELOW, **more)
    assert (await asking.call("change", {"path": "src/a", "content": "x"})).code == "APPROVAL_REQUIRED"


@pytest.mark.parametrize(
    "rule",
    [
        Rule("ask", "an operator", tool="t:change", assurance="operator"),
        Rule("ask", "two", tool="t:change", approvers=2),
        Rule("deny", "no", tool="t:change"),
    ],
    ids=lambda rule: rule.reason,
)
async def test_a_grant_does_not_outweigh_what_asks_for_more(rule: Rule, asking: Any, granted: Any) -> None:
    await granted(BELOW)
    asking.rules.append(rule)
    asking.reload()
    assert not isinstance(await asking.call("change", {"path": "src/a", "content": "x"}), Completed)


async def test_a_grant_of_part_of_what_a_call_needs_lets_nothing_run(asking: Any, granted: Any) -> None:
    asking.named["t:may"] = NamedApproval("t:may", "May")
    asking.named["t:may_not"] = NamedApproval("t:may_not", "May not", grantable=False)
    asking.tool("change", permission="write", required_approvals=("t:may", "t:may_not"))
    await granted({})
    assert (await asking.call("change", {})).code == "APPROVAL_REQUIRED"


async def test_at_supervised_a_grant_does_not_answer(asking: Any, granted: Any) -> None:
    await granted(BELOW)
    asking.autonomy = replace(asking.autonomy, default="supervised")
    asking.reload()
    assert (await asking.call("change", {"path": "src/a", "content": "x"})).code == "APPROVAL_REQUIRED"


async def test_the_last_use_of_a_grant_is_one_calls_alone(asking: Any, granted: Any) -> None:
    await granted(BELOW, max_uses=1)
    outcomes: list[Any] = []

    async def call(number: int) -> None:
        outcomes.append(await asking.call("change", {"path": f"src/{number}", "content": "x"}))

    async with anyio.create_task_group() as group:
        for number in range(6):
            group.start_soon(call, number)
    assert sum(isinstance(outcome, Completed) for outcome in outcomes) == 1
    assert len(asking.ran) == 1


async def test_where_it_is_switched_off_no_grant_answers(asking: Any, granted: Any) -> None:
    await granted(BELOW)
    asking.terms = Terms(600.0, "hold", always_allow=False)
    asking.reload()
    assert (await asking.call("change", {"path": "src/a", "content": "x"})).code == "APPROVAL_REQUIRED"


@pytest.mark.parametrize("match", ["[]", '{"path": {"glob": "../**"}}', '{"path": {"what": 1}}'])
async def test_a_grant_that_cannot_be_read_covers_nothing(
    match: str, asking: Any, granted: Any, edited: Callable[..., None]
) -> None:
    await granted(BELOW)
    edited("UPDATE grants SET match_json=?", match)
    assert (await asking.call("change", {"path": "src/a", "content": "x"})).code == "APPROVAL_REQUIRED"


async def test_a_control_tool_is_never_offered_for_good(asking: Any) -> None:
    asking.tool("change", permission="write", control=True)
    row = await wanting(asking)
    with pytest.raises(PackhostError) as caught:
        asking.gate.granting.offer(row.id, {}, [])
    assert caught.value.code == "APPROVAL_MODE_UNSUPPORTED"


async def test_what_changed_since_the_question_is_not_offered_for_good(asking: Any) -> None:
    row = await wanting(asking, {"path": "src/a.txt", "content": "x"})
    asking.tools["t:change"] = replace(asking.tools["t:change"], version="1-def")
    asking.reload()
    with pytest.raises(PackhostError, match="has changed"):
        asking.gate.granting.offer(row.id, {}, [])


async def test_an_offer_is_for_exactly_the_call(asking: Any) -> None:
    row = await wanting(asking, {"path": "src/a.txt", "content": "x"})
    offer = asking.gate.granting.offer(row.id, {}, [])
    assert offer.pattern.as_json() == {"path": {"exact": "src/a.txt"}, "content": {"exact": "x"}}


# --- what a client's reply says and means -------------------------------------------------------------


async def test_an_unanswered_dialog_is_no_approval_however_often(asking: Any) -> None:
    dialog = Dialog(*[NOBODY] * 5)
    for _ in range(5):
        assert (await asking.call("change", {}, dialog)).code == "APPROVAL_REQUIRED"
    assert len({prompt.approval_id for prompt in dialog.shown}) == 1
    assert asking.ran == []


async def test_an_answer_recorded_by_another_hand_is_not_upgraded(asking: Any, operator: Pen) -> None:
    row = await wanting(asking)
    await asking.store.write(approvals.answer, row.id, ApprovalAnswer("approve", "ann", "client"))
    assert asking.store.read(approvals.get, row.id).status == "pending"
    assert (await asking.call("change", {}, Dialog(NOBODY))).code == "APPROVAL_REQUIRED"


async def test_explaining_a_call_uses_no_approval(asking: Any) -> None:
    row = await wanting(asking)
    await asking.gate.decide(row.id, "approve", by="ann", channel="cli")
    asking.gate.explain(CallRequest("t:change", {}, asking.caller))
    assert isinstance(await asking.call("change", {}), Completed)


async def test_explaining_a_call_says_that_a_grant_answers_and_counts_no_use(
    asking: Any, granted: Any
) -> None:
    await granted(BELOW)
    request = CallRequest("t:change", {"path": "src/a", "content": "x"}, asking.caller)
    trace = asking.gate.explain(request)
    assert trace.verdict == "allow"
    assert "the grant `gr_1` answers for it" in [step.detail for step in trace.steps]
    assert asking.store.read(grants.get, "gr_1").uses == 0
