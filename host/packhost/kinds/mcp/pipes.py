"""A server's standard streams as a way for messages: a line a message, read and written without waiting.

What a server floods is held back at its own pipe: only so much is read in one turn of the loop, and only so
many lines in a second that nobody asked for, and only so long is spent on them.
"""

from __future__ import annotations

import asyncio
import codecs
import json
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from packhost.kinds.mcp.peer import Message
from packhost.kinds.mcp.processes import Process, Processes

LONGEST_LINE: Final = 64 * 1024 * 1024
"""Bytes of one message; a server that sends a longer one is ended."""
MOST_UNREAD: Final = 64 * 1024 * 1024
"""Bytes that a server may leave unread before it counts as hung."""
KEPT: Final = 64 * 1024
"""Characters of its standard error that are kept, the latest."""
UNASKED: Final = 2_000
"""Lines without an awaited answer in them that are taken in a second; the rest waits in the pipe."""
BUSY: Final = 0.1
"""Share of the time that may go into such lines."""
_PART: Final = 1 << 18
_PARTS: Final = 4
"""Parts read in one turn of the loop."""
_LAST: Final = LONGEST_LINE // _PART
_HOW: Final = 0.25
"""Seconds between a server's last word and its end, within which its end is what is told of it."""
_LEAVE: Final = 1.0
"""Seconds in which a server ends by itself once its input is closed."""


class Words:
    """What a server prints on its standard error: the end of it."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        self._text = ""

    def add(self, data: bytes) -> None:
        """Keep what came, and forget what is too long ago."""
        self._text = (self._text + self._decoder.decode(data))[-KEPT:]

    def note(self, text: str) -> None:
        """A line of packhost's own."""
        self._text = f"{self._text}[packhost] {text}\n"[-KEPT:]

    def text(self) -> str:
        """All that is kept."""
        return self._text


class Pipes:
    """One server's process, with messages in and out; `lose` hears once when it is over.

    `feed` gets each message, and says whether somebody waited for it.
    """

    def __init__(
        self,
        processes: Processes,
        process: Process,
        words: Words,
        feed: Callable[[Any], bool],
        lose: Callable[[str], None],
    ) -> None:
        self._processes = processes
        self.process = process
        self._words = words
        self._feed = feed
        self._lose = lose
        self._loop = asyncio.get_running_loop()
        self._in = bytearray()
        self._out = bytearray()
        self._writing = False
        self._over = False
        self._closed: asyncio.TimerHandle | None = None
        self._held = False
        self._unasked = 0
        self._spent = 0.0
        self._since = self._loop.time()
        self._loop.add_reader(process.stdout, self._read)
        self._loop.add_reader(process.stderr, self._hear)
        self._watch = self._loop.create_task(self._follow())

    def post(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        """Send a message; what the pipe does not take yet is kept."""
        if self._over or self.process.stdin < 0:
            return
        data = json.dumps(message, ensure_ascii=True, separators=(",", ":")).encode("ascii") + b"\n"
        if self._out:
            self._out += data
            if len(self._out) > MOST_UNREAD:
                self._end("it does not read what it is sent")
            return
        self._out += data
        self._write()

    def let_go(self) -> None:
        """Let the server know that nothing more comes."""
        self._end("it was ended")
        self._drop()
        self.process.close_stdin()

    async def close(self) -> None:
        """End the server in an orderly way, and wait until all of it is gone."""
        self.let_go()
        try:
            await asyncio.wait_for(self.process.ended.wait(), _LEAVE)
        except TimeoutError:
            self._processes.stop(self.process)
        await self._watch

    async def _follow(self) -> None:
        await self.process.ended.wait()
        if self._closed is not None:
            self._closed.cancel()
        self._held, self._unasked, self._spent = False, 0, 0.0
        self._lines()
        for _ in range(_LAST):  # what it said before it ended
            self._read()
        self._hear()
        status = self.process.status
        how = "its process was ended" if status is None or status >= 128 or status < 0 else "it ended"
        self._end(f"{how} with status {status}" if status else how)
        self._drop()
        self.process.close()

    def _write(self) -> None:
        try:
            while self._out:
                written = os.write(self.process.stdin, self._out[:_PART])
                del self._out[:written]
        except BlockingIOError:
            if not self._writing:
                self._writing = True
                self._loop.add_writer(self.process.stdin, self._write)
            return
        except OSError:
            self._out.clear()
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self.process.stdin)

    def _read(self) -> None:
        for _ in range(_PARTS):
            if self.process.stdout < 0 or self._over or self._held:
                return
            try:
                part = os.read(self.process.stdout, _PART)
            except BlockingIOError:
                return
            except OSError:
                part = b""
            if not part:
                self._loop.remove_reader(self.process.stdout)
                if self._closed is None:
                    self._closed = self._loop.call_later(_HOW, self._closed_output)
                return
            self._take(part)
            if len(part) < _PART // 2:
                return

    def _closed_output(self) -> None:
        """It says nothing any more and still runs."""
        if not self._over:
            self._end("it closed its output")
            self._processes.stop(self.process)

    def _take(self, part: bytes) -> None:
        seen = len(self._in)
        self._in += part
        self._lines(seen)

    def _lines(self, seen: int = 0) -> None:
        """Take the whole lines of what was read, unless the server is held back; `seen` bytes have no end."""
        start = 0
        while not (self._held or self._over):
            end = self._in.find(b"\n", max(start, seen))
            if end < 0:
                break
            self._line(self._in[start:end])
            start = end + 1
        del self._in[:start]
        if len(self._in) > LONGEST_LINE and not (self._held or self._over):
            self._refuse(f"it sent a message of more than {LONGEST_LINE} bytes")

    def _line(self, line: bytearray) -> None:
        begun = time.thread_time()
        if not self._answers(line) and not self._over:
            self._count(time.thread_time() - begun)

    def _answers(self, line: bytearray) -> bool:
        """Hand a line on; whether it is an answer that somebody waits for."""
        if not line.strip():
            return False
        try:
            message = json.loads(line)
        except ValueError:
            self._words.note(f"not a message: {line[:200].decode('utf-8', 'backslashreplace')}")
            return False
        except RecursionError:
            self._refuse("it sent a message that is nested too deeply")
            return False
        return self._feed(message)

    def _count(self, spent: float) -> None:
        """Hold a server back that says more than anybody asked it."""
        now = self._loop.time()
        if now - self._since >= 1.0:
            self._since, self._unasked, self._spent = now, 0, 0.0
        self._unasked += 1
        self._spent += spent
        if self._unasked >= UNASKED or self._spent >= BUSY:
            self._held = True
            self._loop.remove_reader(self.process.stdout)
            self._loop.call_later(max(self._since + 1.0 - now, self._spent / BUSY - 1.0), self._again)

    def _again(self) -> None:
        self._held = False
        if not self._over and self.process.stdout >= 0:
            self._lines()
            if not self._held:
                self._loop.add_reader(self.process.stdout, self._read)

    def _hear(self) -> None:
        for _ in range(_PARTS):
            if self.process.stderr < 0:
                return
            try:
                part = os.read(self.process.stderr, 1 << 16)
            except BlockingIOError:
                return
            except OSError:
                part = b""
            if not part:
                self._loop.remove_reader(self.process.stderr)
                return
            self._words.add(part)

    def _refuse(self, reason: str) -> None:
        self._end(reason)
        self._processes.stop(self.process, now=True)

    def _end(self, reason: str) -> None:
        if not self._over:
            self._over = True
            self._lose(reason)

    def _drop(self) -> None:
        """Watch the streams no longer, but for the standard error while it says something."""
        if self.process.stdout >= 0:
            self._loop.remove_reader(self.process.stdout)
        if self.process.stdin >= 0:
            self._loop.remove_writer(self.process.stdin)
        if self.process.ended.is_set() and self.process.stderr >= 0:
            self._loop.remove_reader(self.process.stderr)
