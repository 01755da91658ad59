"""Manifests of the packs that a workspace names, found without importing a pack."""

from __future__ import annotations

from pathlib import Path

from packhost.errors import PackhostError
from packhost.manifest.load import load_manifest
from packhost.manifest.model import PackManifest
from packhost.shipped import SHIPPED_PACKS, shipped_manifest
from packhost.workspace.sources import MANIFEST_FILE


class InstalledPacks:
    """Finds the manifests of packs that need no path; here the shipped ones alone."""

    def manifest(self, pack: str) -> PackManifest | None:
        """The manifest of a pack, or `None` when there is no sound one."""
        if pack not in SHIPPED_PACKS:
            return None
        try:
            return load_manifest(shipped_manifest(pack), shipped=True)
        except PackhostError:
            return None


def manifest_in(folder: Path) -> PackManifest | None:
    """The manifest of the pack in `folder`, or `None` when there is no sound one."""
    try:
        return load_manifest(folder / MANIFEST_FILE)
    except PackhostError:
        return None
