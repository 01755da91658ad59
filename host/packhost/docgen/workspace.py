"""Which packs a reference is of: those that a workspace enables, else every shipped one."""

from __future__ import annotations

from packhost.errors import ConfigInvalid
from packhost.manifest.load import load_manifest
from packhost.manifest.model import PackManifest
from packhost.manifest.problems import error_of
from packhost.packs.discover import EntryPoints, find_packs
from packhost.shipped import SHIPPED_PACKS, shipped_manifest
from packhost.workspace.root import Root
from packhost.workspace.workspace import Workspace


def shipped_manifests() -> list[PackManifest]:
    """The manifest of every pack that comes with packhost."""
    return [load_manifest(shipped_manifest(pack), shipped=True) for pack in SHIPPED_PACKS]


def enabled_manifests(root: Root) -> list[PackManifest]:
    """The manifest of every pack that the workspace enables; one by path as it was accepted.

    Raises `ConfigInvalid` for a pack without a sound manifest, so that no page goes missing unseen.
    """
    installed = EntryPoints()
    workspace = Workspace(root, installed=installed)
    if workspace.broken is not None:
        raise error_of(ConfigInvalid, [workspace.broken])
    found, problems = find_packs(workspace.enabled(), installed)
    if problems:
        raise error_of(ConfigInvalid, problems)
    return [pack.manifest for pack in found]
