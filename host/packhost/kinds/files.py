"""The workspace's files as a handler sees them."""

from __future__ import annotations

import builtins
from collections.abc import Collection
from typing import Protocol

from packhost.sandbox.entries import EntryType, FileStat, Walk

__all__ = ["EntryType", "FileStat", "Files", "Walk"]


class Files(Protocol):
    """The workspace's files, each use held to every layer of scopes at the moment of use.

    Paths are relative to the workspace's root and `/`-separated. Every method raises `ScopeDenied`
    for what lies outside the scopes, `NotFound` for what is missing and `ToolFailed` otherwise.
    """

    def read(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        """At most `limit` bytes from `offset`."""

    def stat(self, path: str) -> FileStat:
        """What lies at `path`."""

    def list(self, path: str) -> builtins.list[FileStat]:
        """The entries of a folder, by name."""

    def walk(
        self, path: str, *, glob: str = "**", limit: int = 100_000, skip_folders: Collection[str] = ()
    ) -> Walk:
        """Every readable file below a folder (or the file itself), folder by folder and by name.

        `glob` picks files by their path below the folder; folders named in `skip_folders` are left out;
        links are not followed.
        """

    def write(self, path: str, data: bytes, *, create_parents: bool = True) -> None:
        """Replace or create a file as one step: readers see the old or the new whole."""

    def replace_if_unchanged(self, path: str, old: bytes, new: bytes) -> None:
        """Replace a file whose content is still `old`; `ToolFailed` when it is not."""

    def move(self, source: str, target: str) -> None:
        """Rename a file or folder; never over something that exists."""

    def delete(self, path: str, *, recursive: bool = False) -> None:
        """Remove a file or an empty folder; a filled one only with `recursive`."""

    def make_directory(self, path: str) -> None:
        """Make a folder and the parents that it lacks."""
