"""However a host ends, nothing that its servers started is left: counted in the process table."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import upstream_host

from packhost.kinds.mcp.launcher import below

SERVERS = 3
PATIENCE = 20.0
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are counted in /proc")


def marked(folder: Path) -> list[int]:
    """Every process that a server of this test is or has started, whoever its parent is by now."""
    wanted, found = f"ORPHANS_OF={folder}".encode(), []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            environ = Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if wanted in environ:
            found.append(int(name))
    return found


def gone(folder: Path) -> list[int]:
    """What is left once all had time to end."""
    until = time.monotonic() + PATIENCE
    while (left := marked(folder)) and time.monotonic() < until:
        time.sleep(0.02)
    return left


class Ran:
    """A host with its servers, as processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, upstream_host.__file__, str(folder), str(SERVERS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=folder,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"ready\n"
        (self.launcher,) = self._children(self.process.pid)
        self.supervisors = self._children(self.launcher)

    @staticmethod
    def _children(pid: int) -> list[int]:
        all_below = below(pid)
        return [one for one in all_below if not any(one in below(other) for other in all_below)]

    def end(self) -> None:
        """Let go of it, however the test ended it."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()


@pytest.fixture
def ran(tmp_path: Path) -> Iterator[Ran]:
    found = Ran(tmp_path)
    try:
        yield found
    finally:
        found.end()
        for pid in marked(tmp_path):
            os.kill(pid, signal.SIGKILL)


def closed(ran: Ran) -> None:
    ran.process.communicate(b"\n", timeout=PATIENCE)


def killed(ran: Ran) -> None:
    ran.process.kill()


def terminated(ran: Ran) -> None:
    ran.process.terminate()


def without_its_launcher(ran: Ran) -> None:
    os.kill(ran.launcher, signal.SIGKILL)


def without_its_supervisors(ran: Ran) -> None:
    for pid in ran.supervisors:
        os.kill(pid, signal.SIGKILL)


def without_either(ran: Ran) -> None:
    for pid in (*ran.supervisors, ran.launcher):
        os.kill(pid, signal.SIGKILL)


def killed_with_its_launcher(ran: Ran) -> None:
    for pid in (ran.launcher, ran.process.pid):
        os.kill(pid, signal.SIGKILL)


def killed_with_its_supervisors(ran: Ran) -> None:
    for pid in (*ran.supervisors, ran.process.pid):
        os.kill(pid, signal.SIGKILL)


ENDS: list[Callable[[Ran], None]] = [
    closed,
    killed,
    terminated,
    without_its_launcher,
    without_its_supervisors,
    without_either,
    killed_with_its_launcher,
    killed_with_its_supervisors,
]


@pytest.mark.slow
@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
def test_nothing_of_any_server_outlives_a_host_that_is(
    ran: Any, running: Any, end: Callable[[Ran], None]
) -> None:
    assert len(marked(ran.folder)) >= 2 * SERVERS  # each server, and the daemon that it left
    end(ran)
    assert gone(ran.folder) == []
    ran.process.kill()
    until = time.monotonic() + PATIENCE
    while (left := running([ran.launcher, *ran.supervisors])) and time.monotonic() < until:
        time.sleep(0.02)
    assert left == []
