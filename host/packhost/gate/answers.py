"""Whether the answers on an approval's record are worth what the record says of them.

The record alone approves nothing: what counts is what the answers add up to under what the call needs
now, and of an operator's answer its signature over this very question. So a row that was edited by hand
approves nothing that needs an operator.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from packhost.errors import Conflict, NotFound, PackhostError
from packhost.gate.operators import Operators
from packhost.rules.approvals import Assurance, Vote, person, tally
from packhost.rules.policy import Decision
from packhost.rules.statements import decision_statement
from packhost.store.base import Reading
from packhost.store.ops import approvals, executions
from packhost.store.rows import ApprovalAnswer, ApprovalRow


def statement_of(row: ApprovalRow, verdict: str, reason: str, by: str, at: float) -> bytes:
    """What an operator signs to answer this question."""
    return decision_statement(
        workspace=row.workspace,
        approval_id=row.id,
        binding=row.binding,
        verdict=verdict,
        reason=reason,
        by=by,
        at=at,
        expires_at=row.expires_at,
    )


def sound(row: ApprovalRow, decision: Decision | None, operators: Operators) -> bool:
    """Whether an approved record is truly approved, for what `decision` asks if that is more."""
    try:
        answers = row.answers
    except (TypeError, ValueError):
        return False
    if row.status != "approved" or not all(_genuine(row, answer, operators) for answer in answers):
        return False
    needed, assurance = row.approvers_needed, row.assurance
    if decision is not None:
        needed, assurance = max(needed, decision.approvers), _higher(assurance, decision.assurance)
    if any(answer.role == "end-user" for answer in answers) and not _consent(row, decision):
        return False
    votes = [Vote(answer.by, answer.verdict == "approve", answer.assurance) for answer in answers]
    return tally(votes, needed, assurance) == "approved"


def _genuine(row: ApprovalRow, answer: ApprovalAnswer, operators: Operators) -> bool:
    if answer.assurance != "operator":
        return not answer.signature
    said = statement_of(row, answer.verdict, answer.reason, answer.by, answer.at)
    return operators.signed(said, answer.signature)


def _higher(first: Assurance, second: Assurance) -> Assurance:
    return "operator" if "operator" in (first, second) else "client"


def weaker(row: ApprovalRow, decision: Decision) -> bool:
    """Whether the question was put on terms that are less than the call needs now."""
    return (
        row.approvers_needed < decision.approvers
        or (row.assurance == "client" and decision.assurance == "operator")
        or (approvals.told(row)["approver"] == "end-user" and not decision.consent)
    )


def _consent(row: ApprovalRow, decision: Decision | None) -> bool:
    """Whether an end user's answer counts: when it was asked, and by what is decided now."""
    return approvals.told(row)["approver"] == "end-user" and (decision is None or decision.consent)


def own(row: ApprovalRow, answer: ApprovalAnswer, session: str) -> ApprovalAnswer:
    """The answer as that of the end user for whom the run goes; `session` is the one they speak from.

    :raises NotFound: it is another's, or of another session of theirs.
    :raises PackhostError: `POLICY_DENIED` where it is not theirs to answer.
    """
    if (row.principal, row.session_id) != (answer.by, session):
        raise NotFound(
            f"there is no approval `{row.id}` of this session",
            hint="answer in the session whose run asks: `session_id` of its envelope",
        )
    if approvals.told(row)["approver"] != "end-user":
        raise of_owner(row)
    return replace(answer, role="end-user")


def of_owner(row: ApprovalRow) -> PackhostError:
    """The refusal of an end user's answer to what is their owner's to answer."""
    return PackhostError(
        f"approval `{row.id}` is for whoever answers for the workspace to decide",
        code="POLICY_DENIED",
        hint="wait for an operator's answer",
    )


def another_person(row: ApprovalRow, answer: ApprovalAnswer) -> None:
    """Raise `Conflict` when the same person has approved with the same assurance already."""
    if answer.verdict != "approve" or row.status != "pending":
        return
    for former in row.answers:
        if person(former.by) == person(answer.by) and former.assurance in (answer.assurance, "operator"):
            raise Conflict(
                f"`{answer.by}` has approved `{row.id}` already, and it needs {row.approvers_needed} people",
                code="APPROVAL_REQUIRED",
                hint="another person must agree, under a name of their own",
                status=row.status,
                decided_by=None,
                consumed_by=None,
            )


def may_last(tx: Reading, run_id: str) -> bool:
    """Whether what a run asks may be allowed for good, as far as the request that started it says."""
    spec = json.loads(executions.get(tx, run_id).spec_json).get("spec", {})
    approval = spec.get("approval") if isinstance(spec, Mapping) else None
    choices = approval.get("choices") if isinstance(approval, Mapping) else None
    return not isinstance(choices, Mapping) or choices.get("always_allow") is not False
