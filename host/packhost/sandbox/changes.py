"""Changes to files, each one step: made beside its target, flushed, then renamed into place."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
from collections.abc import Sequence

from packhost.sandbox.failures import changed
from packhost.sandbox.form import ROOT
from packhost.sandbox.openat2 import Opener
from packhost.sandbox.tree import join, parent

_FOLDER = os.O_RDONLY | os.O_DIRECTORY
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


def put(
    folder: int, relative: str, data: bytes, like: os.stat_result | None, *, original: int | None = None
) -> None:
    """Give the last name of `relative` in its open folder the content `data`.

    Mode and owner of what was there (`like`) are kept. With `original`, a descriptor of the file to replace,
    the name must still mean that file, unchanged.

    :raises ToolFailed: when it does not.
    """
    name = parent(relative)[1]
    temporary = f".{secrets.token_hex(8)}.packhost-tmp"
    descriptor = os.open(temporary, _CREATE, 0o666 if like is None else 0o600, dir_fd=folder)
    try:
        try:
            _fill(descriptor, data, like)
        finally:
            os.close(descriptor)
        if original is not None and like is not None and not _still(folder, name, like, original):
            raise changed(relative)
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise
    os.fsync(folder)


def _fill(descriptor: int, data: bytes, like: os.stat_result | None) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
    if like is not None:
        made = os.fstat(descriptor)
        if (made.st_uid, made.st_gid) != (like.st_uid, like.st_gid):
            with contextlib.suppress(PermissionError):
                os.fchown(descriptor, like.st_uid, like.st_gid)
        os.fchmod(descriptor, like.st_mode & 0o777)
    os.fsync(descriptor)


def _still(folder: int, name: str, like: os.stat_result, original: int) -> bool:
    try:
        named = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return _mark(named) == _mark(like) == _mark(os.fstat(original))


def _mark(found: os.stat_result) -> tuple[int, int, int, int]:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def claim(descriptor: int, path: str) -> None:
    """Lock a file against other edits through packhost until the descriptor is closed; never waits.

    :raises ToolFailed: when another edit holds it.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise changed(path) from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise


def open_folder(opener: Opener, root: int, relative: str, *, create: bool) -> int:
    """A descriptor of a folder; with `create` it and the parents that it lacks are made."""
    try:
        return opener.open(root, relative, _FOLDER)
    except FileNotFoundError:
        if not create:
            raise
    current = ROOT
    for component in relative.split("/"):
        above = opener.open(root, current, _FOLDER)
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(component, dir_fd=above)
                os.fsync(above)
        finally:
            os.close(above)
        current = join(current, component)
    return opener.open(root, relative, _FOLDER)


def remove(opener: Opener, root: int, found: Sequence[tuple[str, bool]]) -> None:
    """Remove what was found, last first: pairs of a path and whether it is a folder."""
    for relative, folder in reversed(found):
        above, name = parent(relative)
        descriptor = opener.open(root, above, _FOLDER)
        try:
            if folder:
                os.rmdir(name, dir_fd=descriptor)
            else:
                os.unlink(name, dir_fd=descriptor)
        finally:
            os.close(descriptor)
