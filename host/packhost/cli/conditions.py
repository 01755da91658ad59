"""What `packhost doctor` looks at of the machine: conditions under which a host cannot do its work.

Each is told only where it is present, with what to do; docs/failures.md says what a caller sees meanwhile.
"""

from __future__ import annotations

import os
import resource
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from packhost.cli.checks import Check
from packhost.errors import machine_error
from packhost.store.lock import Holder, HostLock
from packhost.store.sqlite import STORE_NAME

_TRIED: Final = 256 * 1024
"""Bytes written to find out whether there is room: more than a call's record takes."""
_AHEAD: Final = 120.0
"""Seconds by which the newest of the state's files may be ahead of the clock."""
_NEARLY: Final = 0.9


def conditions(state: Path) -> Iterator[Check]:
    """What keeps a host of this state folder from its work, as far as it is so."""
    yield from _writable(state)
    yield from _clock(state)
    holder = HostLock(state).holder()
    if holder is not None:
        yield from _files(holder)
    yield from _removed(state)
    yield from _processes()


def _writable(state: Path) -> Iterator[Check]:
    try:
        with tempfile.TemporaryFile(dir=state, prefix=".doctor-") as file:
            file.write(os.urandom(_TRIED))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        refused = machine_error(error)
        why = refused.message if refused else (error.strerror or "it failed").lower()
        hint = refused.hint if refused else "give it back to your account, with mode 0700"
        yield Check(
            "state",
            "broken",
            f"{state} cannot be written: {why.partition(': `')[0]}; {hint}. Until then calls with effects "
            "are refused, and a host that starts cannot serve",
        )


def _clock(state: Path) -> Iterator[Check]:
    newest = 0.0
    for path in state.iterdir():
        with suppress(OSError):
            newest = max(newest, path.lstat().st_mtime)
    ahead = newest - time.time()
    if ahead > _AHEAD:
        yield Check(
            "clock",
            "note",
            f"the newest record is {ahead:.0f} s ahead of this clock, which went back: what expires lasts "
            "longer by that, and lists are out of order; set the clock, and revoke what should have expired",
        )


def _removed(state: Path) -> Iterator[Check]:
    gone = f"{state / STORE_NAME} (deleted)"
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if any(_target(link) == gone for link in (folder / "fd").iterdir()):
                yield Check(
                    "store",
                    "broken",
                    f"process {folder.name} serves a store that was removed: end it, put the folder back "
                    "or restore a backup, then start it again",
                )


def _target(link: Path) -> str:
    with suppress(OSError):
        return os.readlink(link)
    return ""


def _files(holder: Holder) -> Iterator[Check]:
    used, limit = _descriptors(holder.pid)
    if limit and used >= _NEARLY * limit:
        yield Check(
            "files",
            "broken",
            f"process {holder.pid} has {used} of at most {limit} files open: it takes no connection; close "
            "clients, or start it with a higher `ulimit -n`",
        )


def _descriptors(pid: int) -> tuple[int, int]:
    with suppress(OSError, ValueError, IndexError):
        limits = Path(f"/proc/{pid}/limits").read_text().splitlines()
        (line,) = (one for one in limits if one.startswith("Max open files"))
        return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir()), int(line.split()[3])
    return 0, 0


def _processes() -> Iterator[Check]:
    limit, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if limit == resource.RLIM_INFINITY or os.geteuid() == 0:
        return
    used = sum(_threads(folder) for folder in Path("/proc").glob("[0-9]*"))
    if used >= _NEARLY * limit:
        yield Check(
            "processes",
            "broken",
            f"this account has {used} of at most {limit} processes and threads: tools that need one of their "
            "own are refused; end some, or raise `ulimit -u`",
        )


def _threads(folder: Path) -> int:
    with suppress(OSError, ValueError):
        if folder.stat().st_uid == os.getuid():
            return sum(1 for _ in (folder / "task").iterdir())
    return 0
