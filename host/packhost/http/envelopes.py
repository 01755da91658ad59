"""A run as whoever started it reads it: the envelope that says whether to wait, to answer or to read.

`success` is true also for a run that paused: what to do follows from `status` and `stopReason`.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any, Final, Literal

from pydantic import Field

from packhost.control.base import Parts
from packhost.errors import NotFound
from packhost.executions.request import view_of
from packhost.http.kit import Model
from packhost.rules.approvals import Approver
from packhost.store.base import Reading
from packhost.store.ops import approvals, executions, questions
from packhost.store.ops.questions import QuestionRow
from packhost.store.rows import ApprovalRow, ExecutionRow

_ASKS: Final = "approval:"
_WANTS: Final = "question:"
_GOES_ON: Final = ("queued", "running")
EnvelopeStatus = Literal["running", "paused", "interrupted", "completed", "failed", "aborted"]


class PausedReason(Model):
    """Why a run goes no further by itself. Hidden values show as `[REDACTED]`."""

    type: Literal["approval", "elicitation", "person", "time", "local_action"]
    executionId: str
    toolId: str | None = None
    toolName: str | None = None
    parameters: Any = None
    awaitReason: str | None = None
    approvalId: str | None = None
    approver: Approver | None = Field(
        default=None, description="Who may answer an approval: also the end user of the run, or not."
    )
    toolCallId: str | None = Field(
        default=None, description="The call that waits; of calls that the caller is to make the first."
    )
    toolType: str | None = Field(default=None, description="The tool's kind.")
    iteration: int | None = Field(default=None, description="The run's turn, from 1.")
    timeout: float | None = Field(default=None, description="Seconds that a person has.")
    startedAt: float | None = Field(default=None, description="When the person was asked.")
    awaits: list[dict[str, Any]] | None = Field(
        default=None, description="Every call that the caller is to make and has not answered."
    )
    checkpoint: str | None = Field(
        default=None, description="This pause, for a resumption that means it alone."
    )
    questionId: str | None = Field(default=None, description="For `POST /v1/questions/{id}/answer`.")
    elicitation: dict[str, Any] | None = Field(
        default=None, description="A form for the person: `mode`, `message` and `requested_schema`."
    )
    waitingOn: str | None = None


class Envelope(Model):
    """Where a run stands. `value` is what the run returned, once it has ended."""

    success: bool = Field(description="False for a run that failed or was aborted; true for one that paused.")
    status: EnvelopeStatus
    stopReason: str | None = Field(description="`paused`, or how the run ended; `null` while it goes on.")
    result: str = Field(description="The text that the run ended with; empty before.")
    agentExecutionId: str = Field(description="The run's id.")
    sessionId: str
    pausedReason: PausedReason | None = None
    value: Any = None


def stands_still(tx: Reading, run_id: str) -> bool:
    """Whether a run has ended or waits for something that it cannot bring about."""
    status, waiting_on = tx.execute(
        "SELECT status, waiting_on FROM executions WHERE id=?", (run_id,)
    ).fetchone()
    if status not in _GOES_ON:
        return True
    if not (waiting_on or "").startswith((_ASKS, _WANTS)):
        return False
    # once it is answered the run goes on, before its row says so
    look = (
        "SELECT status FROM approvals WHERE id=?"
        if waiting_on.startswith(_ASKS)
        else "SELECT status FROM questions WHERE id=?"
    )
    asked = tx.execute(look, (waiting_on.partition(":")[2],)).fetchone()
    return asked is not None and asked[0] == "pending"


def envelope(parts: Parts, run_id: str) -> dict[str, Any]:
    """The envelope of a run as it stands."""
    row, asked = parts.store.read(_standing, run_id)
    result = json.loads(row.result_json) if row.result_json else None
    paused = _paused(row, asked)
    status: str = "running" if row.status in _GOES_ON else row.status
    if paused is not None and status == "running":
        status = "paused"
    outcome = "cancelled" if row.outcome == "aborted" else row.outcome
    return {
        "success": row.status not in ("failed", "aborted"),
        "status": status,
        "stopReason": "paused" if status == "paused" else outcome,
        "result": result.get("text", "") if isinstance(result, dict) else "",
        "agentExecutionId": row.id,
        "sessionId": row.session_id,
        "pausedReason": paused,
        "value": result,
    }


def _standing(tx: Reading, run_id: str) -> tuple[ExecutionRow, ApprovalRow | QuestionRow | None]:
    row = executions.get(tx, run_id)
    what, _, id = (row.waiting_on or "").partition(":")
    with suppress(NotFound):
        if what == "approval":
            return row, approvals.get(tx, id)
        if what == "question":
            return row, questions.get(tx, id)
    return row, None


def _paused(row: ExecutionRow, asked: ApprovalRow | QuestionRow | None) -> dict[str, Any] | None:
    reason = PausedReason(type="person", executionId=row.id)
    if isinstance(asked, QuestionRow) and asked.status == "pending":
        told = asked.told
        reason = PausedReason(
            type="elicitation",
            executionId=row.id,
            toolId=asked.tool,
            toolName=asked.tool.partition(":")[2],
            parameters=told.get("parameters"),
            awaitReason=told.get("await_reason"),
            toolCallId=asked.tool_use_id,
            questionId=asked.id,
            elicitation=told.get("elicitation"),
        )
    elif isinstance(asked, ApprovalRow) and asked.status == "pending":
        call = approvals.told(asked)
        reason = PausedReason(
            type="approval",
            executionId=row.id,
            toolId=asked.tool,
            toolName=asked.tool.partition(":")[2],
            parameters=asked.arguments,
            awaitReason="approval_required",
            approvalId=asked.id,
            approver=call["approver"],
            toolCallId=call["tool_call_id"],
            toolType=call["tool_type"],
            iteration=call["iteration"],
            timeout=call["timeout"],
            startedAt=call["started_at"],
        )
    elif row.status != "paused":
        return None
    else:
        reason = _still(row)
    return reason.model_dump(exclude_none=True)


def _still(row: ExecutionRow) -> PausedReason:
    """Why a run that nobody is asked about is paused: calls of its caller's, a time, or a person."""
    view = view_of(row)
    if view.awaits and row.paused_by is None:
        first = view.awaits[0]
        return PausedReason(
            type="local_action",
            executionId=row.id,
            toolId=first["tool_name"],
            toolName=first["tool_name"],
            parameters=first["parameters"],
            toolCallId=first["tool_call_id"],
            awaits=[dict(one) for one in view.awaits],
            checkpoint=view.checkpoint,
        )
    kind: Literal["time", "person"] = "time" if (row.waiting_on or "")[:5] == "time:" else "person"
    return PausedReason(type=kind, executionId=row.id, checkpoint=view.checkpoint, waitingOn=row.waiting_on)
