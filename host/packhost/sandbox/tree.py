"""Everything below a folder, opened folder by folder from the root's descriptor."""

from __future__ import annotations

import os
from collections.abc import Iterator

from packhost.sandbox.form import ROOT
from packhost.sandbox.openat2 import Opener

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK


def join(folder: str, name: str) -> str:
    """The path of an entry; the root has no name of its own."""
    return name if folder == ROOT else f"{folder}/{name}"


def parent(relative: str) -> tuple[str, str]:
    """The folder of a path, and its last name."""
    folder, _, name = relative.rpartition("/")
    return folder or ROOT, name


def entries(opener: Opener, root: int, folder: str) -> list[tuple[str, os.stat_result]]:
    """The paths and states of a folder's entries, by name; links are described, not followed.

    :raises OSError: when the folder cannot be opened as one.
    """
    descriptor = opener.open(root, folder, _FOLDER)
    try:
        found = []
        with os.scandir(descriptor) as scan:
            for entry in scan:
                try:
                    found.append((join(folder, entry.name), entry.stat(follow_symlinks=False)))
                except FileNotFoundError:
                    continue  # gone since the folder was read
    finally:
        os.close(descriptor)
    found.sort(key=lambda pair: pair[0])
    return found


class Descent:
    """Yields what lies below a folder, top-down and by name; goes only into folders named to `enter`."""

    def __init__(self, opener: Opener, root: int, folder: str) -> None:
        self._opener = opener
        self._root = root
        self._pending = [folder]
        self._below: list[str] = []
        self.unopened: list[tuple[str, OSError]] = []
        """Folders that could not be opened, with the reason."""

    def __iter__(self) -> Iterator[tuple[str, os.stat_result]]:
        while self._pending:
            folder = self._pending.pop()
            try:
                found = entries(self._opener, self._root, folder)
            except OSError as error:
                self.unopened.append((folder, error))
                continue
            self._below = []
            yield from found
            self._pending.extend(reversed(self._below))

    def enter(self, folder: str) -> None:
        """Go into a folder that was just yielded, once its siblings are through."""
        self._below.append(folder)
