"""Tools that the caller of a run runs itself: what may be sent, and how they are offered to the model.

A definition is `{name, description, parameters_schema, origin, untrusted_content_hint?}`, names in camel case
too. `origin` says who runs it: `sdk`, the calling program, or `webmcp`, a page that it shows, whose output is
never trusted. One takes the place of any other tool of its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from packhost.api import InvalidInput, OfferedTool, schema_fault
from packhost_packs.agent_runtime.strict_json import dumps

KIND = "client"
LARGEST = 256 * 1024
"""Bytes of all definitions of a request together, as JSON."""
LONGEST_TEXT = 2 * 1024
"""Bytes of a description, and of each text in a schema."""
ORIGINS = ("sdk", "webmcp")

_NEEDED = ("name", "description", "parameters_schema", "origin")
_KNOWN = (*_NEEDED, "untrusted_content_hint")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}\Z", re.ASCII)
_RESERVED = frozenset({"tool_search", "spawn_subagent"})
_HUMP = re.compile(r"(?<=[a-z0-9])([A-Z])")
_SEE = "see docs/agent-runtime/resuming.md for what a definition holds"


def admitted(definitions: Sequence[Any]) -> list[dict[str, Any]]:
    """The definitions, each sound and in one spelling.

    Raises `InvalidInput` for the first that is not, with its place; nothing is left out in silence.
    """
    if len(dumps(list(definitions))) > LARGEST:
        raise InvalidInput(
            "`client_tools` is larger than 256 KiB", path="/client_tools", hint="send fewer, or shorter ones"
        )
    found: list[dict[str, Any]] = []
    for index, raw in enumerate(definitions):
        if not isinstance(raw, Mapping):
            raise InvalidInput("a client tool is not an object", path=f"/client_tools/{index}", hint=_SEE)
        definition = {_HUMP.sub(r"_\1", str(name)).lower(): value for name, value in raw.items()}
        for member, said in _faults(definition, [one["name"] for one in found]):
            raise InvalidInput(
                f"client tool {index}: {said}", path=f"/client_tools/{index}/{member}".rstrip("/"), hint=_SEE
            )
        found.append(definition)
    return found


def offered(definitions: Sequence[Mapping[str, Any]]) -> tuple[OfferedTool, ...]:
    """What a model is shown of them."""
    return tuple(
        OfferedTool(
            name=one["name"],
            canonical=f"{KIND}:{one['name']}",
            description=one["description"],
            input_schema=one["parameters_schema"],
            kind=KIND,
        )
        for one in definitions
    )


def untrusted(definition: Mapping[str, Any]) -> bool:
    """Whether the tool's output is nobody's word."""
    return definition["origin"] == "webmcp" or bool(definition.get("untrusted_content_hint"))


def _faults(definition: Mapping[str, Any], taken: Sequence[str]) -> Iterator[tuple[str, str]]:
    missing = [name for name in _NEEDED if definition.get(name) in (None, "")]
    if missing:
        yield missing[0], f"required members are missing: {', '.join(f'`{one}`' for one in missing)}"
        return
    for name in definition:
        if name not in _KNOWN:
            yield name, f"`{name[:64]}` is not known"
    name, description = definition["name"], definition["description"]
    if not isinstance(name, str) or not _NAME.match(name):
        yield "name", "its name is not a letter and up to 63 more of A-Z a-z 0-9 _ -"
        return
    plain = re.sub(r"[^a-z0-9]", "_", name.lower())
    if plain in _RESERVED or plain == "packhost" or plain.startswith("packhost_"):
        yield "name", f"its name collides with the reserved tool name `{plain}`"
    if name in taken:
        yield "name", f"the name `{name}` stands twice"
    if not isinstance(description, str) or _bytes(description) > LONGEST_TEXT:
        yield "description", "its description is not a text of up to 2 KiB"
    if definition["origin"] not in ORIGINS:
        yield "origin", "`origin` is `sdk` or `webmcp`"
    if not isinstance(definition.get("untrusted_content_hint", False), bool):
        yield "untrusted_content_hint", "`untrusted_content_hint` is true or false"
    schema = definition["parameters_schema"]
    if not isinstance(schema, Mapping):
        yield "parameters_schema", "`parameters_schema` is not a JSON Schema object"
    elif any(_bytes(text) > LONGEST_TEXT for text in _texts(schema)):
        yield "parameters_schema", "a text in its schema is longer than 2 KiB"
    elif (said := schema_fault(schema)) is not None:
        yield "parameters_schema", said


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _texts(value: Any) -> Iterator[str]:
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, Mapping):
            left += [*one.keys(), *one.values()]
        elif isinstance(one, list):
            left += one
