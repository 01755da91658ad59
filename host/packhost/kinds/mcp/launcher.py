"""The process that starts upstream servers, and lets none of them outlive the host.

It is run as a program with nothing but a socket to the host, and needs the standard library alone. For each
server it forks a supervisor, which inherits every orphan that the server leaves behind and ends them with it.
However a process of this chain ends, what is below it ends too:

- the host: the socket closes, and every supervisor is told to end its server at once;
- this process: the kernel signals the supervisors;
- a supervisor: the kernel ends its server, and what that had started becomes this process's to end.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Collection
from typing import Any, NoReturn

FRAME = 192 * 1024
"""Bytes of a frame from the host at most."""
STOP, STOP_NOW = signal.SIGTERM, signal.SIGUSR1
"""How a supervisor is told to end its server: with time to end by itself, or with hardly any."""
GRACE = 2.0
"""Seconds between asking a server to end and ending it."""
HASTE = 0.3
"""The same once the host is gone or the server itself has ended."""
PATIENCE = 10.0
"""Seconds in which everything below a supervisor is ended, or left to the process above."""
_STEP = 0.02
_PDEATHSIG, _SUBREAPER = 1, 36
_NOT_STARTED = 127


def adopt(parent: int, when_it_ends: int) -> None:
    """Inherit orphans from below, and hear when the parent ends; ends at once where that has happened."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        libc.prctl(_SUBREAPER, 1, 0, 0, 0)
        libc.prctl(_PDEATHSIG, when_it_ends, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def below(root: int, apart: Collection[int] = ()) -> list[int]:
    """Every process below `root`, which is left out, as are its children `apart` and what is below those."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                with open(f"/proc/{name}/stat", "rb") as file:
                    parent = int(file.read().rpartition(b")")[2].split()[1])
                children.setdefault(parent, []).append(int(name))
    found: list[int] = []
    left = [root]
    children[root] = [pid for pid in children.get(root, []) if pid not in apart]
    while left:
        some = children.get(left.pop(), [])
        found += some
        left += some
    return found


def reap() -> tuple[dict[int, int], bool]:
    """The children that have ended, with their status; and whether there is none left at all."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended, True
        if pid == 0:
            return ended, False
        ended[pid] = os.waitstatus_to_exitcode(status)


def kill(pid: int, number: int) -> None:
    """Signal a process that may be gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


class Supervisor:
    """Watches over one server."""

    def __init__(self, server: int) -> None:
        self._server = server
        self._status: int | None = None
        self._alone = False
        """Whether nothing is left below."""

    def run(self) -> int:
        """Wait until the server has ended or is to end; then end all that it left. Its exit status."""
        grace = self._watch()
        if self._status is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._server, signal.SIGTERM)
        self._reap_for(grace)
        until = time.monotonic() + PATIENCE
        while not self._alone and time.monotonic() < until:
            for pid in below(os.getpid()):
                kill(pid, signal.SIGKILL)
            self._reap_for(_STEP)
        status = self._status or 0
        return status if 0 <= status < 128 else (128 - status) & 0xFF

    def _watch(self) -> float:
        """Seconds that whatever is left may have to end by itself."""
        while True:
            got = signal.sigwaitinfo((signal.SIGCHLD, STOP, STOP_NOW))
            if got.si_signo == STOP:
                return GRACE
            if got.si_signo == STOP_NOW:
                return HASTE
            self._note(*reap())
            if self._status is not None:
                return 0.0

    def _reap_for(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while True:
            self._note(*reap())
            left = until - time.monotonic()
            if self._alone or left <= 0:
                return
            got = signal.sigtimedwait((signal.SIGCHLD, STOP_NOW), left)
            if got is not None and got.si_signo == STOP_NOW:
                until = min(until, time.monotonic() + HASTE)

    def _note(self, ended: dict[int, int], alone: bool) -> None:
        self._status = ended.get(self._server, self._status)
        self._alone = alone


def supervise(frame: dict[str, Any], streams: list[int], launcher: int) -> NoReturn:
    """In a fork of the launcher: start the server and stay until all of it is gone."""
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGCHLD, STOP, STOP_NOW))
    signal.set_wakeup_fd(-1)
    status = 1
    try:
        adopt(launcher, STOP_NOW)
        streams = _only(streams)
        this = os.getpid()
        server = os.fork()
        if server == 0:
            become(frame, streams, this)
        for stream in streams:
            os.close(stream)
        status = Supervisor(server).run()
    finally:
        os._exit(status)


def _only(streams: list[int]) -> list[int]:
    """The three streams as descriptors 3 to 5, and nothing else open but the standard ones."""
    high = [os.dup2(stream, 64 + index) for index, stream in enumerate(streams)]
    low = [os.dup2(stream, 3 + index, inheritable=False) for index, stream in enumerate(high)]
    os.closerange(6, 1 << 16)
    return low


def become(frame: dict[str, Any], streams: list[int], supervisor: int) -> NoReturn:
    """In a fork of the supervisor: turn into the server's program."""
    try:
        os.setsid()
        for target, stream in enumerate(streams):
            os.dup2(stream, target)
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != supervisor:
            os._exit(1)
        for number in range(1, signal.NSIG):
            with contextlib.suppress(OSError, ValueError):
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.chdir(frame["cwd"])
        if frame["sandbox"] is not None:
            confine(frame["sandbox"])
        os.execve(frame["program"], frame["line"], frame["env"])  # noqa: S606 - what a person accepted
    except BaseException as error:  # this process must never go back to being a launcher
        text = f"packhost could not start it: {error}\n"
        with contextlib.suppress(OSError):
            os.write(2, text.encode("utf-8", "replace"))
    os._exit(_NOT_STARTED)


def confine(sandbox: dict[str, Any]) -> None:
    """Give up all but what the manifest grants; raises `OSError` where the kernel refuses a part."""
    sys.path.insert(0, sandbox["packhost"])
    from packhost.sandbox import capabilities, landlock, limits, seccomp  # found by that path alone

    rules = [landlock.PathRule(path, landlock.READ | landlock.EXECUTE) for path in sandbox["readable"]]
    change = landlock.READ | landlock.CHANGE
    rules += [landlock.PathRule(path, change) for path in sandbox["writable"]]
    rules += [landlock.PathRule(path, landlock.READ) for path in ("/dev/zero", "/dev/urandom", "/dev/random")]
    null = landlock.READ_FILE | landlock.WRITE_FILE | landlock.TRUNCATE
    rules.append(landlock.PathRule(os.devnull, null))
    limits.apply(limits.Limits(memory=0, data=0))
    if any(capabilities.held()):
        capabilities.drop_all()
    landlock.restrict([rules], sandbox["abi"])
    seccomp.install(
        seccomp.Filter(
            os.getpid(),
            may_exec=True,
            scoped_signals=sandbox["abi"] >= landlock.SCOPES,
            handled_truncate=sandbox["abi"] >= landlock.HANDLES_TRUNCATE,
        )
    )


class Launcher:
    """Forks supervisors as the host asks for them, and tells it when one is gone with all below it."""

    def __init__(self, connection: socket.socket, wake: int) -> None:
        self._connection = connection
        self._wake = wake
        self._running: dict[int, int] = {}

    def run(self) -> None:
        """Serve the host until it is gone, then end everything."""
        while True:
            watched: list[Any] = [self._connection, self._wake]
            readable, _, _ = select.select(watched, [], [])
            if self._wake in readable:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wake, 4096)
                self._collect()
            if self._connection in readable and not self._serve():
                break
        self._end_all()

    def _serve(self) -> bool:
        try:
            data, streams, _, _ = socket.recv_fds(self._connection, FRAME, 3)
        except OSError:
            return False
        if not data:
            return False
        try:
            self._obey(json.loads(data), streams)
        finally:
            for stream in streams:
                os.close(stream)
        return True

    def _obey(self, frame: dict[str, Any], streams: list[int]) -> None:
        if frame["op"] == "start":
            this = os.getpid()
            try:
                pid = os.fork()
            except OSError:  # the others must not end with it
                self._tell(frame["id"], _NOT_STARTED)
                return
            if pid == 0:
                supervise(frame, streams, this)
            self._running[pid] = frame["id"]
            return
        for pid, id in self._running.items():
            if id == frame["id"]:
                kill(pid, STOP_NOW if frame["op"] == "kill" else STOP)

    def _collect(self) -> None:
        for pid, status in reap()[0].items():
            id = self._running.pop(pid, None)
            if id is not None:
                self._end_orphans()
                self._tell(id, status)
        self._end_orphans()

    def _tell(self, id: int, status: int) -> None:
        with contextlib.suppress(OSError):
            self._connection.send(json.dumps({"id": id, "status": status}).encode())

    def _end_orphans(self) -> None:
        """What a supervisor left that did not end in order."""
        for pid in below(os.getpid(), self._running):
            kill(pid, signal.SIGKILL)

    def _end_all(self) -> None:
        for pid in self._running:
            kill(pid, STOP_NOW)
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            ended, alone = reap()
            if alone:
                return
            for pid in ended:
                self._running.pop(pid, None)
            self._end_orphans()
            time.sleep(_STEP)
        for pid in below(os.getpid()):
            kill(pid, signal.SIGKILL)


def main(descriptor: int, parent: int) -> None:
    """Serve the host on the socket that it left open."""
    adopt(parent, signal.SIGTERM)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the host is gone, as its socket says too
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    os.set_inheritable(descriptor, False)
    Launcher(socket.socket(fileno=descriptor), reading).run()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
