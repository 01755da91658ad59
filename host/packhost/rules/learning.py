"""From paths that were used to the narrowest globs that say the same in few lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from packhost.errors import ConfigInvalid
from packhost.rules.globs import compile_glob

TOGETHER: Final = 3
"""Files or folders used in one folder from which the whole folder is taken."""


@dataclass(slots=True)
class _Folder:
    whole: bool = False
    files: set[str] = field(default_factory=set)
    folders: dict[str, _Folder] = field(default_factory=dict)


def globs_of(
    files: Iterable[str], folders: Iterable[str], may: Callable[[str], bool] = lambda glob: True
) -> tuple[str, ...]:
    """Globs that match every one of these clean relative paths, and all below each of the folders.

    A folder of which three files or folders were used is taken whole, where `may` says that its glob goes not
    beyond what holds already; the root never is, unless it was itself used as a folder. A path that no glob
    can say (it holds a `*`, say) is left out.
    """
    root = _Folder()
    for path in folders:
        _at(root, path.split("/") if path else []).whole = True
    for path in files:
        *above, name = path.split("/")
        _at(root, above).files.add(name)
    if root.whole:
        return ("**",)
    return tuple(sorted(glob for glob in _said(root, "", may) if _sayable(glob)))


def _at(folder: _Folder, names: list[str]) -> _Folder:
    for name in names:
        folder = folder.folders.setdefault(name, _Folder())
    return folder


def _said(folder: _Folder, prefix: str, may: Callable[[str], bool]) -> list[str]:
    if folder.whole:
        return [f"{prefix}**"]
    found = [f"{prefix}{name}" for name in folder.files]
    inside = [_said(inner, f"{prefix}{name}/", may) for name, inner in folder.folders.items()]
    # A file that was used as such and as a folder's name is one thing, not two.
    parts = len(folder.files | folder.folders.keys())
    whole = f"{prefix}**"
    if prefix and parts >= TOGETHER and _sayable(whole) and may(whole):
        return [whole]
    return [*found, *(glob for globs in inside for glob in globs)]


def _sayable(glob: str) -> bool:
    head = glob.removesuffix("**")
    try:
        return "*" not in head and compile_glob(glob).text == glob
    except ConfigInvalid:
        return False


def glob_within(inner: str, outer: str) -> bool:
    """Whether `outer` surely matches all that `inner` does; where that is not plain to see, no."""
    if inner == outer or outer == "**":
        return True
    if "*" not in inner:
        return compile_glob(outer).matches(inner)
    head = outer.removesuffix("/**")
    return head != outer and "*" not in head and f"{inner}/".startswith(f"{head}/")
