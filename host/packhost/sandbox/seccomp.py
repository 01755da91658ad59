"""A system call filter for what Landlock does not see, built for one process.

It closes every socket but an unnamed pair, the calls that reach other processes (tracing, memory, signals,
shared memory, limits), namespaces and mounts, privileged calls, and new processes and programs unless the
tool may start some. Changes of metadata and names are refused, or, when a host supervises, handed to it
together with every opening of a file (see `supervise`).

A foreign architecture and the x32 calls end the process; a call newer than this table does not exist.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from packhost.sandbox.syscalls import AUDIT_ARCH, NEWEST, number

Instruction = tuple[int, int, int, int]

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW: Final = 0x7FFF0000
ASK_HOST: Final = 0x7FC00000
KILL: Final = 0x80000000
_ERRNO: Final = 0x00050000
EPERM: Final = _ERRNO | errno.EPERM
ENOSYS: Final = _ERRNO | errno.ENOSYS
ENOTSUP: Final = _ERRNO | errno.ENOTSUP
EACCES: Final = _ERRNO | errno.EACCES
ENOTTY: Final = _ERRNO | errno.ENOTTY

_X32: Final = 0x40000000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_CLONE_THREAD: Final = 0x00010000
_NEW_NAMESPACES: Final = 0x7E020000
_PR_SET_PDEATHSIG: Final = 1
_NOBODY: Final = 0x7FAC4057
"""Stands for a process's number until it is known; no process has one so high."""
_NOT_CONNECTED: Final = 0b1010
"""Set in the types of sockets that could still send to somebody else: datagrams, also in their raw form."""
_SET_MODE_FILTER: Final = 1
_NEW_LISTENER, _WAIT_KILLABLE = 1 << 3, 1 << 5
_SECCOMP: Final = {"x86_64": 317, "aarch64": 277}

SUPERVISED: Final = (
    "open", "creat", "openat", "mkdir", "mkdirat", "rmdir", "unlink", "unlinkat", "rename", "renameat",
    "renameat2", "truncate", "chmod", "fchmod", "fchmodat", "utimensat",
)  # fmt: skip
"""Calls that a supervising host performs in the process's place, or lets pass."""
_METADATA: Final = ("chmod", "fchmod", "fchmodat", "utimensat")
_ABSENT: Final = (
    "openat2", "clone3", "io_uring_setup", "io_uring_enter", "io_uring_register", "fchmodat2",
    "file_setattr", "file_getattr", "open_tree_attr", "statmount", "listmount",
)  # fmt: skip
"""Answered as an old kernel would, so that libraries take their older way."""
_XATTRS: Final = (
    "setxattr", "lsetxattr", "fsetxattr", "getxattr", "lgetxattr", "fgetxattr", "listxattr", "llistxattr",
    "flistxattr", "removexattr", "lremovexattr", "fremovexattr", "setxattrat", "getxattrat", "listxattrat",
    "removexattrat",
)  # fmt: skip
"""Answered as a file system without extended attributes would."""
_REFUSED: Final = (
    "chown", "lchown", "fchown", "fchownat", "utime", "utimes", "futimesat",
    "link", "linkat", "symlink", "symlinkat", "mknod", "mknodat",
    "ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "process_mrelease", "pidfd_getfd",
    "pidfd_send_signal", "kcmp", "migrate_pages", "move_pages", "tkill", "rt_sigqueueinfo",
    "rt_tgsigqueueinfo", "setpriority", "ioprio_set", "sched_setaffinity", "sched_setattr",
    "sched_setparam", "sched_setscheduler", "setsid", "setpgid", "bpf", "perf_event_open", "keyctl",
    "add_key", "request_key", "userfaultfd", "mount", "umount2", "mount_setattr", "move_mount", "open_tree",
    "fsopen", "fsconfig", "fsmount", "fspick", "pivot_root", "chroot", "unshare", "setns",
    "open_by_handle_at", "name_to_handle_at", "memfd_create", "memfd_secret", "execveat", "shmget", "shmat",
    "shmctl", "shmdt", "semget", "semop", "semctl", "semtimedop", "msgget", "msgsnd", "msgrcv", "msgctl",
    "mq_open", "mq_unlink", "mq_timedsend", "mq_timedreceive", "mq_notify", "mq_getsetattr",
    "fanotify_init", "fanotify_mark", "inotify_init", "inotify_init1", "inotify_add_watch", "kexec_load",
    "kexec_file_load", "init_module", "finit_module", "delete_module", "reboot", "swapon", "swapoff",
    "sethostname", "setdomainname", "settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "acct",
    "quotactl", "quotactl_fd", "syslog", "vhangup", "iopl", "ioperm", "modify_ldt", "personality",
    "nfsservctl", "lookup_dcookie", "remap_file_pages", "uselib", "connect", "bind", "listen", "accept",
    "accept4",
)  # fmt: skip
_IOCTLS: Final = (
    0x5401, 0x802C542A, 0x5413, 0x540F, 0x5429,  # what a terminal is like; there is none
    0x541B, 0x5421, 0x5450, 0x5451, 0x5460,  # a descriptor's own state, and what waits in it
    0x80086601, 0x801C581F, 0xC020660B,  # a file's flags and its places, to be read
    0x40049409, 0x4020940D,  # content shared with a file that is open for writing
)  # fmt: skip
"""All that is let pass: file systems have requests of their own that change or make a file through a
descriptor that is open for reading alone."""
_FCNTLS: Final = (8, 10, 15, 1024, 1026)
"""Whom a descriptor signals and with what; leases and notices, which hold up other processes."""


@dataclass(frozen=True, slots=True)
class Filter:
    """What one process may do beyond the least; `pid` is its own."""

    pid: int
    may_exec: bool = False
    supervised: bool = False
    scoped_signals: bool = True
    """Whether Landlock already keeps signals inside."""
    handled_truncate: bool = True
    """Whether Landlock already refuses to shorten a file."""


def program(wanted: Filter, machine: str) -> list[Instruction]:
    """The filter's instructions.

    :raises KeyError: for a machine that it was not written for.
    """
    out: list[Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, AUDIT_ARCH[machine]),
        (_RETURN, 0, 0, KILL),
        (_LOAD, 0, 0, _NUMBER),
    ]
    if machine == "x86_64":
        out += [(_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, KILL)]
    out += [(_AT_LEAST, 0, 1, NEWEST + 1), (_RETURN, 0, 0, ENOSYS)]
    rules = _rules(wanted)
    for name, block in rules.items():
        at = number(name, machine)
        if at is not None:
            out += [(_EQUAL, 0, len(block), at), *block]
    out.append((_RETURN, 0, 0, ALLOW))
    return out


def _rules(wanted: Filter) -> dict[str, list[Instruction]]:
    rules = {name: [_give(EPERM)] for name in _REFUSED}
    rules |= {name: [_give(ENOSYS)] for name in _ABSENT}
    rules |= {name: [_give(ENOTSUP)] for name in _XATTRS}
    if wanted.supervised:
        rules |= {name: [_give(ASK_HOST)] for name in SUPERVISED}
    else:
        rules |= {name: [_give(EPERM)] for name in _METADATA}
        if not wanted.handled_truncate:
            rules["truncate"] = rules["creat"] = [_give(EPERM)]
            rules |= {"open": _without(1, os.O_TRUNC), "openat": _without(2, os.O_TRUNC)}
    rules["socket"] = [_give(EACCES)]
    rules["socketpair"] = [
        *(_load(0), (_EQUAL, 1, 0, socket.AF_UNIX), _give(EACCES)),
        *(_load(1), (_ANY_BIT, 0, 1, _NOT_CONNECTED), _give(EACCES), _give(ALLOW)),
    ]
    rules["ioctl"] = _only(1, _IOCTLS, ENOTTY)
    rules["fcntl"] = _none_of(1, _FCNTLS)
    rules["prctl"] = _none_of(0, (_PR_SET_PDEATHSIG,))
    rules["prlimit64"] = _only(0, (0, wanted.pid))
    if not (wanted.may_exec and wanted.scoped_signals):
        rules["kill"] = rules["tgkill"] = _only(0, (wanted.pid,))
        rules["pidfd_open"] = [_give(EPERM)]
    return rules | _processes(wanted.may_exec)


def _processes(may_exec: bool) -> dict[str, list[Instruction]]:
    no_namespaces: list[Instruction] = [_load(0), (_ANY_BIT, 0, 1, _NEW_NAMESPACES), _give(EPERM)]
    if may_exec:
        return {"clone": [*no_namespaces, _give(ALLOW)]}
    threads: list[Instruction] = [(_ANY_BIT, 1, 0, _CLONE_THREAD), _give(EPERM), _give(ALLOW)]
    return {"clone": no_namespaces + threads} | {name: [_give(EPERM)] for name in ("fork", "vfork", "execve")}


def _give(action: int) -> Instruction:
    return (_RETURN, 0, 0, action)


def _load(argument: int) -> Instruction:
    # The lower half: these arguments are all int, and the kernel looks at no more of them either.
    return (_LOAD, 0, 0, _ARGUMENTS + 8 * argument)


def _without(argument: int, bits: int) -> list[Instruction]:
    return [_load(argument), (_ANY_BIT, 0, 1, bits), _give(EPERM), _give(ALLOW)]


def _none_of(argument: int, values: Iterable[int]) -> list[Instruction]:
    block = [_load(argument)]
    for value in values:
        block += [(_EQUAL, 0, 1, value), _give(EPERM)]
    return [*block, _give(ALLOW)]


def _only(argument: int, values: Iterable[int], otherwise: int = EPERM) -> list[Instruction]:
    block = [_load(argument)]
    for value in values:
        block += [(_EQUAL, 0, 1, value), _give(ALLOW)]
    return [*block, _give(otherwise)]


def pack(wanted: Filter) -> bytes:
    """The filter for this machine as the kernel takes it.

    :raises KeyError: for a machine that it was not written for.
    """
    nobody = _for_nobody(wanted.may_exec, wanted.supervised, wanted.scoped_signals, wanted.handled_truncate)
    return nobody.replace(struct.pack("=I", _NOBODY), struct.pack("=I", wanted.pid))


@functools.lru_cache(maxsize=16)
def _for_nobody(may_exec: bool, supervised: bool, scoped_signals: bool, handled_truncate: bool) -> bytes:
    """The filter of a process without a number: made once, before a process that needs it is forked."""
    wanted = Filter(_NOBODY, may_exec, supervised, scoped_signals, handled_truncate)
    return b"".join(struct.pack("=HBBI", *one) for one in program(wanted, os.uname().machine))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def install(wanted: Filter) -> int | None:
    """Filter this thread and all that it starts, for good; `no_new_privs` must hold already.

    Gives the listener's descriptor when the filter is supervised.

    :raises OSError: when the kernel refuses it; whoever asked then has to end.
    :raises KeyError: for a machine that it was not written for.
    """
    machine = os.uname().machine
    packed = pack(wanted)
    buffer = ctypes.create_string_buffer(packed, len(packed))
    described = _Program(len(packed) // 8, ctypes.addressof(buffer))
    if not wanted.supervised:
        _seccomp(machine, 0, described)
        return None
    try:
        return _seccomp(machine, _NEW_LISTENER | _WAIT_KILLABLE, described)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    return _seccomp(machine, _NEW_LISTENER, described)  # a kernel before 5.19


def _seccomp(machine: str, flags: int, described: _Program) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    result: int = libc.syscall(
        ctypes.c_long(_SECCOMP[machine]),
        ctypes.c_uint(_SET_MODE_FILTER),
        ctypes.c_uint(flags),
        ctypes.byref(described),
    )
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "seccomp")
    return result
