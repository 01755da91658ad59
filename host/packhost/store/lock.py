"""One host a workspace: a lock in the state folder, free again at once when its holder dies."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from packhost.errors import StoreUnavailable

LOCK_NAME = "host.lock"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds the lock: its process and since when (seconds since the epoch); 0 where that is not known."""

    pid: int
    since: float


class HostLock:
    """The right to write a workspace's state; `folder` is its state folder.

    The folder itself is locked, so that nobody frees it by removing a file; the file says who holds it.
    A forked child that keeps the descriptor keeps the lock: children are started by exec.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / LOCK_NAME
        self._fd: int | None = None

    @property
    def held(self) -> bool:
        """This object holds the lock."""
        return self._fd is not None

    def acquire(self) -> bool:
        """Take the lock without waiting; `False` when another holds it (see `holder`).

        Raises `StoreUnavailable` when the folder or the file cannot be used.
        """
        if self._fd is not None:
            return True
        try:
            fd = os.open(self.path.parent, _FOLDER)
        except OSError as error:
            raise self._unusable(error) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._say(json.dumps({"pid": os.getpid(), "since": time.time()}).encode())
        except BlockingIOError:
            os.close(fd)
            return False
        except OSError as error:
            os.close(fd)
            raise self._unusable(error) from error
        self._fd = fd
        return True

    def _say(self, text: bytes) -> None:
        file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.write(file, text)
        finally:
            os.close(file)

    def holder(self) -> Holder | None:
        """Who holds the lock now; `None` when nobody does."""
        written = _read(self.path)
        if written is not None and not _lives(written.pid):
            return None
        try:
            fd = os.open(self.path.parent, _FOLDER)
        except OSError:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return written or Holder(0, 0.0)
        finally:
            os.close(fd)
        return None

    def release(self) -> None:
        """Let go; does nothing when it is not held."""
        if self._fd is not None:
            with contextlib.suppress(OSError):
                self._say(b"")
            os.close(self._fd)
            self._fd = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _unusable(self, error: OSError) -> StoreUnavailable:
        return StoreUnavailable(
            f"`{self.path}` cannot be locked: {error.strerror}",
            hint="check that the state folder is yours, writable and on a local disk",
        )


def _read(path: Path) -> Holder | None:
    try:
        data = json.loads(path.read_bytes())
        return Holder(int(data["pid"]), float(data["since"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True
