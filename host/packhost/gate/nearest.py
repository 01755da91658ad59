"""The nearest path that would be allowed, for one that is not."""

from __future__ import annotations

from collections.abc import Sequence

from packhost.errors import PackhostError
from packhost.rules.scopes import Access, Layer, PathScope
from packhost.sandbox.paths import FileBroker


def nearest_path(
    value: str, access: Access, layers: Sequence[Layer], files: FileBroker, root_path: str = ""
) -> str | None:
    """The path's relative spelling, or its file name under a folder that every layer allows.

    `None` when there is none; for a read only what exists.
    """
    for candidate in _candidates(value, access, layers, root_path):
        try:
            files.resolve(candidate, access)
            if access == "read":
                files.stat(candidate)
        except PackhostError:
            continue
        return candidate
    return None


def _candidates(value: str, access: Access, layers: Sequence[Layer], root_path: str) -> list[str]:
    spelled = value.replace("\\", "/").rstrip("/")
    inside = (
        [spelled.removeprefix(root_path + "/")] if root_path and spelled.startswith(root_path + "/") else []
    )
    name = spelled.rpartition("/")[2]
    if not name or name in (".", ".."):
        return inside
    return [*inside, *(f"{folder}/{name}" if folder else name for folder in _folders(access, layers))]


def _folders(access: Access, layers: Sequence[Layer]) -> list[str]:
    """The literal folders that the globs start with, the longest first; no dot-folder."""
    found = {
        "/".join(_literal(scope.glob.split("/")[:-1]))
        for layer in layers
        for scope in layer.scopes
        if isinstance(scope, PathScope) and scope.access == access
    }
    return sorted((f for f in found if not f.startswith(".")), key=lambda folder: (-len(folder), folder))


def _literal(segments: Sequence[str]) -> list[str]:
    out: list[str] = []
    for segment in segments:
        if "*" in segment:
            break
        out.append(segment)
    return out
