"""Packs by path: their folders as they stand, the copies that were accepted, and how the two differ.

What runs is the accepted copy, named by its hash and hashed again whenever a file in it looks different.
An edit of the folder changes nothing that runs; it is noticed within about a second and shown as a diff.
"""

from __future__ import annotations

import difflib
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final, Literal

from packhost.errors import ConfigInvalid, PackhostError
from packhost.manifest.load import load_manifest
from packhost.manifest.problems import Problem, problems_of
from packhost.workspace.consent import PACKS_FOLDER, PinnedPack
from packhost.workspace.files import look
from packhost.workspace.root import Root
from packhost.workspace.sources import (
    MANIFEST_FILE,
    MAX_FILES,
    Sources,
    digest_of,
    files_below,
    read_sources,
)

LOOK_EVERY: Final = 1.0
"""Seconds between two looks at the files of packs; a look costs a stat a file."""
DIFF_LINES: Final = 400
"""Lines of one file's diff that are shown; how many more there are is said."""
_CHANGES: Final[dict[tuple[bool, bool], Literal["new", "gone", "changed"]]] = {
    (False, True): "new",
    (True, False): "gone",
    (True, True): "changed",
}
RUNS_ON: Final = "the accepted copy runs on"
"""Ends what is said of a pack that was edited: nothing is wrong, and nothing changed yet."""
_WIDEST: Final = 500
"""Characters of one shown line."""


@dataclass(frozen=True, slots=True)
class FileChange:
    """How one file of a pack differs from its accepted copy; `diff` is empty for a binary one."""

    name: str
    change: Literal["new", "gone", "changed"]
    binary: bool
    size: int
    """Bytes that it has now."""
    diff: tuple[str, ...] = ()
    left_out: int = 0
    """Lines of the diff that are not shown."""


class PathPacks:
    """The packs by path of one workspace; `clock` gives seconds and never goes back."""

    def __init__(self, root: Root, clock: Callable[[], float] = time.monotonic) -> None:
        self._root = root
        self._clock = clock
        self._watched: tuple[Path, ...] = ()
        self._mark: object = None
        self._looked = -LOOK_EVERY
        self._whole: dict[str, bool] = {}
        self.current: dict[str, str] = {}
        """The hash of each folder's sources by the path that the file gives; without it for a broken one."""

    def folder(self, path: str) -> Path:
        """The folder that a file's `path` means."""
        return self._root.path / Path(path).expanduser()

    def copy(self, pack: PinnedPack) -> Path:
        """The accepted copy."""
        return self._root.state / PACKS_FOLDER / pack.sha256

    def kept(self, pack: PinnedPack) -> bool:
        """Whether the accepted copy is whole, as it was at the last check."""
        if pack.sha256 not in self._whole:
            try:
                self._whole[pack.sha256] = digest_of(read_sources(self.copy(pack))) == pack.sha256
            except PackhostError:
                self._whole[pack.sha256] = False
        return self._whole[pack.sha256]

    def mark(self) -> object:
        """What tells of a change in any folder or copy, and of another root; looked at once a second."""
        now = self._clock()
        if now - self._looked >= LOOK_EVERY:
            self._looked = now
            self._mark = (self._root.moved, *(_tree(folder) for folder in self._watched))
        return self._mark

    def check(self, paths: Iterable[str], pinned: Mapping[str, PinnedPack]) -> list[Problem]:
        """Read every folder and copy again; what is wrong with them."""
        self.current, self._whole = {}, {}
        problems = _moved(self._root) if self._root.moved else []
        watched = []
        for path in dict.fromkeys(paths):
            watched.append(self.folder(path))
            try:
                self.current[path] = digest_of(read_sources(self.folder(path)))
            except PackhostError as error:
                problems += problems_of(error)
            old = pinned.get(path)
            if path in self.current and (old is None or self.current[path] != old.sha256):
                problems += self._unloadable(path)
            if old is not None:
                watched.append(self.copy(old))
                problems += self._against(old, path)
        self._watched = tuple(watched)
        return problems

    def _unloadable(self, path: str) -> tuple[Problem, ...]:
        try:
            load_manifest(self.folder(path) / MANIFEST_FILE, name=f"{path.rstrip('/')}/{MANIFEST_FILE}")
        except PackhostError as error:
            return problems_of(error)
        return ()

    def _against(self, old: PinnedPack, path: str) -> list[Problem]:
        problems = []
        if self.current.get(path) != old.sha256:
            message = f"the pack `{old.id}` in `{path}` is not what was accepted; {RUNS_ON}"
            hint = "let a person look at it and run `packhost accept`"
            problems.append(Problem("PACK_CHANGED", message, hint, pack=old.id))
        if not self.kept(old):
            message = f"the accepted copy of the pack `{old.id}` is gone or damaged, so it is left out"
            hint = "accept it again with `packhost accept`"
            problems.append(Problem("PACK_CHANGED", message, hint, pack=old.id))
        return problems

    def changes(self, path: str, pinned: PinnedPack | None) -> tuple[FileChange, ...]:
        """How the folder differs from the accepted copy; all of it is new where there is none."""
        try:
            before = read_sources(self.copy(pinned)) if pinned is not None else {}
        except PackhostError:
            before = {}
        try:
            return source_changes(before, read_sources(self.folder(path)))
        except PackhostError:
            return ()


def _moved(root: Root) -> list[Problem]:
    message = f"the folder `{root.path}` is not the one that was opened; the host keeps to the one it opened"
    return [Problem("CONFIG_INVALID", message, "end this host and start it again to serve the new one")]


def _tree(folder: Path) -> object:
    """What tells that some file below a folder was changed, by a stat each."""
    try:
        files = tuple((name, look(None, path)) for name, path in islice(files_below(folder), MAX_FILES + 1))
        # The folder itself: another one in its place, or a link to it, is a change as well.
        return os.lstat(folder).st_ino, files
    except (OSError, ConfigInvalid) as error:
        return str(error)


def source_changes(before: Sources, after: Sources) -> tuple[FileChange, ...]:
    """What differs between two states of a pack's sources, by name."""
    return tuple(
        _change(name, before.get(name), after.get(name))
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    )


def _change(name: str, before: bytes | None, after: bytes | None) -> FileChange:
    change = _CHANGES[before is not None, after is not None]
    old, new = _lines(before), _lines(after)
    if old is None or new is None:
        return FileChange(name, change, True, len(after or b""))
    diff = difflib.unified_diff(
        old,
        new,
        "/dev/null" if before is None else f"accepted/{name}",
        "/dev/null" if after is None else f"now/{name}",
        lineterm="",
    )
    lines = [line if len(line) <= _WIDEST else f"{line[:_WIDEST]}… (cut)" for line in diff]
    left_out = max(len(lines) - DIFF_LINES, 0)
    return FileChange(name, change, False, len(after or b""), tuple(lines[:DIFF_LINES]), left_out)


def _lines(content: bytes | None) -> list[str] | None:
    """The lines of a text; `None` for what is none."""
    try:
        text = (content or b"").decode("utf-8")
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text.splitlines()
