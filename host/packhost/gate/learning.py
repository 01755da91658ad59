"""What calls on record really used, and the narrowest scopes that cover it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from packhost.gate.catalog import Catalog, Entry
from packhost.gate.evaluate import values_at
from packhost.rules.arguments import Unanswerable, as_path
from packhost.rules.globs import overlaps
from packhost.rules.learning import glob_within, globs_of
from packhost.rules.scopes import Access, Layer, PathScope, Scope, format_scope
from packhost.store.ops.history import RecordedCall

Paths = dict[tuple[Access, bool], set[str]]
"""Paths by access, and whether each is a folder of which all was used."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """What is enough: `bound` for the workspace, `packs` for those that need less than that."""

    calls: int
    left_out: int
    """Calls of tools that are no longer here."""
    used: tuple[str, ...]
    unused_tools: tuple[str, ...]
    """Tools on offer that were never called, of packs of which others were; control tools aside."""
    unused_packs: tuple[str, ...]
    bound: tuple[str, ...]
    packs: Mapping[str, tuple[str, ...]]


@dataclass(slots=True)
class _Used:
    entries: dict[str, Entry] = field(default_factory=dict)
    paths: Paths = field(default_factory=dict)


def learn(calls: Iterable[RecordedCall], catalog: Catalog, root_descriptor: int) -> Lesson:
    """Learn from the calls that ran; what was refused teaches nothing.

    A path that is a folder now counts as used with all below it, since the record does not tell what a search
    looked at. What a handler uses beyond its arguments is not on record: its scopes are kept as declared.
    """
    by_pack: dict[str, _Used] = {}
    count = left_out = 0
    for call in calls:
        if call.met == "refused" or call.arguments is None:
            continue
        entry = catalog.find(call.tool)
        if entry is None or entry.uncovered is not None:
            left_out += 1
            continue
        count += 1
        used = by_pack.setdefault(entry.tool.id.pack, _Used())
        used.entries[entry.tool.id.canonical] = entry
        for access, path, whole in _paths(entry, call.arguments, root_descriptor):
            used.paths.setdefault((access, whole), set()).add(path)
    offered = [entry for entry in catalog.listed() if not entry.tool.spec.control]
    called = {name for used in by_pack.values() for name in used.entries}
    for pack, used in by_pack.items():
        # What steers runs stays within reach, called or not.
        controls = [entry for entry in catalog.listed() if entry.tool.spec.control]
        used.entries.update({e.tool.id.canonical: e for e in controls if e.tool.id.pack == pack})
    every = {name: entry for used in by_pack.values() for name, entry in used.entries.items()}
    bound = _lines(_Used(every, _together(by_pack.values())))
    own = {pack: _lines(used) for pack, used in by_pack.items()}
    names = [entry.tool.id for entry in offered]
    return Lesson(
        calls=count,
        left_out=left_out,
        used=tuple(sorted(called)),
        unused_tools=tuple(
            sorted(one.canonical for one in names if one.pack in by_pack and one.canonical not in called)
        ),
        unused_packs=tuple(sorted({entry.tool.id.pack for entry in catalog.listed()} - by_pack.keys())),
        bound=bound,
        packs={pack: lines for pack, lines in sorted(own.items()) if set(lines) != set(bound)},
    )


def _together(several: Iterable[_Used]) -> Paths:
    found: Paths = {}
    for used in several:
        for key, paths in used.paths.items():
            found.setdefault(key, set()).update(paths)
    return found


def _paths(
    entry: Entry, arguments: Mapping[str, Any], root_descriptor: int
) -> Iterator[tuple[Access, str, bool]]:
    """Each path that a call named, for every access that its tool declares, and whether it is a folder."""
    declared = {scope.access for scope in entry.tool.scopes if isinstance(scope, PathScope)}
    given = {**_defaults(entry.tool.spec.input_schema), **arguments}
    for place, access in entry.tool.path_arguments:
        for _, value in values_at(given, place):
            try:
                path = as_path("path", value)
            except Unanswerable:
                continue
            whole = _is_folder(path, root_descriptor) or arguments.get("recursive") is True
            # A handler that may also read what it writes does so: to show a diff, or to change a part.
            for each in sorted(declared | {access}):
                yield each, path, whole


def _defaults(schema: Mapping[str, Any]) -> dict[str, Any]:
    properties = schema.get("properties", {})
    known = {name: one for name, one in properties.items() if isinstance(one, dict)}
    return {name: one["default"] for name, one in known.items() if "default" in one}


def _is_folder(path: str, root_descriptor: int) -> bool:
    try:
        found = os.stat(path or ".", dir_fd=root_descriptor, follow_symlinks=False)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode)


def _lines(used: _Used) -> tuple[str, ...]:
    """The scopes that cover what was used, within what holds already."""
    entries = list(used.entries.values())
    found: list[Scope] = []
    for access in ("read", "write"):
        layers = [layer for entry in entries if _uses(entry, access) for layer in entry.layers]
        globs = _globs(used.paths, access, layers)
        found += [PathScope(access, glob) for glob in globs]
    for entry in entries:
        found += [scope for scope in entry.tool.scopes if not isinstance(scope, PathScope)]
        found += [
            scope for scope in entry.tool.scopes if isinstance(scope, PathScope) and not _met(scope, found)
        ]
    return tuple(dict.fromkeys(format_scope(scope) for scope in found))


def _uses(entry: Entry, access: Access) -> bool:
    # The layers of a tool that only reads say nothing of writing, and a folder is not to be split for them.
    scopes = any(isinstance(scope, PathScope) and scope.access == access for scope in entry.tool.scopes)
    return scopes or any(access == each for _, each in entry.tool.path_arguments)


def _globs(paths: Paths, access: Access, layers: Sequence[Layer]) -> tuple[str, ...]:
    def held(glob: str) -> bool:
        return all(any(glob_within(glob, outer.text) for outer in layer.globs(access)) for layer in layers)

    return globs_of(paths.get((access, False), ()), paths.get((access, True), ()), held)


def _met(scope: PathScope, found: Iterable[Scope]) -> bool:
    return any(
        isinstance(one, PathScope) and one.access == scope.access and overlaps(one.glob, scope.glob)
        for one in found
    )
