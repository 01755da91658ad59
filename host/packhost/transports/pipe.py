"""Lines of bytes over file descriptors, on the event loop itself: no thread stands between.

Where a descriptor cannot be polled (a regular file, `/dev/null`) or its blocking mode is shared with a
terminal, one daemon thread reads instead.
"""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from collections import deque
from typing import Final

import anyio

MAX_LINE: Final = 16 * 1024 * 1024
"""The longest line that is taken, in bytes."""
_CHUNK: Final = 256 * 1024
_BACKLOG: Final = 4 * MAX_LINE
"""Bytes of whole lines that wait for a reader before the descriptor is left alone."""
_UNSENT: Final = 1024 * 1024
"""Bytes that wait for a slow reader before a sender has to wait too."""


class Overlong:
    """Stands for a line that was longer than `MAX_LINE`: its bytes are gone."""


OVERLONG: Final = Overlong()
Line = bytes | Overlong


class LineSource:
    """Lines from a descriptor; `next` gives `None` at the end. Owns nothing: closing it leaves `fd` open."""

    def __init__(self, fd: int, *, max_line: int = MAX_LINE) -> None:
        self._fd = fd
        self._max_line = max_line
        self._lines: deque[Line] = deque()
        self._waiting = 0
        self._partial: list[bytes] = []
        self._partial_size = 0
        self._skipping = False
        self._ended = False
        self._polled = False
        self._closed = False
        self._resume = threading.Event()
        self._waiter: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._threaded = not _pollable(fd)
        if self._threaded or not self._poll():
            self._threaded = True
            self._resume.set()
            threading.Thread(target=self._read_blocking, name="packhost-stdin", daemon=True).start()

    async def next(self) -> Line | None:
        """The next line without its newline, `OVERLONG` for one that was too long, `None` at the end."""
        while not self._lines:
            if self._ended:
                return None
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        line = self._lines.popleft()
        if line.__class__ is bytes:
            self._waiting -= len(line)
            if self._waiting <= _BACKLOG // 2 and not self._ended:
                self._continue()
        return line

    def close(self) -> None:
        """Stop reading; whoever waits for a line gets the end."""
        self._closed = True
        self._resume.set()
        self._end()

    def _poll(self) -> bool:
        try:
            self._loop.add_reader(self._fd, self._readable)
        except (OSError, NotImplementedError):
            return False
        self._polled = True
        return True

    def _continue(self) -> None:
        if self._threaded:
            self._resume.set()
        elif not self._polled:
            self._poll()

    def _readable(self) -> None:
        try:
            data = os.read(self._fd, _CHUNK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        self._feed(data)

    def _read_blocking(self) -> None:
        while not self._closed:
            self._resume.wait()
            try:
                data = os.read(self._fd, _CHUNK)
            except OSError:
                data = b""
            try:
                self._loop.call_soon_threadsafe(self._feed, data)
            except RuntimeError:
                return  # the loop is closed: nobody reads any more
            if not data:
                return

    def _feed(self, data: bytes) -> None:
        if self._ended:
            return
        if not data:
            if self._partial and not self._skipping:
                self._add(b"".join(self._partial))
            self._end()
            return
        first, *rest = data.split(b"\n")
        self._extend(first)
        for piece in rest:
            self._finish_line()
            self._extend(piece)
        if self._waiting > _BACKLOG:
            self._pause()
        self._wake()

    def _extend(self, piece: bytes) -> None:
        if self._skipping or not piece:
            return
        self._partial.append(piece)
        self._partial_size += len(piece)
        if self._partial_size > self._max_line:
            self._partial.clear()
            self._skipping = True
            self._lines.append(OVERLONG)

    def _finish_line(self) -> None:
        if not self._skipping:
            self._add(self._partial[0] if len(self._partial) == 1 else b"".join(self._partial))
        self._partial.clear()
        self._partial_size = 0
        self._skipping = False

    def _add(self, line: bytes) -> None:
        if line and line != b"\r":
            self._lines.append(line)
            self._waiting += len(line)

    def _pause(self) -> None:
        self._resume.clear()
        if self._polled:
            self._loop.remove_reader(self._fd)
            self._polled = False

    def _end(self) -> None:
        if self._polled:
            self._loop.remove_reader(self._fd)
            self._polled = False
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class LineSink:
    """Lines to a descriptor, in the order of `send`. Closing it leaves `fd` open, as it was."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._unsent: deque[memoryview] = deque()
        self._size = 0
        self._polled = False
        self._broken = False
        self._closed = False
        self._drained: asyncio.Future[None] | None = None
        self._was_blocking: bool | None = None
        if _pollable(fd):
            self._was_blocking = os.get_blocking(fd)
            os.set_blocking(fd, False)

    async def send(self, line: bytes) -> None:
        """Send a line; waits only while a slow reader leaves much unsent.

        :raises anyio.BrokenResourceError: the other end is gone
        :raises anyio.ClosedResourceError: this end was closed
        """
        self.send_nowait(line)
        while self._size > _UNSENT:
            if self._drained is None:
                self._drained = self._loop.create_future()
            await asyncio.shield(self._drained)
            self._check()

    def send_nowait(self, line: bytes) -> None:
        """Send or queue a line."""
        self._check()
        data = memoryview(line + b"\n")
        if not self._unsent:
            data = data[self._write(data) :]
            if not data:
                return
            self._loop.add_writer(self._fd, self._writable)
            self._polled = True
        self._unsent.append(data)
        self._size += len(data)

    async def flush(self, timeout: float = 1.0) -> None:
        """Wait, at most `timeout` seconds, until everything is with the other end."""
        with anyio.move_on_after(timeout):
            while self._unsent and not self._broken:
                if self._drained is None:
                    self._drained = self._loop.create_future()
                await asyncio.shield(self._drained)

    def close(self) -> None:
        """Stop writing and give the descriptor back as it was."""
        if self._closed:
            return
        self._closed = True
        self._forget()
        if self._was_blocking is not None:
            try:
                os.set_blocking(self._fd, self._was_blocking)
            except OSError:
                self._broken = True

    def _check(self) -> None:
        if self._closed:
            raise anyio.ClosedResourceError
        if self._broken:
            raise anyio.BrokenResourceError

    def _write(self, data: memoryview) -> int:
        try:
            return os.write(self._fd, data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            self._broken = True
            raise anyio.BrokenResourceError from error

    def _writable(self) -> None:
        try:
            while self._unsent:
                head = self._unsent[0]
                written = self._write(head)
                self._size -= written
                if written < len(head):
                    self._unsent[0] = head[written:]
                    if self._size <= _UNSENT:
                        self._notify()
                    return
                self._unsent.popleft()
        except anyio.BrokenResourceError:
            pass  # the sender that comes next is told
        self._forget()

    def _forget(self) -> None:
        if self._polled:
            self._loop.remove_writer(self._fd)
            self._polled = False
        self._unsent.clear()
        self._size = 0
        self._notify()

    def _notify(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._drained = None


def _pollable(fd: int) -> bool:
    """Whether a descriptor's readiness is told and its blocking mode is ours alone."""
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
