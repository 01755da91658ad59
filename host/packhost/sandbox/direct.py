"""System calls on the workspace's files, performed for a process that may not make them itself.

Each is held to every layer of scopes by the path that it names, opened below the root's descriptor without
following a link, and refused for what `FileBroker` refuses: protected names when something is written, files
with a second name, pipes, sockets and devices. A refusal is an `OSError`, as the process expects it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from packhost.errors import PackhostError
from packhost.rules.scopes import Access, Layer, path_use
from packhost.sandbox.form import ROOT, problem
from packhost.sandbox.openat2 import Opener, rename_without_replacing
from packhost.sandbox.paths import FileBroker, system_opener
from packhost.sandbox.tree import parent

_PASSED: Final = (
    os.O_ACCMODE
    | os.O_CREAT
    | os.O_EXCL
    | os.O_APPEND
    | os.O_DIRECTORY
    | os.O_NOFOLLOW
    | os.O_SYNC
    | os.O_DSYNC
)
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY
_ELSEWHERE: Final = (getattr(os, "O_TMPFILE", 0) & ~os.O_DIRECTORY) | getattr(os, "O_PATH", 0)
"""Descriptors of no file's content: to none of them a scope could apply."""
RENAME_NOREPLACE: Final = 1
UTIME_NOW, UTIME_OMIT = (1 << 30) - 1, (1 << 30) - 2


class DirectFiles:
    """The files below `root`, a folder's descriptor that the caller keeps open, within `layers`."""

    def __init__(self, root: int, layers: Sequence[Layer], *, opener: Opener | None = None) -> None:
        self._root = root
        self._layers = layers
        self._opener = opener or system_opener()
        self._broker = FileBroker(root, layers, opener=self._opener)

    def open(self, relative: str, flags: int, mode: int) -> int:
        """A descriptor, as `open` would give it; the process's own umask does not count, the host's does."""
        wanted = flags & os.O_ACCMODE
        making = bool(flags & os.O_CREAT)
        if flags & _ELSEWHERE:
            raise _error(errno.EOPNOTSUPP, relative)
        if wanted == os.O_RDONLY and flags & os.O_TRUNC:
            raise _error(errno.EINVAL, relative)
        if wanted != os.O_WRONLY:
            self._covered("read", relative)
        if wanted != os.O_RDONLY or making:
            self._covered("write", relative)
        try:
            _usable(self._opener.probe(self._root, relative), relative)
        except FileNotFoundError:
            if not making:
                raise
        descriptor = self._opener.open(
            self._root, relative, flags & _PASSED | os.O_NONBLOCK | os.O_NOCTTY, mode & 0o777 if making else 0
        )
        try:
            _usable(os.fstat(descriptor), relative)
            if flags & os.O_TRUNC:
                os.ftruncate(descriptor, 0)
            os.set_blocking(descriptor, not flags & os.O_NONBLOCK)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def truncate(self, relative: str, length: int) -> None:
        """Give a file another length."""
        descriptor = self.open(relative, os.O_WRONLY, 0)
        try:
            os.ftruncate(descriptor, length)
        finally:
            os.close(descriptor)

    def make_folder(self, relative: str, mode: int) -> None:
        """Make one folder."""
        with self._writing(relative) as (folder, name):
            os.mkdir(name, mode & 0o777, dir_fd=folder)

    def remove_file(self, relative: str) -> None:
        """Take one name away that is no folder's."""
        with self._writing(relative) as (folder, name):
            os.unlink(name, dir_fd=folder)

    def remove_folder(self, relative: str) -> None:
        """Remove an empty folder."""
        with self._writing(relative) as (folder, name):
            os.rmdir(name, dir_fd=folder)

    def rename(self, old: str, new: str, flags: int = 0) -> None:
        """Give a file another name, in place of whatever file has it; a folder only where nothing is yet."""
        if flags not in (0, RENAME_NOREPLACE):
            raise _error(errno.EINVAL, old)
        self._covered("read", old)
        with self._writing(old) as (source, name), self._writing(new) as (target, wanted):
            found = self._opener.probe(self._root, old)
            _usable(found, old)
            if stat.S_ISDIR(found.st_mode):
                self._move_folder(old, new)
            elif flags:
                rename_without_replacing(source, name, target, wanted)
            else:
                os.rename(name, wanted, src_dir_fd=source, dst_dir_fd=target)

    def change_mode(self, relative: str, mode: int) -> None:
        """Change a file's permissions; bits that lend an identity are never set."""
        if mode & 0o7000:
            raise _error(errno.EPERM, relative)
        with self._changing(relative) as descriptor:
            os.fchmod(descriptor, mode & 0o777)

    def change_times(self, relative: str, times: tuple[int, int] | None) -> None:
        """Set when a file was used and changed, in nanoseconds; `None` is now."""
        with self._changing(relative) as descriptor:
            if times is None:
                os.utime(descriptor)
            else:
                os.utime(descriptor, ns=times)

    def _move_folder(self, old: str, new: str) -> None:
        try:
            self._broker.move(old, new)  # everything in it has to be covered at both ends
        except PackhostError as error:
            raise _error(errno.EACCES if error.code == "SCOPE_DENIED" else errno.EEXIST, new) from None

    def _covered(self, access: Access, relative: str) -> None:
        if relative != ROOT and problem(relative) is not None:
            raise _error(errno.EACCES, relative)
        if path_use(access, relative, self._layers) is not None:
            raise _error(errno.EACCES, relative)

    @contextmanager
    def _writing(self, relative: str) -> Iterator[tuple[int, str]]:
        """The folder of a path that may be written, and its last name."""
        if relative == ROOT:
            raise _error(errno.EBUSY, relative)
        self._covered("write", relative)
        folder, name = parent(relative)
        descriptor = self._opener.open(self._root, folder, _FOLDER)
        try:
            yield descriptor, name
        finally:
            os.close(descriptor)

    @contextmanager
    def _changing(self, relative: str) -> Iterator[int]:
        """A file or folder whose metadata may be changed."""
        self._covered("write", relative)
        _usable(self._opener.probe(self._root, relative), relative)
        descriptor = self._opener.open(self._root, relative, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            _usable(os.fstat(descriptor), relative)
            yield descriptor
        finally:
            os.close(descriptor)


def _usable(found: os.stat_result, relative: str) -> None:
    plain = stat.S_ISREG(found.st_mode) and found.st_nlink <= 1
    if not plain and not stat.S_ISDIR(found.st_mode):
        raise _error(errno.EACCES, relative)


def _error(number: int, relative: str) -> OSError:
    return OSError(number, os.strerror(number), relative)
