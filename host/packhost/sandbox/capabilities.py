"""Giving up every privilege that a process of root would otherwise keep.

Landlock does not hold a process with capabilities: with some of them it opens files by handle, reads other
processes or mounts over what was refused. Without them root is a user like any other.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from typing import Final

_PR_CAPBSET_DROP, _PR_SET_SECUREBITS, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 24, 28, 38, 47
_AMBIENT_CLEAR_ALL: Final = 4
_NO_ROOT: Final = 0b101111
"""No capabilities by being root, none kept over a change of user, both locked; and none raised as ambient."""
_NO_AMBIENT: Final = 0b11000000
_VERSION_3: Final = 0x20080522
_HIGHEST: Final = 63

_libc: Final = ctypes.CDLL(None, use_errno=True)


def drop_all() -> None:
    """Give up every capability, in every set, for good; also over `exec`.

    :raises OSError: when some are left; whoever asked then has to end.
    """
    if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise _last_error("no_new_privs")
    if any(held()):
        # Only somebody privileged may do these two, and only there they matter.
        _libc.prctl(_PR_SET_SECUREBITS, _NO_ROOT | _NO_AMBIENT, 0, 0, 0)
        for capability in range(_HIGHEST + 1):
            if _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) != 0 and ctypes.get_errno() == errno.EINVAL:
                break
    _libc.prctl(_PR_CAP_AMBIENT, _AMBIENT_CLEAR_ALL, 0, 0, 0)
    if _libc.capset(_header(), ctypes.c_char_p(bytes(24))) != 0:
        raise _last_error("capset")
    if any(held()):
        raise OSError(errno.EPERM, "capabilities are left", "capset")


def held() -> tuple[int, int, int]:
    """The effective, permitted and inheritable capabilities of this thread, as bits.

    :raises OSError: when the kernel does not tell.
    """
    data = ctypes.create_string_buffer(24)
    if _libc.capget(_header(), data) != 0:
        raise _last_error("capget")
    low = struct.unpack("=6I", data.raw)
    return low[0] | low[3] << 32, low[1] | low[4] << 32, low[2] | low[5] << 32


def _header() -> ctypes.c_char_p:
    return ctypes.c_char_p(struct.pack("=Ii", _VERSION_3, 0))


def _last_error(what: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), what)
