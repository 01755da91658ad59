"""The host's handle on the zygote, and on the processes that are forked from it."""

from __future__ import annotations

import array
import json
import os
import select
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import anyio

from packhost.kinds.frames import ALONE, STATUS, SUPERVISED
from packhost.kinds.setup import libraries
from packhost.kinds.worker import import_paths
from packhost.sandbox.probe import Proof

_BOOTSTRAP = (
    "import json, sys; told = json.loads(sys.argv[1]); sys.path.extend(told['paths']); "
    "from packhost.kinds.zygote import main; "
    "main(told['descriptor'], told['parent'], told['libraries'], told['abi'])"
)
_PATIENCE = 10.0
"""Seconds in which a zygote has to say what it proved, and a killed process has to be gone."""
_PROOF_LENGTH = 4096
SPARE = 2
"""Processes that are forked ahead."""


class Gone(Exception):
    """The zygote went while something was asked of it."""


class Zygote:
    """Starts the process when it is first needed, and again after it died.

    `abi` takes the kernel for one with no more than that Landlock ABI.
    """

    def __init__(self, root: Path, *, abi: int | None = None) -> None:
        self._root = root
        self._abi = abi
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._proof: Proof | None = None
        self._spare: list[Fork] = []
        self.libraries = libraries(root)
        """What every process may read."""

    @property
    def pid(self) -> int | None:
        """The running zygote's process, for tests and for people."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start it if it does not run; returns before it has proved anything."""
        if self._process is not None and self._process.poll() is None:
            return
        self._forget()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        told = {
            "descriptor": theirs.fileno(),
            "parent": os.getpid(),
            "paths": import_paths(self._root),
            "libraries": self.libraries,
            "abi": self._abi,
        }
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603  # this very interpreter, with words of our own
                [sys.executable, "-I", "-S", "-B", "-c", _BOOTSTRAP, json.dumps(told)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={"LANG": "C.UTF-8"},
                cwd="/",
                start_new_session=True,
                pass_fds=(theirs.fileno(),),
            )
        self._control, self._proof = ours, None

    @property
    def proof(self) -> Proof:
        """What the zygote proved; starts it, and waits for it the first time."""
        if self._proof is not None:
            return self._proof
        try:
            self.start()
            self._proof = self._hear()
        except (OSError, ValueError, TypeError) as error:
            self._forget()
            why = " ".join(str(error).split()) or type(error).__name__
            return Proof("advisory", 0, False, f"the process that proves it did not start: {why}")
        return self._proof

    def _hear(self) -> Proof:
        if self._control is None:
            raise OSError("there is no zygote")
        self._control.settimeout(_PATIENCE)
        proof = Proof(**json.loads(self._control.recv(_PROOF_LENGTH)))
        self._control.setblocking(False)
        return proof if _readable(self.pid) else replace(proof, supervised=False)

    def fork(self) -> Fork:
        """A new process, still waiting to be told what it is.

        :raises Gone: when the zygote cannot be had, or no longer proves what it did.
        """
        while self._spare:
            spare = self._spare.pop(0)
            if spare.alive():
                return spare
            spare.close()
        before = self._proof
        for _ in range(2):
            if self.proof.level == "advisory" or (before is not None and self.proof.level != before.level):
                raise Gone(self.proof.detail)
            try:
                return self._fork()
            except (BrokenPipeError, ConnectionError):
                self._forget()
        raise Gone("it ended twice in a row")

    def get_ready(self) -> None:
        """Have processes forked ahead, which wait to be told what they are."""
        if self._proof is not None:
            with suppress(OSError):  # then the next call meets it, and says so
                while len(self._spare) < SPARE:
                    self._spare.append(self._fork())

    def _fork(self) -> Fork:
        if self._control is None:
            raise ConnectionError
        connection, their_connection = socket.socketpair()
        status, their_status = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        output, their_output = os.pipe()
        try:
            given = array.array("i", (their_connection.fileno(), their_output, their_status.fileno()))
            wanted = SUPERVISED if self._proof is not None and self._proof.supervised else ALONE
            self._control.sendmsg([wanted], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, given)])
        except BaseException:
            os.close(output)
            connection.close()
            status.close()
            raise
        finally:
            os.close(their_output)
            their_connection.close()
            their_status.close()
        for one in (connection, status):
            one.setblocking(False)
        os.set_blocking(output, False)
        return Fork(connection, output, status)

    def _forget(self) -> None:
        for spare in self._spare:
            spare.close()
        self._spare.clear()
        if self._control is not None:
            self._control.close()
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()
            self._process.wait()
        self._process = self._control = self._proof = None

    def close(self) -> None:
        """End the zygote and everything that was forked from it."""
        if self._control is not None and self._process is not None:
            self._control.close()  # it kills what it forked, then ends
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_PATIENCE)
        self._forget()


def _readable(pid: int | None) -> bool:
    """Whether the host may read a process that is its own: without that no file call can be answered."""
    try:
        os.close(os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


@dataclass(slots=True, eq=False)
class Fork:
    """One forked process: a socket to it, what it prints, and what the zygote tells of it."""

    connection: socket.socket
    output: int
    status: socket.socket
    group: int = 0
    """Its process group; 0 until the zygote has told."""
    descriptor: int = -1
    code: int | None = None
    """How it ended: an exit code, or the negative number of a signal; `None` if nobody knows."""
    ended: bool = False

    async def end(self) -> None:
        """Kill it and everything that it started, and wait until all of it is gone; never cancelled."""
        with anyio.CancelScope(shield=True), anyio.move_on_after(_PATIENCE):
            while not self.ended:
                self.kill()
                await self._hear()

    def runs(self) -> bool:
        """Whether it has not ended, even if the zygote has not told yet."""
        if not self.alive():
            return False
        watched = select.poll()
        if self.descriptor >= 0:
            watched.register(self.descriptor, select.POLLIN)
        return not watched.poll(0)

    def alive(self) -> bool:
        """Whether the zygote has not told that all of it is gone."""
        while not self.ended and self._take():
            pass
        return not self.ended

    async def wait(self) -> None:
        """Wait until it has ended by itself."""
        while not self.ended:
            await self._hear()

    def kill(self) -> bool:
        """Kill it; what it started is killed by the zygote when it reaps it. False when not yet."""
        if self.descriptor < 0:
            self._take()
        if self.descriptor < 0:
            return False
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.descriptor, signal.SIGKILL)
        return True

    def hold(self, held: bool) -> None:
        """Stop it, threads and all, or let it go on."""
        with suppress(OSError):
            signal.pidfd_send_signal(self.descriptor, signal.SIGSTOP if held else signal.SIGCONT)

    async def _hear(self) -> None:
        if not self._take():
            await anyio.wait_readable(self.status)

    def _take(self) -> bool:
        """Take in one word of the zygote's; false when there is none yet."""
        try:
            data, ancillary, _, _ = self.status.recvmsg(
                STATUS.size, socket.CMSG_SPACE(4), socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            return False
        except ConnectionError:
            data, ancillary = b"", []
        if not data:
            self._orphaned()
        elif not self.group:
            (self.group,) = STATUS.unpack(data)
            for _, _, content in ancillary:
                (self.descriptor,) = array.array("i", content)
        else:
            (self.code,) = STATUS.unpack(data)
            self.ended = True
        return True

    def _orphaned(self) -> None:
        """The zygote is gone, and the process with it; what the process had started may be left."""
        self.ended = True
        if self.group:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.group, signal.SIGKILL)

    def close(self) -> None:
        """Close what the host holds of it."""
        self.connection.close()
        self.status.close()
        for descriptor in (self.output, self.descriptor):
            if descriptor >= 0:
                os.close(descriptor)
        self.output = self.descriptor = -1
