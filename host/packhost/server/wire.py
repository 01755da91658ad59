"""What came of a call, as MCP says it."""

from __future__ import annotations

import json
from typing import Any, Final

from mcp import types

from packhost.errors import PackhostError
from packhost.gate.display import spelled_out
from packhost.gate.types import Completed, Refusal
from packhost.kinds.base import Tool

EVENT_LIMIT: Final = 1024 * 1024 - 16 * 1024
"""Bytes of a result that fit one server-sent event as clients take it, with room for its envelope."""
_PREVIEW: Final = 2000
_WORST: Final = 32
"""Bytes of one character on the wire, at worst: escaped in the text and in the structured form."""


def dumps(value: Any) -> str:
    """JSON for people and models."""
    return json.dumps(value, ensure_ascii=False, default=str)


def completed(outcome: Completed, tool: Tool | None, limit: int | None) -> types.CallToolResult:
    """A call that ran. `limit` in bytes is what the way to the client carries; `None` is no limit."""
    value = outcome.value
    text = value if isinstance(value, str) else outcome.text
    if not _encodable(text):
        value = spelled_out(value)
        text = value if isinstance(value, str) else dumps(value)
    if outcome.blocks:
        return _of_blocks(outcome, tool, limit)
    structured = value if isinstance(value, dict) else None
    if limit is not None and len(text) * _WORST > limit:
        shrunk = _shrink(text, structured, limit)
        if shrunk is None:
            return refused(_too_large(outcome, len(text.encode()), tool, limit))
        text = shrunk
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)],
        structured_content=structured,
        _meta=call_meta(outcome),
    )


def _of_blocks(outcome: Completed, tool: Tool | None, limit: int | None) -> types.CallToolResult:
    """A call that returned content blocks, which go on as they are."""
    structured = outcome.value if isinstance(outcome.value, dict) else None
    blocks = [spelled_out(dict(block)) for block in outcome.blocks]
    if limit is not None and (size := len(json.dumps([blocks, structured]))) > limit:
        return refused(_too_large(outcome, size, tool, limit))
    return types.CallToolResult.model_validate(
        {"content": blocks, "structuredContent": structured, "_meta": call_meta(outcome)}
    )


def call_meta(outcome: Completed) -> dict[str, Any]:
    """What `_meta` says of a call that ran."""
    return {
        "packhost/call": {
            "call_id": outcome.call_id,
            "run_id": outcome.run_id,
            "enforcement": outcome.enforcement,
        }
    }


def _shrink(text: str, structured: dict[str, Any] | None, limit: int) -> str | None:
    """The text copy that still fits: whole, or a beginning when the structured form carries the rest."""
    # Escaped: quotes and characters beyond ASCII make JSON in JSON longer than the text itself.
    size = len(json.dumps(text))
    if structured is None:
        return text if size <= limit else None
    data = len(json.dumps(structured))
    if size + data <= limit:
        return text
    if data + 4 * _PREVIEW > limit:
        return None
    return f"{text[:_PREVIEW]}… ({data} bytes in all; the whole result is in the structured content)"


def _too_large(outcome: Completed, size: int, tool: Tool | None, limit: int) -> Refusal:
    name = f"`{tool.id}`" if tool else "the tool"
    return Refusal(
        "OUTPUT_TOO_LARGE",
        f"{name} ran, but its result of {size} bytes is more than the {limit} bytes that an "
        "event of this connection carries",
        hint="ask for less at once, or connect over stdio, which has no such limit",
        call_id=outcome.call_id,
        run_id=outcome.run_id,
        enforcement=outcome.enforcement,
    )


def refused(refusal: Refusal) -> types.CallToolResult:
    """A sentence, then the same as JSON; never structured, since clients check that on errors too."""
    data = spelled_out(refusal.as_json())
    text = f"{spelled_out(refusal.text)}\n{dumps(data)}"
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)],
        is_error=True,
        _meta={"packhost/refusal": data},
    )


_FAULTS: Final = (
    "TOOL_INTENT_NOT_COMMITTED",
    "STORE_UNAVAILABLE",
    "STORE_NEWER",
    "ENFORCEMENT_UNAVAILABLE",
)


def fault_of(refusal: Refusal) -> dict[str, Any] | None:
    """What the host itself met, as a JSON-RPC error; `None` for what a tool, a rule or a person said."""
    if not refusal.fault and refusal.code not in _FAULTS:
        return None
    data = spelled_out(refusal.as_json())
    return {
        "code": types.INTERNAL_ERROR,
        "message": spelled_out(refusal.text),
        "data": {"packhost/refusal": data},
    }


def refusal_of(error: PackhostError) -> Refusal:
    """An error of packhost's own as a refusal."""
    return Refusal(error.code, error.message, hint=error.hint, rule=error.place)


def internal() -> Refusal:
    """What an agent is told of a fault in packhost itself."""
    return Refusal(
        "TOOL_FAILED",
        "packhost met a fault of its own while it served this call",
        hint="the host's log has the details; `packhost doctor` may tell more",
        fault=True,
    )


def _encodable(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
