"""What the broker says of files."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

EntryType = Literal["file", "directory", "symlink", "hardlink", "other"]
"""`hardlink` is a file with more than one name, `other` a pipe, socket or device: neither can be used."""


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
    complete: bool = True
    """False when the limit ended the walk before everything was seen."""


def entry_type(found: os.stat_result) -> EntryType:
    """The word for what a status describes."""
    if stat.S_ISDIR(found.st_mode):
        return "directory"
    if stat.S_ISREG(found.st_mode):
        return "file" if found.st_nlink <= 1 else "hardlink"
    return "symlink" if stat.S_ISLNK(found.st_mode) else "other"


def file_stat(path: str, found: os.stat_result) -> FileStat:
    """The public form of a status."""
    return FileStat(path, entry_type(found), found.st_size, found.st_mtime, stat.S_IMODE(found.st_mode))
