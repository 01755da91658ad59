"""What an approval's record means for the call that waits for it."""

from __future__ import annotations

import json
from dataclasses import dataclass

from packhost.errors import StoreUnavailable, ToolFailed
from packhost.gate.types import Prompt, Refusal
from packhost.names import ToolId
from packhost.store.ops.approvals import told
from packhost.store.rows import ApprovalRow


@dataclass(frozen=True, slots=True)
class Approved:
    """A call that may run, and what allows it: used up with the intent."""

    approval_id: str | None = None
    binding: str | None = None
    grant_id: str | None = None
    answers_json: str | None = None


def prompt_of(row: ApprovalRow, nested: bool | None = None) -> Prompt:
    """The question that a record stands for; asked from inside another call when `nested`."""
    inside = row.run_id is not None if nested is None else nested
    operator = row.assurance == "operator"
    return Prompt(
        row.id,
        row.tool,
        row.prompt,
        row.expires_at,
        inside,
        operator=operator,
        withheld=withheld(row),
        owner=told(row)["approver"] == "owner",
    )


def withheld(row: ApprovalRow) -> bool:
    """Whether an end user asked for the call, and the question is for somebody else."""
    return bool(json.loads(row.told_json).get("end_user")) and told(row)["approver"] == "owner"


def settled(row: ApprovalRow) -> Approved | Refusal:
    """What a decided record means for the call that waits for it."""
    if row.status == "approved":
        return Approved(row.id, row.binding, answers_json=row.answers_json)
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


def unproved(row: ApprovalRow) -> Refusal:
    """The record says approved, and its answers do not prove it."""
    return Refusal(
        "APPROVAL_REQUIRED",
        f"the answer to approval `{row.id}` does not prove what this call needs",
        "make the same call again to ask afresh",
        approval_id=row.id,
    )


def required(row: ApprovalRow, note: str = "") -> Refusal:
    """The call waits for a person who was not reached; how to decide it and what to do then."""
    return Refusal(
        "APPROVAL_REQUIRED",
        f"`{row.tool}` waits for a person{f': {note}' if note else ''}",
        f"a person decides with `packhost approvals approve {row.id}`, or in the console "
        "(`packhost console`); then make the identical call again",
        approval_id=row.id,
        data={"expires_at": row.expires_at, "decide": f"packhost approvals approve {row.id}"},
    )


def too_many(client: str, most: int) -> Refusal:
    """A client has so many questions open that it may put no other."""
    return Refusal(
        "LIMIT_EXCEEDED",
        f"{most} questions of `{client}` wait for a person already",
        "wait until some are answered or expire, then make the same call again: `packhost approvals list`",
        data={"retry_after": 60},
    )


def uncommitted(tool: ToolId, error: StoreUnavailable) -> Refusal:
    """The call did not start, since nothing could be written of it."""
    return Refusal(
        "TOOL_INTENT_NOT_COMMITTED",
        f"`{tool}` did not run, its intent could not be written down: {error.message}",
        f"nothing happened; {error.hint or 'make the same call again'}",
    )


def raised(tool: ToolId, said: str) -> ToolFailed:
    """What ran the tool met a fault of its own, which is no word of the tool's."""
    return ToolFailed(f"`{tool}` failed: {said}", hint="check the arguments, or tell the pack's author")
