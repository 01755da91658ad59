"""Parameters that take bytes: a handle given for one is replaced by what it stands for, before the tool runs.

A parameter is one when its schema says `contentEncoding: base64`. Any other gets a handle as the text that it
is. What is asked of people, decided and recorded is the handle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from packhost.kinds.assets import SCHEME, AssetService
from packhost.kinds.base import Kind, Tool
from packhost.kinds.context import CallContext
from packhost.manifest.model import ToolSpec
from packhost.sandbox.level import Enforcement

Step = tuple[str, ...]
_EACH: Final = "*"
_DEEPEST: Final = 32


def binary_parameters(schema: Mapping[str, Any]) -> tuple[Step, ...]:
    """Where arguments take bytes; a list's entries are the step `*`."""
    return tuple(_found(schema, ()))


def _found(schema: Mapping[str, Any], at: Step) -> list[Step]:
    if at and schema.get("contentEncoding") == "base64":
        return [at]
    found: list[Step] = []
    if len(at) > _DEEPEST:
        return found
    properties = schema.get("properties")
    if isinstance(properties, Mapping):
        for name, inner in properties.items():
            if isinstance(inner, Mapping):
                found += _found(inner, (*at, name))
    items = schema.get("items")
    if at and isinstance(items, Mapping):
        found += _found(items, (*at, _EACH))
    return found


class WithAssets:
    """A kind whose tool takes bytes."""

    def __init__(self, kind: Kind, places: Sequence[Step], assets: AssetService) -> None:
        self.kind = self._kind = kind
        self._places = places
        self._assets = assets

    @property
    def name(self) -> str:
        """The word in a manifest's `kind`."""
        return self._kind.name

    def check(self, spec: ToolSpec, folder: Path | None = None) -> list[str]:
        """What is wrong with a tool's definition."""
        return self._kind.check(spec, folder)

    def enforcement(self, tool: Tool) -> Enforcement:
        """How strongly this tool's scopes are enforced."""
        return self._kind.enforcement(tool)

    async def preview(self, tool: Tool, arguments: dict[str, Any], context: CallContext) -> str:
        """What a person should see; of handles, the handles."""
        return await self._kind.preview(tool, arguments, context)

    async def run(self, tool: Tool, arguments: dict[str, Any], context: CallContext) -> Any:
        """Run one call with the bytes in place; raises `NotFound` for a handle without anything behind it."""
        filled: Any = arguments
        for place in self._places:
            filled = await self._filled(filled, place, context)
        return await self._kind.run(tool, filled, context)

    async def close(self) -> None:
        """The kind itself is closed by whoever made it."""

    async def _filled(self, value: Any, place: Step, context: CallContext) -> Any:
        """A copy along one place, with bytes for each handle there."""
        if not place:
            if not isinstance(value, str) or not value.startswith(SCHEME):
                return value
            found = await self._assets.open(value, session_id=context.session_id, principal=context.principal)
            return found.base64
        head, rest = place[0], place[1:]
        if head == _EACH and isinstance(value, list):
            return [await self._filled(one, rest, context) for one in value]
        if isinstance(value, Mapping) and head in value:
            return {**value, head: await self._filled(value[head], rest, context)}
        return value
