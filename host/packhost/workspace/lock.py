"""`packhost.lock`: versions and hashes of what was accepted, for review; consent itself is the authority."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from packhost.errors import ConfigInvalid
from packhost.manifest.model import PackManifest
from packhost.workspace.consent import PinnedPack
from packhost.workspace.pinned import PINS_FILE, digest, read_pins
from packhost.workspace.settings import Settings

LOCK_FILE = "packhost.lock"
_HEAD = "# Written by packhost when packhost.yaml is accepted. For review only: editing it changes nothing.\n"


def lock_text(
    settings: Settings,
    pinned: Mapping[str, PinnedPack],
    find: Callable[[str], PackManifest | None],
    copies: Path,
) -> bytes:
    """The content of the lock file; YAML. `copies` is where the accepted sources are, by hash.

    Of a pack whose tools an upstream server defines, each definition has its hash.
    """
    lines = [_HEAD, "packhost: 1\n", "packs:\n" if settings.packs else "packs: []\n"]
    for pack in settings.packs:
        if pack.path is not None:
            kept = pinned[pack.path]
            lines.append(f"  - id: {kept.id}\n    path: {json.dumps(pack.path)}\n")
            lines.append(f"    version: {json.dumps(kept.version)}\n    sha256: {json.dumps(kept.sha256)}\n")
            lines += _definitions(copies / kept.sha256 / PINS_FILE)
        else:
            manifest = find(pack.name)
            version = f"\n    version: {json.dumps(manifest.version)}" if manifest else ""
            lines.append(f"  - id: {pack.name}{version}\n")
    return "".join(lines).encode()


def _definitions(file: Path) -> Iterator[str]:
    try:
        pins = read_pins(file.read_bytes())
    except (OSError, ConfigInvalid):
        return
    if pins:
        yield "    definitions:\n"
    for key in sorted(pins):
        yield f"      {json.dumps(key)}: {json.dumps(digest(pins[key]))}\n"
