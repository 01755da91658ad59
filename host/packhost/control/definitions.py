"""What upstream servers say of themselves beyond what was accepted: shown with consent, and accepted with it.

Accepting writes `pins.json`, and the manifest's entries of what changed, into the pack's folder, and then
accepts the folder: what a person sees is digested with those files as they are going to be.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from packhost.errors import PackhostError
from packhost.kinds.mcp.pins import Pins, compare, diff_lines, read_pins
from packhost.kinds.mcp.repinning import Repinning, repin
from packhost.manifest.load import LoadedManifest, read_manifest
from packhost.manifest.upstream import KIND
from packhost.workspace.observed import Observed
from packhost.workspace.pinned import PINS_FILE
from packhost.workspace.sources import MANIFEST_FILE
from packhost.workspace.workspace import Workspace

MOST_SHOWN: Final = 200
"""Definitions of one server that are shown whole; the others are counted."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A pack whose definitions are not those that were accepted; `live` when its server says so now."""

    pack: str
    path: str
    folder: Path
    live: bool
    repinning: Repinning

    @property
    def sources(self) -> dict[str, bytes]:
        """The files that accepting writes into the folder."""
        if not self.live:
            return {}
        return {PINS_FILE: self.repinning.pins, MANIFEST_FILE: self.repinning.manifest}


def waiting(workspace: Workspace) -> tuple[Waiting, ...]:
    """Every pack with an upstream whose definitions wait for a person."""
    observed = Observed(workspace.root.state)
    packs = list(_upstreams(workspace))
    found = []
    for path, folder, loaded, accepted in packs:
        pack = loaded.manifest.id
        seen = observed.recall(pack)
        live = seen if seen is not None else _pins(folder)
        if live is None:
            continue
        elsewhere = {
            str(tool.config.get("upstream_name") or tool.name): f"`{other.manifest.id}`"
            for _, _, other, _ in packs
            if other is not loaded
            for tool in other.manifest.tools
            if tool.kind == KIND
        }
        if compare(accepted or {}, live):
            repinning = repin(loaded, accepted, live, elsewhere)
            found.append(Waiting(pack, path, folder, seen is not None, repinning))
    return tuple(found)


def _upstreams(workspace: Workspace) -> Iterator[tuple[str, Path, LoadedManifest, Pins | None]]:
    copies = {pack.origin: pack.path for pack in workspace.enabled() if pack.path is not None}
    for path, folder in workspace.pack_folders().items():
        try:
            loaded = read_manifest(folder / MANIFEST_FILE)
        except PackhostError:
            continue
        if loaded.manifest.upstream is not None:
            copy = copies.get(path)
            yield path, folder, loaded, _pins(copy) if copy is not None else None


def _pins(folder: Path) -> Pins | None:
    try:
        return read_pins((folder / PINS_FILE).read_bytes())
    except (OSError, PackhostError):
        return None


def as_json(one: Waiting) -> dict[str, Any]:
    """What a person is shown of it."""
    changes = one.repinning.changes
    return {
        "pack": one.pack,
        "path": one.path,
        "live": one.live,
        "changes": [
            {"key": change.key, "change": change.change, "diff": diff_lines(change)}
            for change in changes[:MOST_SHOWN]
        ],
        "more": max(len(changes) - MOST_SHOWN, 0),
        "doubts": [
            {"key": doubt.key, "what": doubt.what, "text": doubt.text} for doubt in one.repinning.doubts
        ],
    }


def seen(workspace: Workspace, found: tuple[Waiting, ...]) -> str:
    """What stands for the file and sources as accepting would leave them."""
    return workspace.seen_with({one.path: one.sources for one in found if one.sources})


def write(found: tuple[Waiting, ...]) -> dict[Path, bytes | None]:
    """Put the files into the packs' folders; what they held before, to be put back by `restore`."""
    before: dict[Path, bytes | None] = {}
    for one in found:
        for name, content in one.sources.items():
            path = one.folder / name
            before[path] = path.read_bytes() if path.exists() else None
            _replace(path, content)
    return before


def restore(before: Mapping[Path, bytes | None]) -> None:
    """Put back what was there."""
    for path, content in before.items():
        if content is None:
            path.unlink(missing_ok=True)
        else:
            _replace(path, content)


def settle(workspace: Workspace, found: tuple[Waiting, ...]) -> None:
    """What was accepted waits no more."""
    observed = Observed(workspace.root.state)
    for one in found:
        observed.forget(one.pack)


def _replace(path: Path, content: bytes) -> None:
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    with open(descriptor, "wb") as file:
        file.write(content)
    os.chmod(name, mode)
    os.replace(name, path)
