"""The Messages protocol, not streamed: a turn to request bytes, reply bytes to a reply.

Sans-I/O: the connection adds the key. Thinking blocks are bound to everything before them, so an
assistant message is sent back in the provider's own form, unmodified.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from packhost.api import PackhostError
from packhost_packs.agent_runtime import strict_json
from packhost_packs.agent_runtime.contract import check_calls
from packhost_packs.agent_runtime.faults import TurnFault
from packhost_packs.agent_runtime.providers.base import MAX_ARGUMENT_BYTES, Reply, TurnRequest, Usage, judge

PROTOCOL = "messages"
VERSION = "2023-06-01"
PATH = "/v1/messages"
KEY_HEADER = "x-api-key"
HEADERS = {"anthropic-version": VERSION, "content-type": "application/json", "accept": "application/json"}

_THINKING = frozenset({"thinking", "redacted_thinking"})
_SERVER = ("server_tool_use", "mcp_tool_use", "container_upload")


def request_body(turn: TurnRequest) -> bytes:
    """The body of one request; raises `PackhostError` when `max_tokens` is not positive."""
    if turn.max_tokens < 1:
        raise PackhostError(
            "`max_tokens` is not positive", hint="give the model profile a positive `max_tokens`"
        )
    body: dict[str, Any] = {"model": turn.model, "max_tokens": turn.max_tokens}
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


def parse_reply(status: int, body: bytes) -> Reply:
    """Read a whole reply.

    Raises `TurnFault`: `provider_error` for a status that is not 200, `protocol_error` for what the
    protocol does not allow, `unsupported` for what this host does not do.
    """
    if status != 200:
        raise TurnFault("provider_error", "PROVIDER_ERROR_EVENT", _complaint(status, body), status=status)
    reply = strict_json.loads(body, "the provider's reply")
    if not isinstance(reply, dict):
        raise TurnFault("protocol_error", "INPUT_NOT_OBJECT", "the provider's reply is not an object")
    if reply.get("type") == "error":
        raise TurnFault("provider_error", "PROVIDER_ERROR_EVENT", _complaint(status, body), status=status)
    if reply.get("type") != "message" or reply.get("role") != "assistant":
        raise TurnFault("protocol_error", "EVENT_ORDER", "the provider's reply is not an assistant message")
    content = reply.get("content")
    if not isinstance(content, list):
        raise TurnFault("protocol_error", "BLOCK_UNKNOWN", "the reply's content is not a list of blocks")
    blocks = [block for raw in content if (block := _block(raw)) is not None]
    native = {"protocol": PROTOCOL, "content": content}
    return judge(blocks, reply.get("stop_reason"), usage=_usage(reply.get("usage")), native=native)


def _block(raw: object) -> dict[str, Any] | None:
    """The block in the form that history keeps; `None` for state of the provider's own."""
    kind = raw.get("type") if isinstance(raw, dict) else None
    if not isinstance(raw, dict) or not isinstance(kind, str):
        raise TurnFault("protocol_error", "BLOCK_UNKNOWN", "a content block has no type")
    if kind == "text":
        if not isinstance(raw.get("text"), str):
            raise TurnFault("protocol_error", "BLOCK_UNKNOWN", "a text block has no text")
        return {"type": "text", "text": raw["text"]}
    if kind == "tool_use":
        return _call(raw)
    if kind in _THINKING:
        return None
    if kind in _SERVER or kind.endswith("_tool_result"):
        message = f"the reply holds a `{kind}` block of a tool that the provider runs itself"
        raise TurnFault("unsupported", "BLOCK_UNKNOWN", message)
    raise TurnFault(
        "unsupported", "BLOCK_UNKNOWN", f"the reply holds a block of the unknown type `{kind[:80]}`"
    )


def _call(raw: dict[str, Any]) -> dict[str, Any]:
    caller = raw.get("caller")
    if caller is not None and (not isinstance(caller, dict) or caller.get("type") != "direct"):
        raise TurnFault(
            "unsupported", "PROGRAMMATIC_CALLER", "a call was made by a program of the provider's"
        )
    call = {"type": "tool_call", "id": raw.get("id"), "name": raw.get("name"), "input": raw.get("input")}
    check_calls([call])
    if len(strict_json.dumps(call["input"])) > MAX_ARGUMENT_BYTES:
        message = f"the input of the call `{call['id']}` has more than {MAX_ARGUMENT_BYTES} bytes"
        raise TurnFault("limit_exceeded", "LIMIT_ARGUMENT_BYTES", message)
    return call


def _usage(raw: object) -> Usage:
    if not isinstance(raw, dict):
        return Usage()
    cached = _count(raw, "cache_creation_input_tokens") + _count(raw, "cache_read_input_tokens")
    return Usage(_count(raw, "input_tokens") + cached, _count(raw, "output_tokens"))


def _count(raw: dict[str, Any], name: str) -> int:
    value = raw.get(name)
    return value if type(value) is int and value >= 0 else 0


def _complaint(status: int, body: bytes) -> str:
    """The provider's own words on one line, shortened; they are shown and never acted on."""
    said = ""
    try:
        reply = strict_json.loads(body, "the provider's error")
        error = reply.get("error") if isinstance(reply, dict) else None
        said = str(error.get("message", "")) if isinstance(error, dict) else ""
    except TurnFault:
        said = ""
    words = " ".join("".join(c if c.isprintable() else " " for c in said).split())[:300]
    return f"the provider answered with status {status}" + (f": {words}" if words else "")
