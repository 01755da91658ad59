"""The exact contract between `requested_tools` and the calls in `content_blocks`.

Both hold the same calls at the same positions: id, name and input. An id is present, a non-empty
string and unique; none is ever invented. Whatever breaks this is refused before anything runs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from packhost_packs.agent_runtime.faults import ContractBroken
from packhost_packs.agent_runtime.strict_json import same

Block = Mapping[str, Any]


def calls_in(blocks: Sequence[Block]) -> list[Block]:
    """The `tool_call` blocks, in order."""
    return [block for block in blocks if block.get("type") == "tool_call"]


def check_contract(
    requested: Sequence[Block], blocks: Sequence[Block], used: Collection[str] = frozenset()
) -> None:
    """Hold the two lists against each other; `used` are the ids of earlier calls.

    Raises `ContractBroken` with the issue that names what is wrong.
    """
    calls = calls_in(blocks)
    check_calls(requested, used)
    check_calls(calls, used)
    wanted, found = [call["id"] for call in requested], [call["id"] for call in calls]
    if missing := [one for one in found if one not in wanted]:
        raise ContractBroken("CONTRACT_MISSING_CALL", f"the call `{missing[0]}` is not in requested_tools")
    if extra := [one for one in wanted if one not in found]:
        raise ContractBroken("CONTRACT_EXTRA_CALL", f"the call `{extra[0]}` is not in content_blocks")
    if wanted != found:
        raise ContractBroken("CONTRACT_REORDERED", "requested_tools has another order than content_blocks")
    for asked, call in zip(requested, calls, strict=True):
        if asked["name"] != call["name"]:
            message = f"the call `{call['id']}` has two names, `{asked['name']}` and `{call['name']}`"
            raise ContractBroken("CONTRACT_NAME_MISMATCH", message)
        if not same(asked["input"], call["input"]):
            raise ContractBroken("CONTRACT_INPUT_MISMATCH", f"the call `{call['id']}` has two inputs")


def check_calls(calls: Sequence[Block], used: Collection[str] = frozenset()) -> None:
    """Hold each call of one list to having an id of its own, a name and an object as its input.

    Raises `ContractBroken`.
    """
    seen: dict[str, Block] = {}
    for position, call in enumerate(calls):
        identity = _identity(call, position)
        if identity in seen:
            alike = seen[identity].get("name") == call.get("name")
            issue = "CALL_ID_DUPLICATE" if alike else "CALL_ID_CONFLICT"
            raise ContractBroken(issue, f"two calls have the id `{identity}`")
        if identity in used:
            raise ContractBroken("CALL_ID_REUSED", f"an earlier call has the id `{identity}`")
        seen[identity] = call
        name = call.get("name")
        if not isinstance(name, str) or not name:
            raise ContractBroken("CALL_NAME_MISSING", f"the call `{identity}` has no name")
        if not isinstance(call.get("input"), dict):
            raise ContractBroken("INPUT_NOT_OBJECT", f"the input of the call `{identity}` is not an object")


def _identity(call: Block, position: int) -> str:
    identity = call.get("id")
    if identity is None:
        raise ContractBroken("CALL_ID_MISSING", f"the call at position {position} has no id")
    if not isinstance(identity, str):
        raise ContractBroken("CALL_ID_MISSING", f"the id of the call at position {position} is not a string")
    if not identity:
        raise ContractBroken("CALL_ID_EMPTY", f"the call at position {position} has an empty id")
    return identity
