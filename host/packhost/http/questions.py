"""What tools ask of people before they are called, over the API: by the rules of the command line."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from packhost.control import questions as operations
from packhost.errors import PackhostError
from packhost.http.kit import Call, Model, Reply
from packhost.http.problems import of_error
from packhost.store.ops import questions


class QuestionsQuery(Model):
    """Which questions, and how many."""

    status: Literal["pending", "accepted", "declined", "cancelled", "expired"] | None = None
    cursor: str | None = Field(None, description="`next` of the page before.")
    limit: int = Field(50, ge=1, le=500)


class ToolQuestion(Model):
    """A form that a person fills in before a call; times in seconds since the epoch."""

    id: str
    status: Literal["pending", "accepted", "declined", "cancelled", "expired"]
    tool: str
    tool_version: str
    prompt: str = Field(description="The whole question, as every channel shows it.")
    message: str = Field(
        description="What the tool asks, in its author's words: show it, decide nothing by it."
    )
    requested_schema: dict[str, Any] = Field(description="The fields, as a JSON Schema of simple properties.")
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


class ToolQuestions(Model):
    """A page of questions, newest first; `next` is `null` on the last one."""

    questions: list[ToolQuestion]
    next: str | None


class ToolAnswer(Model):
    """What the person gives: with `accept` a value for each field; nothing is coerced or filled in."""

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Any] | None = None


async def listing(call: Call) -> Reply:
    """`GET /v1/questions`: what was asked for the caller's principal, newest first; all for who sees all."""
    query, about = call.query, f"questions {call.identity.principal}"
    before = call.shared.cursors.read(about, query.cursor)
    params: dict[str, Any] = {"limit": query.limit, "status": query.status, "before": before}
    if not call.identity.sees_all:
        params["principal"] = call.identity.principal
    found = (await operations.listing(call.parts, params))["questions"]
    full = len(found) == query.limit
    return Reply(
        {"questions": found, "next": call.shared.cursors.seal(about, found[-1]["id"]) if full else None}
    )


async def show(call: Call) -> Reply:
    """`GET /v1/questions/{id}`."""
    _asked(call)
    return Reply(await operations.show(call.parts, {"id": call.path["id"]}))


async def answer(call: Call) -> Reply:
    """`POST /v1/questions/{id}/answer`: an operator's answer, or the end user's whom a run of theirs asks.

    The first one stands. It approves nothing.
    """
    _asked(call)
    body: ToolAnswer = call.body
    params = {"id": call.path["id"], "action": body.action, "content": body.content, "channel": "api"}
    try:
        return Reply(await operations.answer(call.parts, params))
    except PackhostError as error:
        problem = of_error(error)
        if error.code in ("RESUME_STATE_CHANGED", "APPROVAL_EXPIRED"):
            problem.status = 409  # somebody was first, or its time was over
        raise problem from None


def _asked(call: Call) -> None:
    """Hold the caller to what they may see: 404 for another's question."""
    call.owned(questions.get, call.path["id"], "question", "list them with `GET /v1/questions`")
