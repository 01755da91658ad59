"""The arguments of a call: strict JSON of an object, judged once when all of it is there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import packhost_packs.agent_runtime.strict_json as strict_json
from packhost.api import OfferedTool
from packhost_packs.agent_runtime.faults import BadCall, TurnFault

Schemas = Mapping[str, Mapping[str, Any]]

_MAY_NEED_MORE = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "$ref", "const", "enum"})


def schemas_of(tools: Iterable[OfferedTool]) -> Schemas:
    """Input schemas by wire name."""
    return {tool.name: tool.input_schema for tool in tools}


def read_arguments(raw: str, identity: str, name: str, schemas: Schemas) -> dict[str, Any]:
    """The object that a call's whole argument text holds.

    No text at all is `{}` where the tool's schema plainly allows that, as for a tool without
    arguments. Raises `TurnFault` with the call and its raw text for anything that is not an object.
    """
    if not raw:
        if allows_nothing(schemas.get(name, {})):
            return {}
        message = f"the call `{identity}` has no arguments, and `{name}` needs some"
        raise _bad("INPUT_JSON_INCOMPLETE", message, identity, name, raw)
    try:
        value = strict_json.loads(
            raw, f"the input of the call `{identity}`", "INPUT_JSON_INVALID", "INPUT_JSON_INCOMPLETE"
        )
    except TurnFault as fault:
        raise _bad(fault.issue, fault.message, identity, name, raw) from None
    if not isinstance(value, dict):
        message = f"the input of the call `{identity}` is not an object"
        raise _bad("INPUT_NOT_OBJECT", message, identity, name, raw)
    return value


def allows_nothing(schema: Mapping[str, Any]) -> bool:
    """Whether the schema plainly takes `{}`; one that would have to be worked out does not."""
    return (
        not schema.get("required") and not schema.get("minProperties") and _MAY_NEED_MORE.isdisjoint(schema)
    )


def _bad(issue: str, message: str, identity: str, name: str, raw: str) -> TurnFault:
    return TurnFault("protocol_error", issue, message, call=BadCall(identity, name, raw))
