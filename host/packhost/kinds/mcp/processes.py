"""The host's side of the launcher: servers started, spoken to and ended."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from packhost.errors import PackhostError, ToolFailed
from packhost.kinds.mcp import launcher

log = logging.getLogger(__name__)

MARK: Final = "PACKHOST_UPSTREAM"
"""Marks the environment of everything that an upstream starts: which host's it is."""
_PASSED: Final = ("PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "TZ")
_CLOSING: Final = 15.0
"""Seconds that the launcher has to end everything."""


@dataclass(slots=True, eq=False)
class Process:
    """One server's process: descriptors of its standard streams, and when it is gone with all below it."""

    id: int
    stdin: int
    stdout: int
    stderr: int
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    status: int | None = None
    """Of the server itself: its exit code, 128 and more for a signal; `None` where nobody knows."""

    def close(self) -> None:
        """Close what the host holds of it."""
        for name in ("stdin", "stdout", "stderr"):
            descriptor = getattr(self, name)
            if descriptor >= 0:
                os.close(descriptor)
                setattr(self, name, -1)

    def close_stdin(self) -> None:
        """Tell the server that nothing more comes."""
        if self.stdin >= 0:
            os.close(self.stdin)
            self.stdin = -1


class Processes:
    """Starts servers by one launcher, which is itself started when it is first needed."""

    def __init__(self) -> None:
        self._launcher: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None
        self._running: dict[int, Process] = {}
        self._next = 0
        self._closed = False
        self._mark = f"{os.getpid()}-{os.urandom(8).hex()}"

    def start(
        self, line: Sequence[str], env: Mapping[str, str], cwd: Path, sandbox: Mapping[str, Any] | None
    ) -> Process:
        """Start a server; it may end at once, which its process then says.

        Raises `ToolFailed` for a program that there is not, and `PackhostError` when nothing can be started.
        """
        environment = {**environ(), **env, MARK: self._mark}
        program = located(line[0], environment.get("PATH", os.defpath), cwd)
        connection = self._connected()
        self._next += 1
        start = {
            "op": "start",
            "id": self._next,
            "program": program,
            "line": list(line),
            "env": environment,
            "cwd": str(cwd),
            "sandbox": sandbox,
        }
        frame = json.dumps(start).encode()
        if len(frame) > launcher.FRAME:
            raise ToolFailed(
                f"the server could not be started: its command and environment have {len(frame)} bytes",
                hint=f"keep them below {launcher.FRAME} bytes: give it a file to read",
            )
        process, theirs = _with_pipes(self._next)
        try:
            socket.send_fds(connection, [frame], theirs)
        except OSError as error:
            process.close()
            said = (error.strerror or "it failed").lower()
            raise ToolFailed(f"the server could not be started: {said}", hint="see the host's log") from None
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        self._running[process.id] = process
        return process

    def stop(self, process: Process, *, now: bool = False) -> None:
        """Have a server and all below it ended: it is asked first, and forced soon after."""
        self._send({"op": "kill" if now else "stop", "id": process.id})

    async def close(self) -> None:
        """End every server, then the launcher; nothing is started any more."""
        self._closed = True
        found, connection = self._launcher, self._connection
        if found is None or connection is None:
            return
        self._launcher = self._connection = None
        asyncio.get_running_loop().remove_reader(connection.fileno())
        connection.close()
        try:
            await asyncio.wait_for(asyncio.to_thread(found.wait), _CLOSING)
        except TimeoutError:
            found.kill()
            await asyncio.to_thread(found.wait)
        self._all_gone()
        sweep(self._mark)

    def _connected(self) -> socket.socket:
        if self._connection is not None:
            return self._connection
        if self._closed:
            raise ToolFailed(
                "no server is started any more: the host stops", hint="make the call again later"
            )
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._launcher = subprocess.Popen(  # noqa: S603 - this very interpreter and our own file
                [sys.executable, "-I", "-S", launcher.__file__, str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={"LANG": "C.UTF-8"},
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            said = (error.strerror or "it failed").lower()
            raise PackhostError(f"no process can be started: {said}", code="LIMIT_EXCEEDED") from None
        finally:
            theirs.close()
        ours.setblocking(False)
        asyncio.get_running_loop().add_reader(ours.fileno(), self._hear)
        self._connection = ours
        return ours

    def _send(self, frame: Mapping[str, Any]) -> None:
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.send(json.dumps(frame).encode())

    def _hear(self) -> None:
        connection = self._connection
        if connection is None:
            return
        try:
            data = connection.recv(launcher.FRAME)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lost(connection)
            return
        frame = json.loads(data)
        process = self._running.pop(frame["id"], None)
        if process is not None:
            process.status = frame["status"]
            process.ended.set()

    def _lost(self, connection: socket.socket) -> None:
        """The launcher is gone, which nobody but somebody else has brought about."""
        log.warning(
            "the process that runs upstream servers is gone; they are ended, and started anew by calls"
        )
        asyncio.get_running_loop().remove_reader(connection.fileno())
        connection.close()
        gone, self._launcher, self._connection = self._launcher, None, None
        if gone is not None:
            gone.wait()
        sweep(self._mark)
        self._all_gone()

    def _all_gone(self) -> None:
        for process in self._running.values():
            process.ended.set()
        self._running.clear()


def environ() -> dict[str, str]:
    """What every server's environment holds, whatever the host's own holds."""
    return {"LANG": "C.UTF-8", **{name: os.environ[name] for name in _PASSED if name in os.environ}}


def located(program: str, path: str, cwd: Path) -> str:
    """Where a program lies. Raises `ToolFailed` where there is none."""
    found = str(cwd / program) if "/" in program else shutil.which(program, path=path)
    if found is None or not os.access(found, os.X_OK):
        raise ToolFailed(
            f"there is no program `{program}` to start the server with",
            hint="install it, or correct `upstream.command` in the pack's manifest",
        )
    return found


def sweep(mark: str) -> None:
    """End every process whose environment carries the mark: the last resort, after everything else."""
    wanted = f"{MARK}={mark}".encode()
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        if name.isdigit():
            with contextlib.suppress(OSError):
                with open(f"/proc/{name}/environ", "rb") as file:
                    marked = wanted in file.read().split(b"\0")
                if marked:
                    os.kill(int(name), signal.SIGKILL)


def _with_pipes(id: int) -> tuple[Process, list[int]]:
    """A process's ends of three pipes, and those that it is given."""
    opened: list[int] = []
    try:
        for _ in range(3):
            opened += os.pipe()
    except OSError as error:
        for descriptor in opened:
            os.close(descriptor)
        said = (error.strerror or "it failed").lower()
        raise PackhostError(f"no process can be started: {said}", code="LIMIT_EXCEEDED") from None
    their_in, our_in, our_out, their_out, our_err, their_err = opened
    for ours in (our_in, our_out, our_err):
        os.set_blocking(ours, False)
    return Process(id, our_in, our_out, our_err), [their_in, their_out, their_err]
