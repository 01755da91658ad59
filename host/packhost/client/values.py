"""What the API answers with, as values; times in seconds since the epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, Self

TERMINAL: Final = frozenset({"run.completed", "run.failed", "run.aborted"})
"""The events that a run ends with."""


@dataclass(frozen=True, slots=True)
class PausedReason:
    """Why a run goes no further by itself, and what to answer."""

    type: str
    tool: str | None
    parameters: Any
    await_reason: str | None
    approval_id: str | None
    waiting_on: str | None
    checkpoint: str | None
    """This pause, for a resumption that means it alone."""
    awaits: tuple[Mapping[str, Any], ...]
    """The calls that the caller is to make: `tool_call_id`, `tool_name`, `parameters`."""
    approver: str | None = None
    """Who may answer an approval: `owner`, or `end-user` where the run's own may as well."""
    question_id: str | None = None
    """The form that a tool wants filled in; `elicitation` shows it."""
    elicitation: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Envelope:
    """Where a run stands. `success` is true also for one that paused: go by `status`.

    `result` is the text that it ended with, `value` all that it returned.
    """

    run_id: str
    session_id: str
    success: bool
    status: Literal["running", "paused", "interrupted", "completed", "failed", "aborted"]
    stop_reason: str | None
    result: str
    paused: PausedReason | None
    value: Any

    @property
    def ended(self) -> bool:
        """Whether nothing more will come of it."""
        return self.status in ("completed", "failed", "aborted")

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> Self:
        """From the API's JSON."""
        why = raw["pausedReason"]
        paused = None
        if why is not None:
            paused = PausedReason(
                why["type"],
                why.get("toolId"),
                why.get("parameters"),
                why.get("awaitReason"),
                why.get("approvalId"),
                why.get("waitingOn"),
                why.get("checkpoint"),
                tuple(why.get("awaits") or ()),
                why.get("approver"),
                why.get("questionId"),
                why.get("elicitation"),
            )
        return cls(
            raw["agentExecutionId"],
            raw["sessionId"],
            raw["success"],
            raw["status"],
            raw["stopReason"],
            raw["result"],
            paused,
            raw["value"],
        )


@dataclass(frozen=True, slots=True)
class _Known:
    """A value whose fields are members of the same names; others that come are left alone."""

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> Self:
        """From the API's JSON."""
        return cls(**{field.name: raw[field.name] for field in fields(cls)})


@dataclass(frozen=True, slots=True)
class Event(_Known):
    """One event of a run, as it is on record; `data` is `None` when it was redacted."""

    cursor: str
    run_id: str
    seq: int
    type: str
    ts: float
    actor: str
    call_id: str | None
    data: Mapping[str, Any] | None

    @property
    def terminal(self) -> bool:
        """Whether the run ends with it."""
        return self.type in TERMINAL


@dataclass(frozen=True, slots=True)
class Detached:
    """The stream's lease is over and the run goes on; `after` is where to come back."""

    run_id: str
    after: str | None


@dataclass(frozen=True, slots=True)
class Run(_Known):
    """A run in a line of a listing."""

    id: str
    kind: str
    status: str
    outcome: str | None
    session_id: str
    principal: str
    client: str
    parent: str | None
    agent: str | None
    waiting_on: str | None
    paused_by: str | None
    reason: str | None
    created_at: float
    updated_at: float
    ended_at: float | None


@dataclass(frozen=True, slots=True)
class Approval(_Known):
    """A question to a person, and how it was answered."""

    id: str
    workspace: str
    binding: str
    status: str
    tool: str
    tool_version: str
    arguments: Any
    prompt: str
    assurance: str
    approver: str
    """Who may answer: `owner`, or `end-user` where the run's own may as well."""
    approvers_needed: int
    answers: list[Mapping[str, Any]]
    """Who has answered so far, first to last: `by`, `verdict`, `channel`, `assurance`, `role`."""
    session_id: str
    run_id: str | None
    principal: str
    client: str
    created_at: float
    expires_at: float
    decided_by: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class Question(_Known):
    """A form that a tool wants a person to fill in before it is called; `message` is its author's words."""

    id: str
    status: str
    tool: str
    tool_version: str
    prompt: str
    message: str
    requested_schema: Mapping[str, Any]
    session_id: str
    run_id: str | None
    tool_call_id: str | None
    principal: str
    client: str
    created_at: float
    expires_at: float
    answered_by: str | None
    channel: str | None
    consumed_by: str | None


@dataclass(frozen=True, slots=True)
class Grant(_Known):
    """What is always allowed."""

    id: str
    state: str
    why: str
    tool: str
    tool_version: str
    principal: str | None
    match: Any
    words: list[str]
    created_by: str
    created_at: float
    expires_at: float | None
    revoked_at: float | None
    uses: int
    max_uses: int | None
