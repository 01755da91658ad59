"""A program at a terminal: keys go in, and the screen can be read as a person would see it."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any

import pexpect
import pyte

ROWS, COLUMNS = 32, 100
UP, DOWN = "\x1b[A", "\x1b[B"


class Screen:
    """One program, and what it shows."""

    def __init__(self, command: list[str], folder: Any, environment: dict[str, str]) -> None:
        self._screen = pyte.Screen(COLUMNS, ROWS)
        self._stream = pyte.Stream(self._screen)
        self.heard = ""
        self.child = pexpect.spawn(
            command[0],
            command[1:],
            cwd=str(folder),
            env={**environment, "TERM": "xterm-256color"},
            dimensions=(ROWS, COLUMNS),
            encoding="utf-8",
        )

    def __enter__(self) -> Screen:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            error.add_note(f"the screen showed:\n{self.text}")
        self.child.close(force=True)

    @property
    def text(self) -> str:
        """The screen's lines that are not empty."""
        return "\n".join(line.rstrip() for line in self._screen.display if line.strip())

    def _read(self, seconds: float) -> bool:
        try:
            read = self.child.read_nonblocking(65_536, timeout=seconds)
        except pexpect.TIMEOUT:
            return True
        except pexpect.EOF:
            return False
        self.heard += read
        self._stream.feed(read)
        return True

    def see(self, *texts: str, seconds: float = 20.0) -> str:
        """Wait until all the texts are on the screen; the screen."""
        until = time.monotonic() + seconds
        while not all(text in self.text for text in texts):
            assert time.monotonic() < until, f"the screen does not show {texts}"
            assert self._read(0.1), f"it ended without showing {texts}"
        return self.text

    def press(self, keys: str) -> None:
        """Send keys as a person types them: after what is shown was seen."""
        until = time.monotonic() + 0.4
        while time.monotonic() < until:
            self._read(0.05)
        self.child.send(keys)

    def resize(self, rows: int, columns: int) -> None:
        """Give the terminal another size."""
        self._screen.resize(rows, columns)
        self.child.setwinsize(rows, columns)

    def end(self) -> int:
        """Wait for the end; the exit status."""
        until = time.monotonic() + 20
        while self._read(0.1):
            assert time.monotonic() < until, "it does not end"
        self.child.close()
        return int(self.child.exitstatus if self.child.exitstatus is not None else -1)
