"""The files that the host itself reads and writes: a workspace's by the root's descriptor."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from pathlib import Path

from packhost.errors import ConfigInvalid, Place
from packhost.manifest.yaml import MAX_BYTES

Mark = tuple[int, ...] | None
"""What a file's look tells of its content; `None` when there is no file."""


def look(descriptor: int | None, name: str | os.PathLike[str]) -> Mark:
    """One stat of a file, below the folder `descriptor` when one is given."""
    try:
        found = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, found.st_mode)


def read_file(root: int, name: str) -> bytes | None:
    """The content of a regular file right below the root, up to one byte more than a reader takes.

    `None` when there is none; raises `ConfigInvalid` for a link, a special file or one that cannot be read.
    """
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=root)
    except FileNotFoundError:
        return None
    except OSError as error:
        why = (
            "it is a symbolic link" if error.errno == errno.ELOOP else (error.strerror or "it failed").lower()
        )
        raise ConfigInvalid(
            f"{name} cannot be read: {why}", place=Place(name), hint="put the file itself there"
        ) from None
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ConfigInvalid(f"{name} is not a regular file", place=Place(name), hint="put a file there")
        return file.read(MAX_BYTES + 1)


def write_file(root: int, name: str, content: bytes) -> None:
    """Put a file right below the root, whole or not at all.

    Raises `ConfigInvalid` when it cannot be written.
    """
    new = f".{name}.{secrets.token_hex(6)}"
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=root)
        try:
            with open(descriptor, "wb") as file:
                file.write(content)
            os.rename(new, name, src_dir_fd=root, dst_dir_fd=root)
        except BaseException:
            os.unlink(new, dir_fd=root)
            raise
    except OSError as error:
        why = (error.strerror or "it failed").lower()
        raise ConfigInvalid(f"{name} cannot be written: {why}", place=Place(name)) from None


def sync_folder(folder: Path) -> None:
    """Have on disk which names a folder holds: a file's own sync says nothing of its name."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
