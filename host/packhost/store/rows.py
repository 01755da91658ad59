"""What is stored, as frozen values: `New…` is what a caller hands in, `…Row` what is read back.

A field's order is its column's. `…_json` is JSON text by `journal.canonical`, times are Unix seconds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from packhost.rules.approvals import ApprovalStatus, Assurance
from packhost.rules.autonomy import Level, effective
from packhost.rules.identities import Right, Role

ExecutionStatus = Literal["queued", "running", "paused", "interrupted", "completed", "failed", "aborted"]
EndStatus = Literal["completed", "failed", "aborted"]
CallStatus = Literal["started", "ok", "error", "unknown"]
CallEnd = Literal["ok", "error", "unknown"]
AnswerVerdict = Literal["approve", "deny"]

DIRECT = "call"
"""The kind of an execution that is one call made directly."""


@dataclass(frozen=True, slots=True)
class NewExecution:
    """A run to be created; `kind` is `DIRECT` or the name of the driver that will run it.

    `spec_json` is the request, never changed afterwards.
    """

    id: str
    kind: str
    session_id: str
    principal: str
    client: str
    parent: str | None = None
    agent: str | None = None
    spec_json: str = "{}"


@dataclass(frozen=True, slots=True)
class ExecutionSummary:
    """A run without its request, state and result.

    `outcome` is `None` until it ended. `epoch` counts its claims and fences their owners.
    `paused_by` names who asked for the pause, as long as that holds. `background`: nobody waits for
    it, so that after an interruption it goes on by itself.
    """

    id: str
    workspace: str
    kind: str
    session_id: str
    principal: str
    client: str
    parent: str | None
    agent: str | None
    status: ExecutionStatus
    outcome: str | None
    owner: str | None
    epoch: int
    lease_until: float | None
    pause_requested: bool
    paused_by: str | None
    abort_requested: bool
    reason: str | None
    waiting_on: str | None
    created_at: float
    updated_at: float
    ended_at: float | None
    background: bool

    @property
    def ended(self) -> bool:
        """Nothing can run it any more."""
        return self.status in ("completed", "failed", "aborted")


@dataclass(frozen=True, slots=True)
class ExecutionRow(ExecutionSummary):
    """A run as a whole; a direct call's result is in its call."""

    spec_json: str
    state_json: str | None
    result_json: str | None


@dataclass(frozen=True, slots=True)
class NewCall:
    """A call about to start.

    `execution` creates the run of a direct call along with it; else `execution_id` names a run that `owner`
    holds in `epoch`. `step` left out is the next one. `args_json` is the display form, hidden and secret ones
    redacted. `approval_id` and `grant_id` are used up in the same transaction; `binding` is what the approval
    must be bound to, `answers_json` the very answers found good, `inputs_json` what the client answered.
    """

    id: str
    execution_id: str
    owner: str
    epoch: int
    tool: str
    tool_version: str
    args_json: str
    args_digest: str
    idempotent: bool
    actor: str
    step: int | None = None
    idem_key: str | None = None
    tool_use_id: str | None = None
    approval_id: str | None = None
    binding: str | None = None
    grant_id: str | None = None
    enforcement: str | None = None
    execution: NewExecution | None = None
    answers_json: str | None = None
    inputs_json: str | None = None


@dataclass(frozen=True, slots=True)
class CallRow:
    """A call; `code` is set when it did not end well, `result_json` is its display, capped."""

    id: str
    execution_id: str
    step: int
    epoch: int
    tool: str
    tool_version: str
    args_json: str
    args_digest: str
    idempotent: bool
    idem_key: str | None
    tool_use_id: str | None
    approval_id: str | None
    grant_id: str | None
    enforcement: str | None
    status: CallStatus
    code: str | None
    result_json: str | None
    started_at: float
    ended_at: float | None


@dataclass(frozen=True, slots=True)
class RefusedCall:
    """A call that did not start; it leaves an event and nothing else.

    `args_json` is `None` when the arguments were not admitted; `detail_json` is an object with
    whatever else the refusal names (rule, layer, approval, place).
    """

    tool: str
    code: str
    message: str
    session_id: str
    principal: str
    client: str
    actor: str
    tool_version: str | None = None
    args_json: str | None = None
    execution_id: str | None = None
    approval_id: str | None = None
    detail_json: str = "{}"


@dataclass(frozen=True, slots=True)
class NewApproval:
    """A question to a person; `run_id` only when the call is nested in a run.

    `binding` is the keyed digest of what exactly is asked for; `args_json` the display form.
    """

    id: str
    session_id: str
    principal: str
    client: str
    tool: str
    tool_version: str
    binding: str
    names: tuple[str, ...]
    assurance: Assurance
    approvers_needed: int
    prompt: str
    args_json: str
    expires_at: float
    execution_id: str | None = None
    run_id: str | None = None
    subagent: Mapping[str, str] | None = None
    """The subagent that asks: `tool_name`, the tool that started it, and `agent_name`."""
    told_json: str = "{}"


@dataclass(frozen=True, slots=True)
class ApprovalAnswer:
    """One person's answer, by a channel that is as sure as `assurance`; left out, `at` is set by the store.

    `signature` is an operator's, over all of it; `role` is `end-user` where their own run asked them.
    """

    verdict: AnswerVerdict
    by: str
    channel: str
    reason: str = ""
    assurance: Assurance = "client"
    at: float = 0.0
    signature: str = ""
    role: Literal["", "end-user"] = ""


@dataclass(frozen=True, slots=True)
class ApprovalRow:
    """A question and how it was answered; `consumed_by` is the call that used it up."""

    id: str
    workspace: str
    execution_id: str | None
    run_id: str | None
    session_id: str
    principal: str
    client: str
    tool: str
    tool_version: str
    binding: str
    names_json: str
    assurance: Assurance
    approvers_needed: int
    prompt: str
    args_json: str
    status: ApprovalStatus
    answers_json: str
    decided_by: str | None
    decided_channel: str | None
    reason: str | None
    decided_at: float | None
    expires_at: float
    consumed_by: str | None
    created_at: float
    told_json: str = "{}"

    @property
    def names(self) -> tuple[str, ...]:
        """The named approvals that it stands for, `pack:name`."""
        return tuple(json.loads(self.names_json))

    @property
    def answers(self) -> tuple[ApprovalAnswer, ...]:
        """The answers so far, first to last."""
        return tuple(ApprovalAnswer(**answer) for answer in json.loads(self.answers_json))

    @property
    def arguments(self) -> Any:
        """The arguments in their display form."""
        return json.loads(self.args_json)


@dataclass(frozen=True, slots=True)
class NewGrant:
    """A standing permission; `match_json` says which arguments it covers.

    `principal` or `agent` left out means any; `max_uses` left out means no limit. `hidden` stands for
    the hidden arguments that it was given for. `note` goes on record: what the grant came from.
    """

    id: str
    tool: str
    tool_version: str
    match_json: str
    created_by: str
    principal: str | None = None
    agent: str | None = None
    expires_at: float | None = None
    max_uses: int | None = None
    hidden: str | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class GrantRow:
    """A standing permission and how often it was used."""

    id: str
    workspace: str
    principal: str | None
    agent: str | None
    tool: str
    tool_version: str
    match_json: str
    created_by: str
    created_at: float
    expires_at: float | None
    revoked_at: float | None
    uses: int
    max_uses: int | None
    hidden: str | None

    @property
    def match(self) -> Any:
        """The pattern of its arguments, by name."""
        return json.loads(self.match_json)


@dataclass(frozen=True, slots=True)
class OperatorRow:
    """Whose signatures count; the private key is nowhere in the store."""

    id: int
    workspace: str
    fingerprint: str
    public_key: str
    set_by: str
    set_at: float
    ended_at: float | None


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A bearer token without what makes it one: that is nowhere in the store, only its SHA-256."""

    id: str
    workspace: str
    token_sha: str
    name: str
    role: Role
    principal: str
    scopes_json: str
    created_by: str
    created_at: float
    expires_at: float | None
    last_used_at: float | None
    revoked_at: float | None
    revoked_by: str | None

    @property
    def scopes(self) -> tuple[Right, ...]:
        """What it may do."""
        return tuple(json.loads(self.scopes_json))


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A conversation and its autonomy; `level_before` is what it falls back to on expiry."""

    id: str
    workspace: str
    principal: str
    client: str
    parent: str | None
    level: Level
    level_expires_at: float | None
    level_before: Level | None
    created_at: float
    updated_at: float

    def level_at(self, now: float) -> Level:
        """The level that holds at a time."""
        floor = self.level if self.level_before is None else self.level_before
        return effective(self.level, self.level_expires_at, floor, now)


@dataclass(frozen=True, slots=True)
class MessageRow:
    """One message of a session's history; `seq` counts from 1."""

    session_id: str
    seq: int
    run_id: str | None
    message_json: str

    @property
    def message(self) -> Any:
        """The message as data."""
        return json.loads(self.message_json)


@dataclass(frozen=True, slots=True)
class Head:
    """The end of the audit chain; id 0 when it is empty."""

    id: int
    hash: str


@dataclass(frozen=True, slots=True)
class AssetRow:
    """A binary result; `data` is base64, `session_root` the first session of the family that has it."""

    id: str
    workspace: str
    session_root: str
    principal: str
    media_type: str
    size: int
    sha256: str
    data: str
    created_at: float
    expires_at: float
