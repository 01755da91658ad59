"""Step five: a live grant, or a person.

One record for each question, whatever channel answers it, and the first answer wins. The identical
call attaches to the record that is pending or approved; an approval is used once, in the same
transaction as the intent of the call that it allows. What the record says is not taken at its word:
see `answers`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal

import anyio

from packhost.errors import Conflict, NotFound, PackhostError
from packhost.gate.answers import another_person, of_owner, own, sound, statement_of, weaker
from packhost.gate.configuration import Terms
from packhost.gate.context import Deadline, GateContext, refused
from packhost.gate.display import as_text
from packhost.gate.evaluate import Evaluation
from packhost.gate.granting import Granting, path_names
from packhost.gate.operators import Operators, Signed
from packhost.gate.outcomes import Approved, prompt_of, required, settled, too_many, unproved, withheld
from packhost.gate.prompt import Question, cuts
from packhost.gate.types import Asker, Caller, Deferred, Prompt, Refusal
from packhost.kinds.context import CallContext
from packhost.names import new_id
from packhost.rules.approvals import binding, may_ask_again
from packhost.rules.autonomy import Level
from packhost.rules.policy import Decision
from packhost.store.base import Store, Tx
from packhost.store.ops import approvals, grants
from packhost.store.rows import ApprovalAnswer, ApprovalRow, NewApproval, NewGrant

Preview = Callable[[], Awaitable[str]]
MAX_WAITING = 100
"""Questions of one client that wait for a person at once: nobody reads more, and each is kept."""


class Approvals:
    """Questions to people about calls: asked, attached to, answered."""

    def __init__(
        self,
        store: Store,
        key: bytes,
        terms: Callable[[], Terms],
        operators: Operators,
        granting: Granting,
        level: Callable[[str], Level],
    ) -> None:
        self._store = store
        self._key = key
        self._terms = terms
        self._operators = operators
        self._granting = granting
        self._level = level
        self._used: set[str] = set()

    def binding(self, evaluation: Evaluation, caller: Caller) -> str:
        """The keyed digest of exactly this call by exactly this requester."""
        return binding(
            self._key,
            workspace=self._store.workspace,
            principal=caller.principal,
            client=caller.client,
            run_id=caller.run_id,
            tool=evaluation.entry.tool.id.canonical,
            tool_version=evaluation.entry.tool.version,
            arguments=evaluation.arguments,
        )

    async def obtain(
        self,
        evaluation: Evaluation,
        caller: Caller,
        asker: Asker | None,
        preview: Preview,
        deadline: Deadline | None,
    ) -> Approved | Refusal | Deferred:
        """Find a grant or an approved record, else ask and wait; `deadline` stands still meanwhile."""
        digest = self.binding(evaluation, caller)
        live = self._store.read(approvals.find_live, digest, self._now())
        if live is not None and live.status == "approved" and self._flaw(live, evaluation.decision) is None:
            return Approved(live.id, digest, answers_json=live.answers_json)
        granted = self._granting.covering(evaluation, caller.principal)
        if granted is not None:
            return Approved(grant_id=granted)
        terms = self._terms()
        asked_of_owner = not evaluation.decision.consent
        if terms.unattended == "reject" and asked_of_owner and unattended(asker, caller):
            return Refusal(
                "APPROVAL_MODE_UNSUPPORTED",
                f"`{evaluation.entry.tool.id}` needs a person, and this caller's channel can ask none",
                "call it from a client that shows dialogs, or set `approvals.unattended: hold`",
            )
        row = await self._record(evaluation, caller, digest, preview, terms)
        if isinstance(row, Refusal):
            return row
        if row.status == "approved":
            return Approved(row.id, digest, answers_json=row.answers_json)
        if caller.run_id is None and (asker is None or withheld(row)):
            return required(row)
        if deadline is None:
            return await self._wait(row, asker, evaluation.decision)
        deadline.hold()
        try:
            return await self._wait(row, asker, evaluation.decision)
        finally:
            deadline.release()

    def used(self, approval_id: str) -> None:
        """Remember that an approval was used up, whatever becomes of its record."""
        self._used.add(approval_id)

    async def _record(
        self, evaluation: Evaluation, caller: Caller, digest: str, preview: Preview, terms: Terms
    ) -> ApprovalRow | Refusal:
        """The live record of this very call, or a new one; a refusal after three rejections."""
        now = self._now()
        live = self._store.read(approvals.find_live, digest, now)
        if live is not None:
            flaw = self._flaw(live, evaluation.decision)
            if flaw is None:
                return live
            await self._store.write(approvals.void, live.id, "host", flaw)
        tool = evaluation.entry.tool
        rejected = self._store.read(approvals.denied_since, digest, now - terms.timeout)
        if not may_ask_again(rejected, now=now, timeout=terms.timeout):
            return Refusal(
                "APPROVAL_DENIED",
                f"a person rejected this call to `{tool.id}` three times",
                "do not repeat it; do something else, or ask the person what they would accept",
            )
        if self._store.read(approvals.waiting, caller.principal, caller.client, now) >= MAX_WAITING:
            return too_many(caller.client, MAX_WAITING)
        new = self._new(evaluation, caller, digest, await preview(), now + terms.timeout, terms)
        return await self._store.write(approvals.request, new)

    def _flaw(self, row: ApprovalRow, decision: Decision | None) -> str | None:
        """Why a live record cannot count for the call that found it."""
        if row.id in self._used:
            return "it was used already"
        if row.status == "approved" and not sound(row, decision, self._operators):
            return "its answers do not prove what the call needs"
        if decision is not None and row.status == "pending" and weaker(row, decision):
            return "the call needs more by now than was asked for"
        return None

    def _new(
        self,
        evaluation: Evaluation,
        caller: Caller,
        digest: str,
        preview: str,
        expires_at: float,
        terms: Terms,
    ) -> NewApproval:
        tool, decision = evaluation.entry.tool, evaluation.decision
        shown = evaluation.entry.shown(evaluation.arguments)
        identity = new_id("ap")
        asked = Question(
            approval_id=identity,
            tool=tool.id.canonical,
            tool_version=tool.version,
            arguments=shown,
            paths=path_names(evaluation.entry),
            preview=preview,
            reasons=decision.reasons,
            approvals=decision.approvals,
            approvers=decision.approvers,
            assurance=decision.assurance,
            client=caller.client,
            principal=caller.principal,
            session=caller.session_id,
            level=self._level(caller.session_id),
            run=caller.run_id,
            subagent=caller.subagent,
            said=evaluation.said,
            expires_in=terms.timeout,
            expires_at=expires_at,
        )
        return NewApproval(
            id=identity,
            session_id=caller.session_id,
            principal=caller.principal,
            client=caller.client,
            tool=tool.id.canonical,
            tool_version=tool.version,
            binding=digest,
            names=tuple(named.name for named in decision.approvals),
            assurance=decision.assurance,
            approvers_needed=decision.approvers,
            prompt=evaluation.redact(asked.text()),
            args_json=evaluation.display_json,
            expires_at=expires_at,
            execution_id=caller.run_id,
            run_id=caller.run_id,
            subagent=caller.subagent,
            told_json=as_text(
                {
                    "tool_call_id": evaluation.tool_use_id,
                    "tool_type": tool.spec.kind,
                    "iteration": evaluation.turn,
                    "timeout": terms.timeout,
                    **({"approver": "end-user"} if decision.consent else {}),
                    **({"end_user": True} if caller.end_user else {}),
                    **({approvals.PREVIEW: evaluation.redact(preview)} if cuts(preview) else {}),
                }
            ),
        )

    async def put_to_person(
        self,
        approval_id: str,
        decision: Literal["approve", "deny"],
        reason: str,
        *,
        context: CallContext,
    ) -> dict[str, str]:
        """Put a pending question into the caller's own dialog; what the agent says of it decides nothing.

        :raises NotFound: when no such question was asked by the caller's client or a run that it started.
        :raises PackhostError: `APPROVAL_REQUIRED` when no person answered.
        """
        row = self._store.read(approvals.get, approval_id)
        if (row.principal, row.client) != (context.principal, context.client):
            raise NotFound(
                f"there is no approval `{approval_id}` of this client", hint="only its own can be put"
            )
        asker = context.asker if isinstance(context, GateContext) else None
        if row.status == "pending" and (asker is None or withheld(row)):
            raise refused(required(row))
        if row.status == "pending":
            outcome = await self._wait(row, asker, nested=True)
        else:
            outcome = self._settled(row, None)
        if isinstance(outcome, Approved):
            return {"approval_id": row.id, "status": "approved"}
        if isinstance(outcome, Refusal) and outcome.code in ("APPROVAL_DENIED", "APPROVAL_EXPIRED"):
            return {"approval_id": row.id, "status": outcome.code.removeprefix("APPROVAL_").lower()}
        raise refused(required(row))

    async def _wait(
        self,
        row: ApprovalRow,
        asker: Asker | None,
        decision: Decision | None = None,
        *,
        nested: bool | None = None,
    ) -> Approved | Refusal | Deferred:
        """Ask through the caller's own channel and follow the record: whichever ends first."""
        found: list[Approved | Refusal | Deferred] = []
        prompt = prompt_of(row, nested)
        async with anyio.create_task_group() as group:

            async def follow() -> None:
                found.append(await self._follow(row, decision))
                group.cancel_scope.cancel()

            async def ask(by: Asker) -> None:
                outcome = await self._ask(by, prompt, row)
                if outcome is not None:
                    found.append(outcome)
                    group.cancel_scope.cancel()

            group.start_soon(follow)
            if asker is not None:
                group.start_soon(ask, asker)
        return found[0]

    async def _follow(self, asked: ApprovalRow, decision: Decision | None) -> Approved | Refusal:
        """Wait until the record is decided, by whatever channel, or its time is over."""
        with self._store.watch(f"approval:{asked.id}") as watch:
            while True:
                row = self._store.read(approvals.get, asked.id)
                if row.binding != asked.binding:
                    return unproved(asked)
                if row.status != "pending":
                    return self._settled(row, decision)
                left = row.expires_at - self._now()
                if left <= 0:
                    await self._store.write(approvals.expire_due)
                    continue
                with anyio.move_on_after(left):
                    await watch.changed()

    async def _ask(self, asker: Asker, prompt: Prompt, row: ApprovalRow) -> Refusal | Deferred | None:
        """Put the question; `None` once the record holds the answer, which whoever follows it sees."""
        answer = await asker.ask(prompt)
        if answer.verdict == "deferred":
            return Deferred(prompt)
        if answer.verdict == "unanswered":
            return required(row, answer.reason)
        try:
            row = await self.decide(
                row.id, answer.verdict, by=answer.by, channel=answer.channel, reason=answer.reason
            )
        except Conflict as conflict:
            if conflict.data.get("status") != "pending":
                return None  # decided elsewhere first
            return self._goes_on(row, conflict.message)
        except PackhostError as error:
            return self._goes_on(row, error.message)
        return self._goes_on(row, "another person must agree") if row.status == "pending" else None

    @staticmethod
    def _goes_on(row: ApprovalRow, note: str) -> Refusal | None:
        """A dialog's answer was not enough: a run waits on, a client is told."""
        return None if row.run_id is not None else required(row, note)

    def _settled(self, row: ApprovalRow, decision: Decision | None) -> Approved | Refusal:
        if row.status == "approved" and row.consumed_by is None and self._flaw(row, decision) is not None:
            return unproved(row)
        return settled(row)

    def _now(self) -> float:
        return self._store.now()

    async def decide(
        self,
        approval_id: str,
        verdict: Literal["approve", "deny"],
        *,
        by: str,
        channel: str,
        reason: str = "",
        signed: Signed | None = None,
        grant: NewGrant | None = None,
        session: str | None = None,
        end_user: bool = False,
    ) -> ApprovalRow:
        """Record a person's answer; the first one wins.

        With `signed` it is an operator's. `grant` is given along with an approval that decides. With
        `session` it is the end user's in whose session the run asks, with `end_user` one that came from an
        end user's dialog.

        :raises NotFound: when there is no such record, or none of that session's.
        :raises Conflict: when it is no longer pending, or this person has approved it already.
        :raises PackhostError: `APPROVAL_MODE_UNSUPPORTED` when it needs an operator's signature,
            `POLICY_DENIED` when it is the owner's to answer and not the end user's.
        """
        row = self._store.read(approvals.get, approval_id)
        answer = ApprovalAnswer(verdict, by, channel, reason)
        if session is not None:
            answer = own(row, answer, session)
        elif (channel == "client" and withheld(row)) or (end_user and prompt_of(row).owner):
            raise of_owner(row)  # a dialog of the end user's, whatever led to it
        if signed is not None:
            said = statement_of(row, verdict, reason, by, signed.at)
            self._operators.check(said, signed, self._now())
            answer = ApprovalAnswer(verdict, by, channel, reason, "operator", signed.at, signed.signature)
        elif row.assurance == "operator" and verdict == "approve":
            raise self._operators.missing(
                f"approval `{approval_id}` needs an operator", f"packhost approvals approve {approval_id}"
            )
        return await self._store.write(_answer, approval_id, answer, grant)


def unattended(asker: Asker | None, caller: Caller) -> bool:
    """Whether nobody can be asked through the caller's own channel."""
    return not caller.attended or (asker is None and caller.run_id is None)


def _answer(tx: Tx, approval_id: str, answer: ApprovalAnswer, grant: NewGrant | None) -> ApprovalRow:
    another_person(approvals.get(tx, approval_id), answer)
    row = approvals.answer(tx, approval_id, answer)
    if grant is not None and row.status == "approved":
        grants.add(tx, grant)
    return row
