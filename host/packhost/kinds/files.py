"""The workspace's files as a handler sees them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

EntryType = Literal["file", "directory", "symlink", "other"]


@dataclass(frozen=True, slots=True)
class FileStat:
    """What is known of a path: `size` in bytes, `modified` in seconds since the epoch."""

    path: str
    type: EntryType
    size: int
    modified: float
    mode: int


@dataclass(frozen=True, slots=True)
class Walk:
    """Files found below a folder, and how many were passed over, by reason."""

    files: tuple[FileStat, ...]
    skipped: Mapping[str, int] = field(default_factory=dict)


class Files(Protocol):
    """The workspace's files, each use held to every layer of scopes at the moment of use.

    Paths are relative to the workspace's root and `/`-separated. Every method raises `ScopeDenied`
    for what lies outside the scopes, `NotFound` for what is missing and `ToolFailed` otherwise.
    """

    def read(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        """At most `limit` bytes from `offset`."""

    def stat(self, path: str) -> FileStat:
        """What lies at `path`."""

    def list(self, path: str) -> list[FileStat]:
        """The entries of a folder, by name."""

    def walk(self, path: str, *, limit: int = 100_000) -> Walk:
        """Every readable file below a folder, in order, symlinks not followed."""

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
