"""From what a server says of a tool to the tool's entry in a manifest."""

from __future__ import annotations

import copy
import hashlib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from packhost.kinds.mcp.proposals import Proposal, words_of
from packhost.manifest.upstream import KIND, scope_of
from packhost.names import WIRE_LIMIT

_TIMEOUT: Final = "5m"
_DIALECT: Final = "$schema"


@dataclass(frozen=True, slots=True)
class Reach:
    """What every tool of a server needs: its address, the secrets it is given, and where it may write."""

    url: str | None
    secrets: tuple[str, ...]
    write_globs: tuple[str, ...]
    """For arguments that are paths."""


def tool_name(original: str, pack: str, taken: Collection[str]) -> str:
    """A tool's name in its manifest, unlike those that are taken and short enough for every client."""
    plain = original.lower() if original.islower() else "_".join(words_of(original))
    plain = re.sub(r"[^a-z0-9_-]+", "_", plain).strip("_-") or "tool"
    plain = plain if plain[0].isalpha() else f"t_{plain}"
    room = WIRE_LIMIT - len(pack) - 1
    if len(plain) > room or plain in taken:
        mark = hashlib.sha256(original.encode("utf-8", "surrogatepass")).hexdigest()[:6]
        plain = f"{plain[: room - 7].rstrip('_-')}_{mark}"
    return plain


def tool_entry(name: str, definition: Mapping[str, Any], proposal: Proposal, reach: Reach) -> dict[str, Any]:
    """The entry, as it is proposed."""
    spec: dict[str, Any] = {"name": name, **described(definition), "kind": KIND}
    spec["permission"] = proposal.permission
    if scopes := _scopes(proposal, reach):
        spec["required_scopes"] = scopes
    if proposal.outside:
        spec["untrusted_output"] = True
    spec["timeout"] = _TIMEOUT
    spec["config"] = {"upstream_name": str(definition.get("name", ""))}
    access = "read" if proposal.permission == "read" else "write"
    return spec | schemas_of(definition, dict.fromkeys(proposal.paths, access))


def described(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Title and description of an entry."""
    title = str(definition.get("title") or "")
    said = str(definition.get("description") or title or f"The tool {definition.get('name', '')}.")
    return {"title": title, "description": said} if title else {"description": said}


def schemas_of(definition: Mapping[str, Any], paths: Mapping[tuple[str, ...], str]) -> dict[str, Any]:
    """The schemas of an entry, with `x-path` at these places."""
    found = {"input_schema": marked(own_schema(definition.get("inputSchema")), paths)}
    output = definition.get("outputSchema")
    return found | ({"output_schema": own_schema(output)} if isinstance(output, Mapping) else {})


def _scopes(proposal: Proposal, reach: Reach) -> list[str]:
    scopes = [scope_of(reach.url)] if reach.url is not None else []
    if proposal.paths:
        scopes.append("path read **")
        if proposal.permission != "read":
            scopes += [f"path write {glob}" for glob in reach.write_globs]
    return scopes + [f"secret {name}" for name in reach.secrets]


def own_schema(schema: Any) -> dict[str, Any]:
    """A schema in the dialect that packhost reads, without marks that only packhost gives a meaning."""
    found = _translated(copy.deepcopy(schema)) if isinstance(schema, Mapping) else {}
    found.pop(_DIALECT, None)
    return {"type": "object", **found} if found.get("type", "object") == "object" else found


def _translated(value: Any, *, named: bool = False) -> Any:
    if isinstance(value, list):
        return [_translated(one) for one in value]
    if not isinstance(value, dict):
        return value
    found = {}
    for key, inner in value.items():
        if key == "x-path" and not named:
            continue
        names = not named and key in ("properties", "patternProperties", "$defs", "definitions")
        found[key] = _translated(inner, named=names)
    if not named and isinstance(found.get("items"), list):
        # a tuple, as dialects before 2020-12 wrote it
        found["prefixItems"], rest = found.pop("items"), found.pop("additionalItems", None)
        if rest is not None:
            found["items"] = rest
    return found


def marked(schema: dict[str, Any], paths: Mapping[tuple[str, ...], str]) -> dict[str, Any]:
    """The schema with `x-path` at these places, where a string still stands there."""
    for path, access in paths.items():
        node: Any = schema
        for step in path:
            inner = node.get("items") if step == "*" else (node.get("properties") or {}).get(step)
            if not isinstance(inner, dict):
                break
            node = inner
        else:
            if node.get("type") == "string":
                node["x-path"] = access
    return schema
