"""Answers the file calls of a filtered process: performed here and handed back, or left to Landlock.

The process's filter (`seccomp`, supervised) stops each opening, naming and metadata call and tells the
host. A path in the workspace is read out of the process once, held to the scopes and opened here; what the
process gets is the descriptor of what was checked, so nothing can be swapped in between. Any other path is
let pass to the kernel, where Landlock grants the interpreter's own files for reading and nothing else: it
does not matter what the process makes of its memory meanwhile.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from packhost.sandbox.direct import UTIME_NOW, UTIME_OMIT, DirectFiles
from packhost.sandbox.form import ROOT
from packhost.sandbox.syscalls import names

_NOTICE: Final = struct.Struct("=QIIiIQ6Q")
_ANSWER: Final = struct.Struct("=QqiI")
_HAND_OVER: Final = struct.Struct("=QIIII")
_RECEIVE, _SEND, _STILL_THERE, _ADD = 0xC0502100, 0xC0182101, 0x40082102, 0x40182103
_CONTINUE: Final = 1
_ADD_AND_SEND: Final = 2
_AT_FDCWD: Final = -100
_AT_REMOVEDIR: Final = 0x200
_AT_EMPTY_PATH: Final = 0x1000
_LONGEST_PATH: Final = 4096
_PAGE: Final = 4096


@dataclass(frozen=True, slots=True)
class _Notice:
    """One stopped call."""

    id: int
    thread: int
    name: str
    arguments: tuple[int, ...]

    def int32(self, index: int) -> int:
        value = self.arguments[index] & 0xFFFFFFFF
        return value - (1 << 32) if value >= 1 << 31 else value


class _PassedOn(Exception):
    """The call opens what only Landlock has to judge."""


class Supervisor:
    """Serves one filter's listener; `root` is the workspace's real path.

    `libraries` are folders and files that Landlock lets the process read, some of which may lie in the
    workspace.
    """

    def __init__(self, listener: int, root: str, libraries: Sequence[str], files: DirectFiles) -> None:
        self._listener = listener
        self._root = root
        self._libraries = tuple(f"{path.rstrip('/')}/" for path in libraries)
        self._some_inside = any(path.startswith(f"{root}/") for path in self._libraries)
        self._files = files
        self._names = names(os.uname().machine)
        self._calls: Mapping[str, Callable[[_Notice], int | None]] = {
            "open": lambda n: self._open(n, _AT_FDCWD, 0),
            "creat": self._creat,
            "openat": lambda n: self._open(n, n.int32(0), 1),
            "mkdir": lambda n: self._make_folder(n, _AT_FDCWD, 0),
            "mkdirat": lambda n: self._make_folder(n, n.int32(0), 1),
            "rmdir": lambda n: self._files.remove_folder(self._path(n, _AT_FDCWD, 0)),
            "unlink": lambda n: self._files.remove_file(self._path(n, _AT_FDCWD, 0)),
            "unlinkat": self._unlinkat,
            "rename": lambda n: self._rename(n, (_AT_FDCWD, 0), (_AT_FDCWD, 1), 0),
            "renameat": lambda n: self._rename(n, (n.int32(0), 1), (n.int32(2), 3), 0),
            "renameat2": lambda n: self._rename(n, (n.int32(0), 1), (n.int32(2), 3), n.int32(4)),
            "truncate": self._truncate,
            "chmod": lambda n: self._chmod(n, self._path(n, _AT_FDCWD, 0), 1),
            "fchmod": lambda n: self._chmod(n, self._inside(self._descriptor(n, n.int32(0))), 1),
            "fchmodat": lambda n: self._chmod(n, self._path(n, n.int32(0), 1), 2),
            "utimensat": self._utimensat,
        }

    def serve(self) -> bool:
        """Answer one call that waits, once the listener is readable; false when no process is left."""
        buffer = bytearray(_NOTICE.size)
        try:
            fcntl.ioctl(self._listener, _RECEIVE, buffer)
        except InterruptedError:
            return True
        except OSError as error:
            # A call whose process was killed meanwhile is gone; so is a listener without processes.
            return error.errno == errno.ENOENT and not _ended(self._listener)
        number, thread, _, call, _, _, *arguments = _NOTICE.unpack(buffer)
        notice = _Notice(number, thread, self._names.get(call, ""), tuple(arguments))
        try:
            self._answer(notice, self._calls[notice.name](notice))
        except _PassedOn:
            self._send(notice, 0, _CONTINUE)
        except OSError as error:
            self._send(notice, -(error.errno or errno.EACCES), 0)
        except (KeyError, ValueError, OverflowError, struct.error):
            self._send(notice, -errno.EACCES, 0)
        return True

    def _answer(self, notice: _Notice, descriptor: int | None) -> None:
        if descriptor is None:
            self._send(notice, 0, 0)
            return
        flags = notice.arguments[1] if notice.name == "open" else notice.arguments[2]
        close = os.O_CLOEXEC if notice.name != "creat" and flags & os.O_CLOEXEC else 0
        try:
            request = _HAND_OVER.pack(notice.id, _ADD_AND_SEND, descriptor, 0, close)
            fcntl.ioctl(self._listener, _ADD, request)
        except OSError as error:
            if error.errno != errno.ENOENT:
                self._send(notice, -(error.errno or errno.EACCES), 0)
        finally:
            os.close(descriptor)

    def _send(self, notice: _Notice, error: int, flags: int) -> None:
        try:
            fcntl.ioctl(self._listener, _SEND, _ANSWER.pack(notice.id, 0, error, flags))
        except OSError as failed:
            if failed.errno != errno.ENOENT:
                raise

    # where a path leads

    def _path(self, notice: _Notice, folder: int, index: int) -> str:
        """The path relative to the root that a call names."""
        return self._inside(self._written(notice, folder, index))

    def _written(self, notice: _Notice, folder: int, index: int) -> str:
        text = os.fsdecode(self._text(notice, notice.arguments[index]))
        if not text:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        if text.startswith("/"):
            return text
        return f"{self._descriptor(notice, folder)}/{text}"

    def _descriptor(self, notice: _Notice, number: int) -> str:
        link = "cwd" if number == _AT_FDCWD else f"fd/{number}"
        try:
            path = os.readlink(f"/proc/{notice.thread}/{link}")
        except FileNotFoundError:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF)) from None
        self._check_still_there(notice)
        return path

    def _inside(self, path: str) -> str:
        plain = os.path.normpath(path)
        if plain == self._root:
            return ROOT
        if not plain.startswith(f"{self._root}/"):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        return plain[len(self._root) + 1 :]

    def _text(self, notice: _Notice, address: int) -> bytes:
        """A string of the process, up to its NUL."""
        found = bytearray()
        memory = os.open(f"/proc/{notice.thread}/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            while len(found) < _LONGEST_PATH:
                at = address + len(found)
                try:
                    part = os.pread(memory, _PAGE - at % _PAGE, at)
                except (OSError, OverflowError):
                    raise OSError(errno.EFAULT, os.strerror(errno.EFAULT)) from None
                end = part.find(0)
                found += part if end < 0 else part[:end]
                if end >= 0:
                    # Only now is it sure that this was the memory of the process that waits.
                    self._check_still_there(notice)
                    return bytes(found)
        finally:
            os.close(memory)
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))

    def _check_still_there(self, notice: _Notice) -> None:
        fcntl.ioctl(self._listener, _STILL_THERE, struct.pack("=Q", notice.id))

    # the calls

    def _open(self, notice: _Notice, folder: int, index: int) -> int:
        path = os.path.normpath(self._written(notice, folder, index))
        flags, mode = notice.int32(index + 1), notice.int32(index + 2)
        inside = f"{path}/".startswith(f"{self._root}/")
        if flags & (os.O_ACCMODE | os.O_CREAT | os.O_TRUNC):
            passed = (
                path == os.devnull
            )  # nothing else is granted for writing, so this may be left to Landlock
        else:
            passed = not inside or self._is_library(path)
        if passed:
            raise _PassedOn
        return self._files.open(self._inside(path), flags, mode)

    def _is_library(self, path: str) -> bool:
        """Whether a path in the workspace belongs to the interpreter, by itself or by where it leads."""
        if not self._some_inside:
            return False
        return f"{path}/".startswith(self._libraries) or f"{os.path.realpath(path)}/".startswith(
            self._libraries
        )

    def _creat(self, notice: _Notice) -> int:
        path = self._path(notice, _AT_FDCWD, 0)
        return self._files.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, notice.int32(1))

    def _make_folder(self, notice: _Notice, folder: int, index: int) -> None:
        self._files.make_folder(self._path(notice, folder, index), notice.int32(index + 1))

    def _unlinkat(self, notice: _Notice) -> None:
        path = self._path(notice, notice.int32(0), 1)
        if notice.int32(2) & _AT_REMOVEDIR:
            self._files.remove_folder(path)
        else:
            self._files.remove_file(path)

    def _rename(self, notice: _Notice, old: tuple[int, int], new: tuple[int, int], flags: int) -> None:
        self._files.rename(self._path(notice, *old), self._path(notice, *new), flags)

    def _truncate(self, notice: _Notice) -> None:
        self._files.truncate(self._path(notice, _AT_FDCWD, 0), notice.arguments[1])

    def _chmod(self, notice: _Notice, path: str, index: int) -> None:
        self._files.change_mode(path, notice.int32(index))

    def _utimensat(self, notice: _Notice) -> None:
        if notice.arguments[1] == 0 or notice.int32(3) & _AT_EMPTY_PATH:
            path = self._inside(self._descriptor(notice, notice.int32(0)))
        else:
            path = self._path(notice, notice.int32(0), 1)
        self._files.change_times(path, self._times(notice, notice.arguments[2]))

    def _times(self, notice: _Notice, address: int) -> tuple[int, int] | None:
        if address == 0:
            return None
        memory = os.open(f"/proc/{notice.thread}/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            used, used_part, changed, changed_part = struct.unpack("=4q", os.pread(memory, 32, address))
        finally:
            os.close(memory)
        self._check_still_there(notice)
        if UTIME_OMIT in (used_part, changed_part):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        now = time.time_ns()
        return (
            now if used_part == UTIME_NOW else used * 1_000_000_000 + used_part,
            now if changed_part == UTIME_NOW else changed * 1_000_000_000 + changed_part,
        )


def _ended(listener: int) -> bool:
    """Whether no process is left behind the listener."""

    poll = select.poll()
    poll.register(listener, select.POLLIN)
    return any(events & select.POLLHUP for _, events in poll.poll(0))
