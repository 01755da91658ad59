"""A provider that replays a script: for a demonstration, for tests, for whoever has no key.

A script is a list of replies, each `{text?, tool_calls?: [{id, name, arguments}], stop_reason?, usage?}`.
A run's first turn gets the first reply, and so on; after the last one there is no more.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

import packhost_packs.agent_runtime.strict_json as strict_json
from packhost.api import InvalidInput
from packhost_packs.agent_runtime.faults import TurnFault
from packhost_packs.agent_runtime.providers.base import (
    Emit,
    Reply,
    TurnRequest,
    Usage,
    check_counts,
    reply_of,
    unheard,
    verdict_of,
)
from packhost_packs.agent_runtime.providers.messages import REASONS
from packhost_packs.agent_runtime.stream.limits import SafetyLimits

MAX_SCRIPT_BYTES = 1024 * 1024
_REPLY = frozenset({"text", "tool_calls", "stop_reason", "usage"})
_CALL = frozenset({"id", "name", "arguments"})


@dataclass(frozen=True, slots=True)
class ScriptedProvider:
    """Replays `script`; the place in it is the number of replies that the run has had."""

    script: Sequence[Mapping[str, Any]]

    async def turn(self, request: TurnRequest, *, deadline: float, emit: Emit = unheard) -> Reply:
        """The next reply; raises `TurnFault` at the script's end and for what breaks the contract."""
        if request.turn >= len(self.script):
            message = f"the script has {len(self.script)} replies and a further one is asked for"
            raise TurnFault("protocol_error", "TERMINAL_MISSING", message)
        said = self.script[request.turn]
        blocks: list[dict[str, Any]] = []
        if said.get("text"):
            blocks.append({"type": "text", "text": said["text"]})
        for call in said.get("tool_calls") or ():
            blocks.append(
                {
                    "type": "tool_call",
                    "id": call.get("id"),
                    "name": call.get("name"),
                    "input": call.get("arguments", {}),
                }
            )
        reason = said.get("stop_reason") or ("tool_use" if said.get("tool_calls") else "end_turn")
        check_counts(len(blocks), len(said.get("tool_calls") or ()), SafetyLimits())
        verdict = verdict_of(reason, bool(said.get("tool_calls")), REASONS)
        used = said.get("usage") or {}
        usage = Usage(used.get("input_tokens", 0), used.get("output_tokens", 0))
        return reply_of(verdict, blocks, reason, usage)


def check_script(script: object) -> list[dict[str, Any]]:
    """The script itself when it is one; raises `InvalidInput` that says which reply is wrong and how."""
    if not isinstance(script, list) or not script:
        raise InvalidInput("a script is a list of replies, one at least", hint=_HINT)
    for number, reply in enumerate(script, 1):
        if wrong := _wrong(reply):
            raise InvalidInput(f"reply {number} of the script {wrong}", hint=_HINT)
    try:
        strict_json.dumps(script)
    except (TypeError, ValueError, RecursionError):
        message = "the script holds a value that JSON does not have"
        raise InvalidInput(message, hint="quote dates and write finite numbers") from None
    return script


def read_script(data: bytes) -> list[dict[str, Any]]:
    """A script from a YAML or JSON file's bytes; raises `InvalidInput`."""
    if len(data) > MAX_SCRIPT_BYTES:
        raise InvalidInput(f"the script has more than {MAX_SCRIPT_BYTES} bytes", hint="split it")
    try:
        script = yaml.load(data, Loader=_PlainLoader)  # noqa: S506 - a safe loader with two rules added
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        words = " ".join(str(error).split())[:200]
        raise InvalidInput(f"the script is not readable YAML: {words}", hint=_HINT) from None
    return check_script(script)


_HINT = "write a list of `{text, tool_calls: [{id, name, arguments}], stop_reason, usage}`, each optional"


def _wrong(reply: object) -> str:
    if not isinstance(reply, dict):
        return "is not a mapping"
    if unknown := [key for key in reply if key not in _REPLY]:
        return f"has the unknown member `{unknown[0]}`"
    if not isinstance(reply.get("text", ""), str):
        return "has a `text` that is not a string"
    if not isinstance(reply.get("stop_reason", ""), str):
        return "has a `stop_reason` that is not a string"
    usage = reply.get("usage", {})
    if not isinstance(usage, dict) or not all(type(one) is int and one >= 0 for one in usage.values()):
        return "has a `usage` that is not `{input_tokens, output_tokens}`"
    calls = reply.get("tool_calls", [])
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        return "has `tool_calls` that are not a list of mappings"
    for call in calls:
        if unknown := [key for key in call if key not in _CALL]:
            return f"has a call with the unknown member `{unknown[0]}`"
    return ""


class _PlainLoader(yaml.SafeLoader):
    """YAML without aliases, which could make a small file huge, and without duplicate keys."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not allowed")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        found = super().construct_mapping(node, deep)
        if len(found) != len(node.value):
            raise yaml.YAMLError("a key stands twice in one mapping")
        if not all(isinstance(key, str) for key in found):
            raise yaml.YAMLError(f"a key is not a string: {json.dumps(list(map(str, found)))[:80]}")
        return found
