"""Tools of type `local` among those that a request brings: its caller runs them, as it does client tools."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from packhost.api import InvalidInput
from packhost_packs.agent_runtime.client_tools import admitted

_NEEDED = ("name", "description", "tool_type", "parameters_schema")
_TYPE = ("tool_type", "toolType")
_HUMP = re.compile(r"(?<=[a-z0-9])([A-Z])")


def local_tools(definitions: Sequence[Any]) -> dict[int, dict[str, Any]]:
    """Those of type `local` as client tools, by their place.

    Raises `InvalidInput` for one that is not sound.
    """
    return {
        index: _client_tool(raw, index)
        for index, raw in enumerate(definitions)
        if isinstance(raw, Mapping) and any(raw.get(name) == "local" for name in _TYPE)
    }


def moved(path: str, places: Sequence[int]) -> str:
    """A path into the other definitions, as it is among all of them."""
    _, _, rest = path.partition("/runtime_tools/")
    number, slash, inner = rest.partition("/")
    if not number.isdigit() or int(number) >= len(places):
        return path
    return f"/runtime_tools/{places[int(number)]}{slash}{inner}"


def _client_tool(raw: Mapping[str, Any], index: int) -> dict[str, Any]:
    at = f"/runtime_tools/{index}"
    definition = {_HUMP.sub(r"_\1", str(name)).lower(): value for name, value in raw.items()}
    missing = [name for name in _NEEDED if definition.get(name) in (None, "")]
    if missing:
        listed = ", ".join(f"`{name}`" for name in missing)
        raise InvalidInput(f"Runtime tool missing required fields: {listed}", path=at, hint="add them")
    definition.pop("tool_type")
    definition.pop("config", None)
    try:
        (found,) = admitted([{**definition, "origin": "sdk"}])
    except InvalidInput as error:
        message = error.message.removeprefix("client tool 0: ")
        raise InvalidInput(f"runtime tool {index}: {message}", path=at, hint=error.hint) from None
    return found


def together(
    local: Sequence[Mapping[str, Any]], sent: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """All that the caller runs; of one name the one that was sent as a client tool."""
    taken = {one["name"] for one in sent}
    return [*(one for one in local if one["name"] not in taken), *sent]
