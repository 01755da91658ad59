"""Landlock by system call: which files, TCP ports and processes a process and its descendants may reach.

Everything that the running kernel can refuse is refused, and each ruleset then grants paths. Rulesets are
stacked: a use has to lie inside every one, and the kernel does the intersecting. What no rule can say
(a glob with a wildcard in its middle, a name that may not be made) is not granted here at all.

A restriction holds for the calling thread and what it starts, so it is applied before there are threads.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

MAX_LAYERS: Final = 16
"""Rulesets that the kernel stacks at most."""
HANDLES_TRUNCATE: Final = 3
"""The first ABI that can refuse to shorten a file."""
SCOPES: Final = 6
"""The first ABI that keeps signals and abstract sockets inside."""

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
REMOVE_DIR, REMOVE_FILE, MAKE_DIR, MAKE_REG = 1 << 4, 1 << 5, 1 << 7, 1 << 8
REFER, TRUNCATE = 1 << 13, 1 << 14
IOCTL_DEV = 1 << 15

READ: Final = READ_FILE | READ_DIR
RUN: Final = READ_FILE | EXECUTE
CHANGE: Final = WRITE_FILE | REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REG | REFER | TRUNCATE

_OF_FILES: Final = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
_HANDLED_FS: Final = {
    1: (1 << 13) - 1,
    2: (1 << 14) - 1,
    3: (1 << 15) - 1,
    4: (1 << 15) - 1,
    5: (1 << 16) - 1,
}
_HANDLED_TCP: Final = 0b11  # bind, connect: since ABI 4
_SCOPED: Final = 0b11  # abstract unix sockets, signals: since ABI 6
_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446
_PATH_BENEATH: Final = 1
_VERSION: Final = 1
_PR_SET_NO_NEW_PRIVS: Final = 38

_libc: Final = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


@dataclass(frozen=True, slots=True)
class PathRule:
    """Rights on a file, or on a folder and everything below it; a path that is missing grants nothing."""

    path: str
    rights: int


def detect() -> int:
    """The kernel's Landlock ABI; 0 where there is none."""
    try:
        return _call(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint(_VERSION))
    except OSError:
        return 0


def restrict(rulesets: Sequence[Iterable[PathRule]], abi: int) -> None:
    """Hold this thread and all that it starts to every ruleset, for good.

    `abi` is at most what `detect` says; a lower one gives the protection of an older kernel.

    :raises OSError: when the kernel refuses one; whoever asked then has to end.
    :raises ValueError: for no ruleset at all, or more than the kernel stacks.
    """
    if not 0 < len(rulesets) <= MAX_LAYERS or abi < 1:
        raise ValueError(f"{len(rulesets)} rulesets at Landlock ABI {abi}")
    if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise _last_error("no_new_privs")
    for rules in rulesets:
        _restrict_by(rules, abi)


def _restrict_by(rules: Iterable[PathRule], abi: int) -> None:
    handled = _HANDLED_FS[min(abi, 5)]
    attributes = struct.pack("=QQQ", handled, _HANDLED_TCP, _SCOPED)
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    ruleset = _call(_CREATE, ctypes.c_char_p(attributes[:size]), ctypes.c_size_t(size), ctypes.c_uint(0))
    try:
        for rule in rules:
            _add(ruleset, rule, handled)
        _call(_RESTRICT, ctypes.c_int(ruleset), ctypes.c_uint(0))
    finally:
        os.close(ruleset)


def _add(ruleset: int, rule: PathRule, handled: int) -> None:
    try:
        descriptor = os.open(rule.path, os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP):
            return
        raise
    try:
        rights = rule.rights & handled
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= _OF_FILES
        if rights:
            beneath = ctypes.c_char_p(struct.pack("=Qi", rights, descriptor))
            _call(_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(_PATH_BENEATH), beneath, ctypes.c_uint(0))
    finally:
        os.close(descriptor)


def _call(number: int, *arguments: object) -> int:
    result: int = _libc.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        raise _last_error("landlock")
    return result


def _last_error(what: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), what)
