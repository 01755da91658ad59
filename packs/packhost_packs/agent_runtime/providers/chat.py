"""Chat Completions: a turn to request bytes, a whole assistant message to a reply.

Only this protocol is meant: no typed items of the Responses protocol. Sans-I/O: the connection adds
the key. No `tool_choice` is ever sent: with a named one a provider stops for another reason than
its calls. One choice is asked for and one taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import packhost_packs.agent_runtime.strict_json as strict_json
from packhost.api import PackhostError
from packhost_packs.agent_runtime.contract import check_calls
from packhost_packs.agent_runtime.faults import TurnFault
from packhost_packs.agent_runtime.providers.arguments import Schemas, read_arguments
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
from packhost_packs.agent_runtime.providers.reasoning import DETAILS, EXTRA, PLAIN
from packhost_packs.agent_runtime.stream.limits import SafetyLimits, exceeded

PROTOCOL = "chat_completions"
KEY_HEADER = "authorization"
KEY_SCHEME = "Bearer"

REASONS = Reasons(
    final=frozenset({"stop"}),
    tools="tool_calls",
    incomplete=frozenset({"length"}),
    refused=frozenset({"content_filter"}),
    unsupported={"function_call": ("CUSTOM_CALL_UNSUPPORTED", "the reply makes a call of the legacy form")},
)

_REASONING = (*PLAIN, DETAILS, EXTRA)


@dataclass(frozen=True, slots=True)
class RawCall:
    """One native call, its arguments as they came."""

    id: Any
    name: Any
    arguments: str
    extra: Any = None

    def native(self) -> dict[str, Any]:
        """The call in the provider's own form."""
        function = {"name": self.name, "arguments": self.arguments}
        call = {"id": self.id, "type": "function", "function": function}
        return call if self.extra is None else {**call, EXTRA: self.extra}


@dataclass(slots=True)
class Assembled:
    """An assistant message, whole; `state` is the reasoning that goes back unmodified."""

    text: str | None = None
    refusal: str = ""
    calls: list[RawCall] = field(default_factory=list)
    state: dict[str, Any] = field(default_factory=dict)

    def native(self) -> dict[str, Any]:
        """The message in the provider's own form."""
        message: dict[str, Any] = {"role": "assistant", "content": self.text, **self.state}
        if self.calls:
            message["tool_calls"] = [call.native() for call in self.calls]
        return message


def request_body(
    turn: TurnRequest,
    *,
    stream: bool = False,
    echo_reasoning: bool = True,
    max_tokens_field: str = "max_tokens",
) -> bytes:
    """The body of one request; raises `PackhostError` when `max_tokens` is not positive."""
    if turn.max_tokens < 1:
        raise PackhostError(
            "`max_tokens` is not positive", hint="give the model profile a positive `max_tokens`"
        )
    body: dict[str, Any] = {"model": turn.model, max_tokens_field: turn.max_tokens}
    if stream:
        body["stream"] = True
        body["stream_options"] = {"include_usage": True}
    if turn.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {"name": t.name, "description": t.description, "parameters": t.input_schema},
            }
            for t in turn.tools
        ]
    system = [{"role": "system", "content": turn.system}] if turn.system else []
    body["messages"] = [*system, *wire_messages(turn.messages, echo_reasoning=echo_reasoning)]
    return strict_json.dumps(body)


def wire_messages(
    messages: Sequence[Mapping[str, Any]], *, echo_reasoning: bool = True
) -> list[dict[str, Any]]:
    """History as the protocol has it: each result is a message of its own, before the user's text."""
    wire: list[dict[str, Any]] = []
    for message in messages:
        native = message.get("native")
        if native is not None and native.get("protocol") == PROTOCOL:
            kept = native["message"]
            if not echo_reasoning:
                kept = {name: value for name, value in kept.items() if name not in _REASONING}
            wire.append(dict(kept))
        elif message["role"] == "assistant":
            wire.append(_assistant(message["content"]))
        else:
            wire += _user(message["content"])
    return wire


def _assistant(blocks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A message of another provider's, or of the caller's: its text and its calls."""
    text = "".join(block["text"] for block in blocks if block["type"] == "text")
    message = Assembled(text or None)
    for block in blocks:
        if block["type"] == "tool_call":
            message.calls.append(
                RawCall(block["id"], block["name"], strict_json.dumps(block["input"]).decode())
            )
    return message.native()


def _user(blocks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    results = [
        {"role": "tool", "tool_call_id": block["tool_use_id"], "content": block["content"]}
        for block in blocks
        if block["type"] == "tool_result"
    ]
    texts = [block["text"] for block in blocks if block["type"] == "text"]
    if not texts:
        return results
    content: Any = texts[0] if len(texts) == 1 else [{"type": "text", "text": text} for text in texts]
    return [*results, {"role": "user", "content": content}]


def parse_reply(body: bytes, schemas: Schemas, limits: SafetyLimits) -> Reply:
    """Read the whole body of a reply that is not streamed.

    Raises `TurnFault`: `provider_error` for an error in place of a reply, `protocol_error` for what
    the protocol does not allow, `unsupported` for what this host does not do.
    """
    reply = strict_json.loads(body, "the provider's reply")
    if not isinstance(reply, dict):
        raise TurnFault("protocol_error", "INPUT_NOT_OBJECT", "the provider's reply is not an object")
    if reply.get("error"):
        raise error_fault(reply, begun=False)
    choice = only_choice(reply.get("choices"))
    message = choice.get("message") if choice is not None else None
    if choice is None or not isinstance(message, dict) or message.get("role") != "assistant":
        raise TurnFault("protocol_error", "EVENT_ORDER", "the provider's reply holds no assistant message")
    check_members(message)
    assembled = Assembled(message.get("content"), message.get("refusal") or "")
    assembled.calls = [_raw_call(call) for call in message.get("tool_calls") or ()]
    size = sum(len(call.arguments.encode(errors="replace")) for call in assembled.calls)
    if size > limits.argument_bytes:
        raise exceeded("argument_bytes", limits.argument_bytes)
    assembled.state = {name: message[name] for name in _REASONING if message.get(name) is not None}
    return judge(assembled, choice.get("finish_reason"), usage_of(reply.get("usage")), schemas, limits)


def judge(
    message: Assembled, finish_reason: object, usage: Usage, schemas: Schemas, limits: SafetyLimits
) -> Reply:
    """The reply that a whole message and its finish reason make; raises `TurnFault`."""
    details = message.state.get(DETAILS)
    others = (1 if message.text else 0) + (len(details) if isinstance(details, list) else 0)
    check_counts(others + len(message.calls), len(message.calls), limits)
    verdict = verdict_of(finish_reason, bool(message.calls), REASONS)
    if message.refusal:
        verdict = "refused"
    blocks: list[dict[str, Any]] = []
    if text := message.text or message.refusal:
        blocks.append({"type": "text", "text": text})
    if verdict == "tools":
        check_calls([{"id": call.id, "name": call.name, "input": {}} for call in message.calls])
        blocks += [
            {
                "type": "tool_call",
                "id": call.id,
                "name": call.name,
                "input": read_arguments(call.arguments, call.id, call.name, schemas),
            }
            for call in message.calls
        ]
    native = {"protocol": PROTOCOL, "message": message.native(), "stop_reason": finish_reason}
    return reply_of(verdict, blocks, str(finish_reason), usage, native)


def only_choice(choices: object) -> dict[str, Any] | None:
    """The one choice that there may be, `None` for none; raises `TurnFault` for several."""
    if not isinstance(choices, list):
        raise TurnFault("protocol_error", "EVENT_ORDER", "the provider's reply has no list of choices")
    if not choices:
        return None
    if len(choices) > 1 or not isinstance(choices[0], dict) or choices[0].get("index", 0) != 0:
        raise TurnFault("unsupported", "EVENT_ORDER", "the reply holds more than the one choice asked for")
    choice: dict[str, Any] = choices[0]
    return choice


def check_members(message: Mapping[str, Any]) -> None:
    """Hold a message or a delta to the members that are understood; raises `TurnFault`."""
    content, refusal = message.get("content"), message.get("refusal")
    if content is not None and not isinstance(content, str):
        raise TurnFault("unsupported", "BLOCK_UNKNOWN", "the reply's content is not a string")
    if refusal is not None and not isinstance(refusal, str):
        raise TurnFault("protocol_error", "BLOCK_UNKNOWN", "the reply's refusal is not a string")
    if message.get("function_call") is not None:
        raise TurnFault("unsupported", "CUSTOM_CALL_UNSUPPORTED", "the reply makes a call of the legacy form")
    if message.get("audio") is not None:
        raise TurnFault("unsupported", "BLOCK_UNKNOWN", "the reply holds audio")
    calls = message.get("tool_calls")
    if calls is not None and not isinstance(calls, list):
        raise TurnFault("protocol_error", "CALL_INDEX_INVALID", "the reply's calls are not a list")


def function_of(call: object) -> dict[str, Any]:
    """The `function` of a call or of a fragment of one; raises `TurnFault` for a call of another type."""
    if not isinstance(call, dict):
        raise TurnFault("protocol_error", "CALL_NAME_MISSING", "a call is not an object")
    kind, function = call.get("type"), call.get("function")
    if kind not in (None, "", "function") or call.get("custom") is not None:
        message = f"the reply makes a call of the type `{str(kind or 'custom')[:80]}`"
        raise TurnFault("unsupported", "CUSTOM_CALL_UNSUPPORTED", message)
    if function is None:
        return {}
    if not isinstance(function, dict):
        raise TurnFault("protocol_error", "CALL_NAME_MISSING", "a call's function is not an object")
    return function


def arguments_of(function: Mapping[str, Any]) -> str:
    """The argument text of a call or of a fragment of one; raises `TurnFault` when it is not text."""
    arguments = function.get("arguments")
    if arguments is None:
        return ""
    if not isinstance(arguments, str):
        raise TurnFault("protocol_error", "INPUT_JSON_INVALID", "a call's arguments are not a string")
    return arguments


def _raw_call(call: Any) -> RawCall:
    function = function_of(call)
    return RawCall(call.get("id"), function.get("name"), arguments_of(function), call.get(EXTRA))


def usage_of(raw: object) -> Usage:
    """Tokens as the provider counts them."""
    return Usage(count_of(raw, "prompt_tokens"), count_of(raw, "completion_tokens"))
