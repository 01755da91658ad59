"""The Messages protocol: a turn to request bytes, whole content to a reply.

Sans-I/O: the connection adds the key. Thinking blocks are bound to everything before them, so an
assistant message is sent back in the provider's own form, unmodified. Blocks of tools that the
provider runs itself are such state too: they are kept and sent back, and never pending here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import packhost_packs.agent_runtime.strict_json as strict_json
from packhost.api import PackhostError
from packhost_packs.agent_runtime.contract import check_calls
from packhost_packs.agent_runtime.faults import TurnFault
from packhost_packs.agent_runtime.providers.base import (
    Reasons,
    Reply,
    TurnRequest,
    Usage,
    check_counts,
    count_of,
    reply_of,
    verdict_of,
)
from packhost_packs.agent_runtime.providers.complaints import error_fault
from packhost_packs.agent_runtime.stream.limits import SafetyLimits, exceeded

PROTOCOL = "messages"
VERSION = "2023-06-01"
KEY_HEADER = "x-api-key"

REASONS = Reasons(
    final=frozenset({"end_turn", "stop_sequence"}),
    tools="tool_use",
    incomplete=frozenset({"max_tokens", "model_context_window_exceeded"}),
    refused=frozenset({"refusal"}),
    unsupported={
        "pause_turn": ("PAUSE_TURN_UNHANDLED", "the reply pauses for a tool of the provider's own"),
    },
)

_THINKING = frozenset({"thinking", "redacted_thinking"})
_SERVER = frozenset({"server_tool_use", "mcp_tool_use"})


def request_body(turn: TurnRequest, *, stream: bool = False) -> bytes:
    """The body of one request; raises `PackhostError` when `max_tokens` is not positive."""
    if turn.max_tokens < 1:
        raise PackhostError(
            "`max_tokens` is not positive", hint="give the model profile a positive `max_tokens`"
        )
    body: dict[str, Any] = {"model": turn.model, "max_tokens": turn.max_tokens}
    if stream:
        body["stream"] = True
    if turn.system:
        body["system"] = turn.system
    if turn.tools:
        body["tools"] = [
            {"name": t.name, "description": t.description, "input_schema": t.input_schema} for t in turn.tools
        ]
    body["messages"] = wire_messages(turn.messages)
    return strict_json.dumps(body)


def wire_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """History as the protocol has it: neighbours of one role are one message, so that results lead it."""
    wire: list[dict[str, Any]] = []
    for message in messages:
        content = _wire_content(message)
        if wire and wire[-1]["role"] == message["role"]:
            wire[-1]["content"] = [*wire[-1]["content"], *content]
        else:
            wire.append({"role": message["role"], "content": content})
    return wire


def _wire_content(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    native = message.get("native")
    if native is not None and native.get("protocol") == PROTOCOL:
        return list(native["content"])
    return [_wire_block(block) for block in message["content"]]


def _wire_block(block: Mapping[str, Any]) -> dict[str, Any]:
    if block["type"] == "tool_call":
        return {"type": "tool_use", "id": block["id"], "name": block["name"], "input": block["input"]}
    return dict(block)


def parse_reply(body: bytes, limits: SafetyLimits) -> Reply:
    """Read the whole body of a reply that is not streamed.

    Raises `TurnFault`: `provider_error` for an error in place of a reply, `protocol_error` for what
    the protocol does not allow, `unsupported` for what this host does not do.
    """
    reply = strict_json.loads(body, "the provider's reply")
    if not isinstance(reply, dict):
        raise TurnFault("protocol_error", "INPUT_NOT_OBJECT", "the provider's reply is not an object")
    if reply.get("type") == "error":
        raise error_fault(reply, begun=False)
    if reply.get("type") != "message" or reply.get("role") != "assistant":
        raise TurnFault("protocol_error", "EVENT_ORDER", "the provider's reply is not an assistant message")
    content = reply.get("content")
    if not isinstance(content, list):
        raise TurnFault("protocol_error", "BLOCK_UNKNOWN", "the reply's content is not a list of blocks")
    verdict = verdict_of(reply.get("stop_reason"), any(is_call(raw) for raw in content), REASONS)
    if verdict == "tools":
        _check_arguments(content, limits)
    return judge(content, reply.get("stop_reason"), usage_of(reply.get("usage")), limits)


def judge(content: list[Any], stop_reason: object, usage: Usage, limits: SafetyLimits) -> Reply:
    """The reply that a whole content and its stop reason make; raises `TurnFault`."""
    calls = sum(map(is_call, content))
    check_counts(len(content), calls, limits)
    verdict = verdict_of(stop_reason, calls > 0, REASONS)
    runnable = verdict in ("final", "tools")
    blocks = [block for raw in content if (block := read_block(raw, runnable)) is not None]
    native = {"protocol": PROTOCOL, "content": content, "stop_reason": stop_reason}
    return reply_of(verdict, blocks, str(stop_reason), usage, native)


def is_call(raw: object) -> bool:
    """Whether a raw block asks for a tool of ours."""
    return isinstance(raw, dict) and raw.get("type") == "tool_use"


def read_block(raw: object, runnable: bool = True) -> dict[str, Any] | None:
    """The block in the form that history keeps; `None` for state of the provider's own.

    Raises `TurnFault` for an unknown block, and for a call that may not be made when it is `runnable`.
    """
    kind = raw.get("type") if isinstance(raw, dict) else None
    if not isinstance(raw, dict) or not isinstance(kind, str):
        raise TurnFault("protocol_error", "BLOCK_UNKNOWN", "a content block has no type")
    if kind == "text":
        if not isinstance(raw.get("text"), str):
            raise TurnFault("protocol_error", "BLOCK_UNKNOWN", "a text block has no text")
        return {"type": "text", "text": raw["text"]}
    if kind == "tool_use":
        return _call(raw) if runnable else None
    if kind in _THINKING or is_server_kind(kind):
        return None
    message = f"the reply holds a block of the unknown type `{kind[:80]}`"
    raise TurnFault("unsupported", "BLOCK_UNKNOWN", message)


def is_server_kind(kind: str) -> bool:
    """Whether a block of this type belongs to a tool that the provider runs itself."""
    return kind in _SERVER or kind.endswith("_tool_result")


def _call(raw: dict[str, Any]) -> dict[str, Any]:
    check_caller(raw)
    call = {"type": "tool_call", "id": raw.get("id"), "name": raw.get("name"), "input": raw.get("input")}
    check_calls([call])
    return call


def check_caller(raw: Mapping[str, Any]) -> None:
    """Raises `TurnFault` for a call that the model did not make itself."""
    caller = raw.get("caller")
    if caller is not None and (not isinstance(caller, dict) or caller.get("type") != "direct"):
        message = "a call was made by a program of the provider's"
        raise TurnFault("unsupported", "PROGRAMMATIC_CALLER", message)


def _check_arguments(content: Sequence[Any], limits: SafetyLimits) -> None:
    size = sum(len(strict_json.dumps(raw.get("input"))) for raw in content if is_call(raw))
    if size > limits.argument_bytes:
        raise exceeded("argument_bytes", limits.argument_bytes)


def usage_of(raw: object, before: Usage | None = None) -> Usage:
    """Tokens as the provider counts them; one that it leaves out keeps the count from `before`."""
    known = before or Usage()
    read = [count_of(raw, name) for name in _INPUT]
    return Usage(sum(read) or known.input_tokens, count_of(raw, "output_tokens") or known.output_tokens)


_INPUT = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
