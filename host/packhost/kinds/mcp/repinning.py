"""What accepting a server's changed definitions makes of its pack: the pins, and the manifest's entries.

An entry takes over what changed; what a person wrote into it (a name, a permission, scopes, an edited
description, marks of paths) stays. A tool that is new gets a proposal, one that is gone loses its entry.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from packhost.errors import PackhostError
from packhost.kinds.mcp.pins import PinChange, Pins, compare, pins_text
from packhost.kinds.mcp.proposals import propose
from packhost.kinds.mcp.specs import Reach, described, own_schema, schemas_of, tool_entry, tool_name
from packhost.kinds.mcp.suspicion import Suspicion, suspicions
from packhost.manifest.load import LoadedManifest, parse_manifest
from packhost.manifest.model import ToolSpec
from packhost.manifest.schemas import path_arguments
from packhost.manifest.upstream import KIND
from packhost.workspace.writing import entry


@dataclass(frozen=True, slots=True)
class Repinning:
    """What is to be accepted of one server: changes, doubts about them, and the pack's files after it."""

    changes: tuple[PinChange, ...]
    doubts: tuple[Suspicion, ...]
    pins: bytes
    manifest: bytes


def repin(loaded: LoadedManifest, pinned: Pins | None, live: Pins, elsewhere: Mapping[str, str]) -> Repinning:
    """What accepting `live` in place of `pinned` comes to; `None` for a server that nothing was accepted of.

    `elsewhere` are other servers' tools: name to whose it is.
    """
    changes = compare(pinned or {}, live)
    touched = {change.key: live[change.key] for change in changes if change.key in live}
    doubts = tuple(doubt for doubt in suspicions(live, elsewhere) if doubt.key in touched)
    return Repinning(changes, doubts, pins_text(live), _manifest(loaded, changes, first=pinned is None))


def _manifest(loaded: LoadedManifest, changes: tuple[PinChange, ...], *, first: bool) -> bytes:
    """The manifest's text after it; as it was, where it is not written an entry a line or would not hold."""
    text = loaded.source.decode("utf-8")
    starts = [loaded.tool_place(index).line - 1 for index in range(len(loaded.manifest.tools))]
    lines = text.removesuffix("\n").split("\n")
    if len(set(starts)) != len(starts) or any("- " not in lines[start] for start in starts):
        return loaded.source
    by_name = {change.name: change for change in changes if change.key.startswith("tool:")}
    ends = [*starts[1:], _end(lines, starts)]
    new = lines[: starts[0]] if starts else lines
    if starts:
        indent = lines[starts[0]][: len(lines[starts[0]]) - len(lines[starts[0]].lstrip())]
        for spec, raw, start, end in zip(loaded.manifest.tools, _raw(loaded), starts, ends, strict=True):
            change = by_name.get(_original(spec)) if spec.kind == KIND else None
            kept = dict(raw) if change is None else _entry(spec, raw, change)
            new += lines[start:end] if kept == raw else entry(kept, indent) if kept else []
        if not first:
            listed = {_original(spec) for spec in loaded.manifest.tools}
            for added in _added(loaded, {name: by_name[name] for name in by_name.keys() - listed}):
                new += entry(added, indent)
        new += lines[ends[-1] :]
    made = ("\n".join(new) + "\n").encode()
    try:
        parse_manifest(made, "pack.yaml")
    except PackhostError:
        return loaded.source
    return made


def _end(lines: list[str], starts: list[int]) -> int:
    """The line after the last entry: the next key, or the end."""
    after = range(starts[-1] + 1, len(lines)) if starts else range(0)
    return next((n for n in after if lines[n][:1] not in (" ", "\t", "#", "", "\r")), len(lines))


def _raw(loaded: LoadedManifest) -> list[dict[str, Any]]:
    return list(loaded.document.data["tools"])


def _original(spec: ToolSpec) -> str:
    return str(spec.config.get("upstream_name") or spec.name)


def _entry(spec: ToolSpec, raw: dict[str, Any], change: PinChange) -> dict[str, Any]:
    """The entry of a tool whose definition changed; empty for one that is gone.

    What was not taken from the definition before is a person's own and stays.
    """
    if change.after is None:
        return {}
    made = dict(raw)
    paths = {path: str(access) for path, access in path_arguments(spec.input_schema)}
    schemas = schemas_of(change.after, paths)
    if change.before is None:
        return made if "input_schema" in raw else made | schemas
    before, after = described(change.before), described(change.after)
    if raw.get("description") == before["description"]:
        made["description"] = after["description"]
    if raw.get("title") == before.get("title") and "title" in after:
        made["title"] = after["title"]
    if own_schema(raw.get("input_schema")) == own_schema(change.before.get("inputSchema")):
        made["input_schema"] = schemas["input_schema"]
    if raw.get("output_schema") == schemas_of(change.before, {}).get("output_schema"):
        made.pop("output_schema", None)
        made |= {"output_schema": schemas["output_schema"]} if "output_schema" in schemas else {}
    return made


def _added(loaded: LoadedManifest, left: Mapping[str, PinChange]) -> Iterator[dict[str, Any]]:
    manifest, upstream = loaded.manifest, loaded.manifest.upstream
    if upstream is None:
        return
    written = [
        scope.split(" ", 2)[2] for tool in manifest.tools for scope in tool.required_scopes if _writes(scope)
    ]
    reach = Reach(upstream.url, upstream.secrets, tuple(dict.fromkeys(written)) or ("**",))
    taken = {tool.name for tool in manifest.tools}
    for _, change in sorted(left.items()):
        if change.change == "new" and change.after is not None:
            name = tool_name(change.name, manifest.id, taken)
            taken.add(name)
            yield tool_entry(name, change.after, propose(change.after, local=upstream.url is None), reach)


def _writes(scope: str) -> bool:
    return scope.startswith("path write ")
