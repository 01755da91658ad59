"""`packhost.lock`: versions and hashes of what was accepted, for review; consent itself is the authority."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from packhost.manifest.model import PackManifest
from packhost.workspace.consent import PinnedPack
from packhost.workspace.settings import Settings

LOCK_FILE = "packhost.lock"
_HEAD = "# Written by packhost when packhost.yaml is accepted. For review only: editing it changes nothing.\n"


def lock_text(
    settings: Settings, pinned: Mapping[str, PinnedPack], find: Callable[[str], PackManifest | None]
) -> bytes:
    """The content of the lock file; YAML."""
    lines = [_HEAD, "packhost: 1\n", "packs:\n" if settings.packs else "packs: []\n"]
    for pack in settings.packs:
        if pack.path is not None:
            kept = pinned[pack.path]
            lines.append(f"  - id: {kept.id}\n    path: {json.dumps(pack.path)}\n")
            lines.append(f"    version: {json.dumps(kept.version)}\n    sha256: {json.dumps(kept.sha256)}\n")
        else:
            manifest = find(pack.name)
            version = f"\n    version: {json.dumps(manifest.version)}" if manifest else ""
            lines.append(f"  - id: {pack.name}{version}\n")
    return "".join(lines).encode()
