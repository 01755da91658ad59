"""Opening below a directory's descriptor, without ever following a link.

`openat2` does it in one system call; where it is missing (macOS, an old kernel, a filter that refuses it)
a walk opens one component after the other with `O_NOFOLLOW`. Both take a path that was checked for its
form already: relative, `/`-separated, no empty, `.` or `..` component; `.` alone is the root.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
import sys
from typing import Final, Protocol

_SYS_OPENAT2: Final = 437
_SYS_RENAMEAT2: Final = {"x86_64": 316, "aarch64": 276, "riscv64": 276}
_RESOLVE: Final = 0x02 | 0x04 | 0x08  # NO_MAGICLINKS, NO_SYMLINKS, BENEATH
_RENAME_NOREPLACE: Final = 1
_RENAME_EXCL: Final = 0x04  # the same, as macOS spells it
_PROBE: Final = getattr(os, "O_PATH", 0) | os.O_CLOEXEC | os.O_NOFOLLOW
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW

_HOW: Final = struct.Struct("=QQQ")

_libc: Final = ctypes.CDLL(None, use_errno=True)
_syscall: Final = _libc.syscall
_syscall.restype = ctypes.c_long
# A function of its own, since argument types are set once and make each call cheaper.
_openat2: Final = ctypes.CDLL(None, use_errno=True).syscall
_openat2.restype = ctypes.c_long
_openat2.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t)


class Opener(Protocol):
    """Opens and looks at what lies below a root; raises `OSError`, `ELOOP` for a link on the way."""

    def open(self, root: int, relative: str, flags: int, mode: int = 0) -> int:
        """A new descriptor, closed on exec."""

    def probe(self, root: int, relative: str) -> os.stat_result:
        """What lies there, without opening it for use: no pipe is woken and no device touched."""


class Openat2:
    """One `openat2` call with `RESOLVE_BENEATH`, `RESOLVE_NO_SYMLINKS` and `RESOLVE_NO_MAGICLINKS`."""

    def open(self, root: int, relative: str, flags: int, mode: int = 0) -> int:
        """See `Opener.open`."""
        how = _HOW.pack(flags | os.O_CLOEXEC, mode, _RESOLVE)
        descriptor: int = _openat2(_SYS_OPENAT2, root, os.fsencode(relative), how, _HOW.size)
        if descriptor < 0:
            _raise_errno(relative)
        return descriptor

    def probe(self, root: int, relative: str) -> os.stat_result:
        """See `Opener.probe`."""
        descriptor = self.open(root, relative, _PROBE)
        try:
            found = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        return _no_link(found, relative)


class Walk:
    """The same by hand: each component is opened from the one before it, with `O_NOFOLLOW`."""

    def open(self, root: int, relative: str, flags: int, mode: int = 0) -> int:
        """See `Opener.open`."""
        parent, name = self._parent(root, relative)
        try:
            descriptor = os.open(name, flags | os.O_CLOEXEC | os.O_NOFOLLOW, mode, dir_fd=parent)
            if flags & _PROBE & ~(os.O_CLOEXEC | os.O_NOFOLLOW) and stat.S_ISLNK(
                os.fstat(descriptor).st_mode
            ):
                os.close(descriptor)
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), relative)
            return descriptor
        finally:
            os.close(parent)

    def probe(self, root: int, relative: str) -> os.stat_result:
        """See `Opener.probe`."""
        parent, name = self._parent(root, relative)
        try:
            return _no_link(os.stat(name, dir_fd=parent, follow_symlinks=False), relative)
        finally:
            os.close(parent)

    def _parent(self, root: int, relative: str) -> tuple[int, str]:
        *parents, name = relative.split("/")
        current = os.open(".", _DIRECTORY, dir_fd=root)
        for component in parents:
            try:
                following = self._step(current, component, relative)
            finally:
                os.close(current)
            current = following
        return current, name

    def _step(self, current: int, component: str, relative: str) -> int:
        try:
            return os.open(component, _DIRECTORY, dir_fd=current)
        except NotADirectoryError:
            # O_DIRECTORY with O_NOFOLLOW says ENOTDIR for a link as well: tell the two apart.
            _no_link(os.stat(component, dir_fd=current, follow_symlinks=False), relative)
            raise


def _no_link(found: os.stat_result, relative: str) -> os.stat_result:
    if stat.S_ISLNK(found.st_mode):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), relative)
    return found


def _raise_errno(relative: str) -> None:
    number = ctypes.get_errno()
    raise OSError(number, os.strerror(number), relative)


def best_opener() -> Opener:
    """`Openat2` where the system has it and lets it be used, else `Walk`."""
    if not sys.platform.startswith("linux"):
        return Walk()
    opener = Openat2()
    root = os.open("/", _DIRECTORY)
    try:
        opener.probe(root, ".")
    except OSError:
        return Walk()
    finally:
        os.close(root)
    return opener


def rename_without_replacing(source_parent: int, source: str, target_parent: int, target: str) -> None:
    """Rename between two directories' descriptors and fail with `EEXIST` where the target exists.

    A file system that cannot do this in one step gets a look followed by a rename: something made at the
    target between the two would be replaced.
    """
    number = _rename_exclusive(source_parent, source, target_parent, target)
    if number in (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP):
        _rename_after_look(source_parent, source, target_parent, target)
    elif number:
        raise OSError(number, os.strerror(number), target)


def _rename_exclusive(source_parent: int, source: str, target_parent: int, target: str) -> int:
    call_number = _SYS_RENAMEAT2.get(os.uname().machine)
    ends = (
        ctypes.c_int(source_parent),
        ctypes.c_char_p(os.fsencode(source)),
        ctypes.c_int(target_parent),
        ctypes.c_char_p(os.fsencode(target)),
    )
    if sys.platform == "darwin":
        failed = _libc.renameatx_np(*ends, ctypes.c_uint(_RENAME_EXCL))
    elif call_number is not None:
        failed = _syscall(ctypes.c_long(call_number), *ends, ctypes.c_uint(_RENAME_NOREPLACE))
    else:
        return errno.ENOSYS
    return ctypes.get_errno() if failed else 0


def _rename_after_look(source_parent: int, source: str, target_parent: int, target: str) -> None:
    try:
        os.stat(target, dir_fd=target_parent, follow_symlinks=False)
    except FileNotFoundError:
        os.rename(source, target, src_dir_fd=source_parent, dst_dir_fd=target_parent)
    else:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
