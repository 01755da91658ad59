"""A pack as a workspace enables it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from packhost.rules.scopes import Layer


@dataclass(frozen=True, slots=True)
class EnabledPack:
    """A pack that both configurations enable. `path` is the accepted copy of a pack that is not installed."""

    id: str
    path: Path | None
    trust: bool
    layers: tuple[Layer, ...]
    """The narrowings that the workspace's entries for it add."""
    sha256: str = ""
    """Of the accepted sources; empty for a pack that is installed."""
    origin: str = ""
    """The path that the file gives; empty for a pack that is installed."""
