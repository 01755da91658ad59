"""What can be enforced here, proved by trying: a process is confined and then does what it must not.

`kernel` is claimed when every attempt was refused and Landlock keeps signals and abstract sockets inside
(ABI 6); `partial` when every attempt was refused on an older Landlock, where those two rest on the filter
alone; `advisory` when there is no Landlock, no filter for this machine, or anything at all went through.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from packhost.sandbox import capabilities, landlock, seccomp
from packhost.sandbox.confine import Confinement, confine
from packhost.sandbox.syscalls import AUDIT_ARCH, number

_PATIENCE = 10.0
_SUPERVISABLE = "supervisable"
_IO_URING = ctypes.create_string_buffer(120)
"""Room for the parameters of a ring, or the call would fail by itself."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What was proved, and by how much it falls short of `kernel`."""

    level: Literal["kernel", "partial", "advisory"]
    abi: int
    """The Landlock ABI that is used; 0 is none."""
    supervised: bool
    """Whether a handler's own file calls can be answered; without it files go by `context.files` alone."""
    detail: str


def prove(libraries: Sequence[str], abi: int | None = None) -> Proof:
    """Fork, confine, try, and say what holds. Call it in a process with one thread.

    `abi` takes the kernel for one with no more than that Landlock ABI.
    """
    found = landlock.detect()
    used = found if abi is None else min(found, abi)
    machine = os.uname().machine
    if used < 1:
        return Proof("advisory", 0, False, "this kernel has no Landlock")
    if machine not in AUDIT_ARCH:
        return Proof("advisory", used, False, f"there is no filter for `{machine}`")
    said = _attempts(Confinement(used, tuple(libraries)))
    if said is None:
        return Proof("advisory", used, False, "the process that tries the limits did not end")
    supervised = _SUPERVISABLE in said
    broken = [one for one in said if one != _SUPERVISABLE]
    if broken:
        return Proof("advisory", used, False, f"not refused here: {', '.join(broken)}")
    if used < landlock.SCOPES:
        detail = (
            f"Landlock ABI {used} does not keep signals and abstract sockets inside: the filter alone does"
        )
        return Proof("partial", used, supervised, detail)
    return Proof("kernel", used, supervised, f"Landlock ABI {used}")


def _attempts(confinement: Confinement) -> list[str] | None:
    """What a confined process could do, by name; `None` when it did not say."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reading)
            os.write(writing, json.dumps(_try_all(confinement)).encode())
        finally:
            os._exit(0)
    os.close(writing)
    try:
        ready, _, _ = select.select([reading], [], [], _PATIENCE)
        said = os.read(reading, 65536) if ready else b""
    finally:
        os.close(reading)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return json.loads(said) if said else None


def _try_all(confinement: Confinement) -> list[str]:
    try:
        confine(confinement)
    except (OSError, ValueError, KeyError) as error:
        return [f"confining at all ({error})"]
    went_through = [name for name, attempt in _ATTEMPTS.items() if not _refused(attempt)]
    with open(os.__file__, "rb"):  # what has to work still does
        pass
    if any(capabilities.held()):
        went_through.append("capabilities")
    with suppress(OSError):
        os.close(seccomp.install(seccomp.Filter(os.getpid(), supervised=True)) or 0)
        went_through.append(_SUPERVISABLE)
    return went_through


def _refused(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except OSError:
        return True
    return False


def _call(name: str, *arguments: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    at = number(name, os.uname().machine)
    if at is None or libc.syscall(ctypes.c_long(at), *map(ctypes.c_long, arguments)) < 0:
        raise OSError(ctypes.get_errno(), name)


def _fork() -> None:
    if os.fork() == 0:
        os._exit(0)


_ATTEMPTS: dict[str, Callable[[], object]] = {
    "listing the root": lambda: os.listdir("/"),
    "opening a file": lambda: os.open("/proc/self/status", os.O_RDONLY),
    "making a folder": lambda: os.mkdir("/tmp/packhost-probe"),  # noqa: S108  # it must not be made
    "removing a file": lambda: os.unlink("/tmp/packhost-probe"),  # noqa: S108
    "a UDP socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
    "a TCP socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM),
    "a netlink socket": lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW),
    "a unix socket": lambda: socket.socket(socket.AF_UNIX),
    "io_uring": lambda: _call("io_uring_setup", 8, ctypes.addressof(_IO_URING)),
    "tracing": lambda: _call("ptrace", 16, os.getppid(), 0, 0),
    "a signal to another process": lambda: os.kill(os.getppid(), 0),
    "a new process": _fork,
    "a new program": lambda: os.execv(sys.executable, [sys.executable, "-c", ""]),  # noqa: S606
    "changing permissions": lambda: os.chmod("/", os.stat("/").st_mode & 0o7777),
    "a namespace": lambda: _call("unshare", 0x40000000),
}
