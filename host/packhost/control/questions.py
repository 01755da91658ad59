"""Operations on forms that people fill in before a call: a person's own acts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast, get_args

from packhost.control.base import Parts, optional, text, whole
from packhost.errors import InvalidInput
from packhost.store.ops import questions
from packhost.store.ops.questions import QuestionRow, Status

ACTIONS = ("accept", "decline", "cancel")


async def listing(parts: Parts, params: Mapping[str, Any]) -> Any:
    """Questions, newest first, older than `before`; of one `status` or `principal`, or all."""
    if parts.store.read(questions.due, parts.store.now()):
        await parts.store.write(questions.expire_due)
    status = params.get("status")
    if status is not None and status not in get_args(Status):
        listed = ", ".join(get_args(Status))
        raise InvalidInput(f"`{status}` is no status of a question", hint=f"use one of {listed}")
    rows = parts.store.read(
        questions.listing,
        cast("Status | None", status),
        whole(params, "limit", 100),
        optional(params, "principal"),
        optional(params, "before"),
    )
    return {"questions": [question_json(row) for row in rows]}


async def show(parts: Parts, params: Mapping[str, Any]) -> Any:
    """One question, whole; never what was answered."""
    return question_json(parts.store.read(questions.get, text(params, "id")))


async def answer(parts: Parts, params: Mapping[str, Any]) -> Any:
    """What a person gives, or that they give nothing: `action` and, with `accept`, `content`."""
    action, content = text(params, "action"), params.get("content")
    if action not in ACTIONS:
        raise InvalidInput(f"`{action}` is no answer", hint=f"use one of {', '.join(ACTIONS)}")
    if content is not None and not isinstance(content, Mapping):
        raise InvalidInput("`content` is not an object", hint="give each field by its name")
    row = await parts.gate.questions.answer(
        text(params, "id"),
        cast("Any", action),
        content,
        by=parts.principal,
        channel=text(params, "channel", "cli"),
    )
    return question_json(row)


def question_json(row: QuestionRow) -> dict[str, Any]:
    """A question as people's programs read it."""
    return {
        "id": row.id,
        "status": row.status,
        "tool": row.tool,
        "tool_version": row.tool_version,
        "prompt": row.prompt,
        "message": row.message,
        "requested_schema": row.schema,
        "session_id": row.session_id,
        "run_id": row.run_id,
        "tool_call_id": row.tool_use_id,
        "principal": row.principal,
        "client": row.client,
        "created_at": row.created_at,
        "expires_at": row.expires_at,
        "answered_by": row.answered_by,
        "channel": row.channel,
        "consumed_by": row.consumed_by,
    }
