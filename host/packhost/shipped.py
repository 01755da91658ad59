"""Where the manifests lie that come with packhost, and whose they are."""

from __future__ import annotations

from pathlib import Path

SHIPPED_PACKS = ("agent-runtime", "workspace")
"""The packs that come with packhost; they alone may declare control tools and are never pinned."""


def manifests_folder() -> Path:
    """The folder of the shipped manifests: inside the package in a wheel, beside `host/` in a checkout."""
    package = Path(__file__).resolve().parent
    inside = package / "manifests"
    return inside if inside.is_dir() else package.parents[1] / "manifests"


def shipped_manifest(pack: str) -> Path:
    """The manifest of a shipped pack; the file exists for every name in `SHIPPED_PACKS`."""
    return manifests_folder() / f"{pack}.yaml"
