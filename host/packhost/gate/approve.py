"""Step five: a live grant, or a person.

One record for each question, whatever channel answers it, and the first answer wins. The identical
call attaches to the record that is pending or approved; an approval is used once, in the same
transaction as the intent of the call that it allows.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

import anyio

from packhost.errors import Conflict, NotFound, PackhostError
from packhost.gate.configuration import Terms
from packhost.gate.context import Deadline, GateContext, refused
from packhost.gate.display import display_arguments, question
from packhost.gate.evaluate import Evaluation
from packhost.gate.types import Asker, Caller, Deferred, Prompt, Refusal
from packhost.kinds.context import CallContext
from packhost.names import ToolId, new_id
from packhost.rules.approvals import binding, may_ask_again
from packhost.rules.arguments import parse_argument_match
from packhost.rules.grants import Grant, covers
from packhost.store.base import Store
from packhost.store.ops import approvals, grants
from packhost.store.rows import ApprovalAnswer, ApprovalRow, GrantRow, NewApproval

Preview = Callable[[], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class Approved:
    """A call that may run, and what allows it: used up with the intent."""

    approval_id: str | None = None
    binding: str | None = None
    grant_id: str | None = None


class Approvals:
    """Questions to people about calls: asked, attached to, answered."""

    def __init__(self, store: Store, key: bytes, terms: Callable[[], Terms]) -> None:
        self._store = store
        self._key = key
        self._terms = terms

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
        granted = self._grant(evaluation, caller)
        if granted is not None:
            return Approved(grant_id=granted)
        terms = self._terms()
        if asker is None and caller.run_id is None and terms.unattended == "reject":
            return Refusal(
                "APPROVAL_MODE_UNSUPPORTED",
                f"`{evaluation.entry.tool.id}` needs a person, and this caller's channel can ask none",
                "call it from a client that shows dialogs, or set `approvals.unattended: hold`",
            )
        digest = self.binding(evaluation, caller)
        row = await self._record(evaluation, caller, digest, preview, terms)
        if isinstance(row, Refusal):
            return row
        if row.status == "approved":
            return Approved(row.id, digest)
        if asker is None and caller.run_id is None:
            return required(row)
        if deadline is None:
            return await self._wait(row, asker)
        deadline.hold()
        try:
            return await self._wait(row, asker)
        finally:
            deadline.release()

    def _grant(self, evaluation: Evaluation, caller: Caller) -> str | None:
        if not evaluation.decision.grantable:
            return None
        tool = evaluation.entry.tool
        now = self._now()
        for row in self._store.read(grants.for_tool, tool.id.canonical, now):
            if covers(_grant_of(row, tool.id, caller.principal), evaluation.facts, tool.version, now):
                return row.id
        return None

    async def _record(
        self, evaluation: Evaluation, caller: Caller, digest: str, preview: Preview, terms: Terms
    ) -> ApprovalRow | Refusal:
        """The live record of this very call, or a new one; a refusal after three rejections."""
        now = self._now()
        live = self._store.read(approvals.find_live, digest, now)
        if live is not None:
            return live
        tool = evaluation.entry.tool
        rejected = self._store.read(approvals.denied_since, digest, now - terms.timeout)
        if not may_ask_again(rejected, now=now, timeout=terms.timeout):
            return Refusal(
                "APPROVAL_DENIED",
                f"a person rejected this call to `{tool.id}` three times",
                "do not repeat it; do something else, or ask the person what they would accept",
            )
        new = self._new(evaluation, caller, digest, await preview(), now + terms.timeout, terms)
        return await self._store.write(approvals.request, new)

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
        shown = display_arguments(evaluation.arguments, evaluation.entry.hidden)
        identity = new_id("ap")
        text = question(
            tool=tool.id.canonical,
            client=caller.client,
            reasons=[
                f"{reason.text} ({reason.place})" if reason.place else reason.text
                for reason in decision.reasons
            ],
            arguments=shown,
            preview=preview,
            approval_id=identity,
            expires_in=terms.timeout,
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
            prompt=evaluation.redact(text),
            args_json=evaluation.display_json,
            expires_at=expires_at,
            execution_id=caller.run_id,
            run_id=caller.run_id,
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
        if row.status == "pending" and asker is None:
            raise refused(required(row))
        outcome = settled(row) if row.status != "pending" else await self._wait(row, asker, nested=True)
        if isinstance(outcome, Approved):
            return {"approval_id": row.id, "status": "approved"}
        if isinstance(outcome, Refusal) and outcome.code in ("APPROVAL_DENIED", "APPROVAL_EXPIRED"):
            return {"approval_id": row.id, "status": outcome.code.removeprefix("APPROVAL_").lower()}
        raise refused(required(row))

    async def _wait(
        self, row: ApprovalRow, asker: Asker | None, *, nested: bool | None = None
    ) -> Approved | Refusal | Deferred:
        """Ask through the caller's own channel and follow the record: whichever ends first."""
        found: list[Approved | Refusal | Deferred] = []
        prompt = prompt_of(row, nested)
        async with anyio.create_task_group() as group:

            async def follow() -> None:
                found.append(await self._follow(row))
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

    async def _follow(self, row: ApprovalRow) -> Approved | Refusal:
        """Wait until the record is decided, by whatever channel, or its time is over."""
        with self._store.watch(f"approval:{row.id}") as watch:
            while True:
                row = self._store.read(approvals.get, row.id)
                if row.status != "pending":
                    return settled(row)
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
            await self.decide(
                row.id, answer.verdict, by=answer.by, channel=answer.channel, reason=answer.reason
            )
        except Conflict:
            return None  # decided elsewhere first
        except PackhostError as error:
            return required(row, error.message)
        return None

    def _now(self) -> float:
        return self._store.read(lambda tx: tx.now())

    async def decide(
        self,
        approval_id: str,
        verdict: Literal["approve", "deny"],
        *,
        by: str,
        channel: str,
        reason: str = "",
    ) -> ApprovalRow:
        """Record a person's answer; the first one wins.

        :raises NotFound: when there is no such record.
        :raises Conflict: when it is no longer pending.
        :raises PackhostError: `APPROVAL_MODE_UNSUPPORTED` when it needs an operator's passphrase.
        """
        row = self._store.read(approvals.get, approval_id)
        if row.assurance == "operator" and verdict == "approve":
            raise PackhostError(
                f"approval `{approval_id}` needs an operator's passphrase, and no operator is set up",
                code="APPROVAL_MODE_UNSUPPORTED",
                hint="lower `assurance` to `client` in packhost.yaml, or deny it",
            )
        answer = ApprovalAnswer(verdict, by, channel, reason)
        return await self._store.write(approvals.answer, approval_id, answer)


def _grant_of(row: GrantRow, tool: ToolId, principal: str) -> Grant:
    """A stored grant as the rules read it; one for nobody in particular covers this principal."""
    return Grant(
        id=row.id,
        principal=row.principal or principal,
        tool=tool,
        tool_version=row.tool_version,
        arguments=tuple(
            parse_argument_match(path, match) for path, match in json.loads(row.match_json).items()
        ),
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
        maximum_uses=row.max_uses,
        uses=row.uses,
    )


def prompt_of(row: ApprovalRow, nested: bool | None = None) -> Prompt:
    """The question that a record stands for; asked from inside another call when `nested`."""
    inside = row.run_id is not None if nested is None else nested
    return Prompt(row.id, row.tool, row.prompt, row.expires_at, inside)


def settled(row: ApprovalRow) -> Approved | Refusal:
    """What a decided record means for the call that waits for it."""
    if row.status == "approved":
        return Approved(row.id, row.binding)
    if row.status == "denied":
        reason = f": {row.reason}" if row.reason else ""
        return Refusal(
            "APPROVAL_DENIED",
            f"a person rejected this call to `{row.tool}`{reason}",
            "do not repeat it unchanged; ask what they would accept",
            approval_id=row.id,
        )
    return Refusal(
        "APPROVAL_EXPIRED",
        f"nobody answered approval `{row.id}` in time",
        "make the same call again to ask afresh",
        approval_id=row.id,
    )


def required(row: ApprovalRow, note: str = "") -> Refusal:
    """The call waits for a person who was not reached; how to decide it and what to do then."""
    return Refusal(
        "APPROVAL_REQUIRED",
        f"`{row.tool}` waits for a person{f': {note}' if note else ''}",
        f"a person decides with `packhost approvals approve {row.id}`; then make the identical call again",
        approval_id=row.id,
        data={"expires_at": row.expires_at, "decide": f"packhost approvals approve {row.id}"},
    )
