"""The inbox of approvals at a terminal: a list, what the selected one would do, and keys to answer it.

What is selected is an approval, not a line, so that one that comes meanwhile moves nothing under a finger.
Nothing is approved by one key alone: the question whether to stands beside what would run.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import termios
import time
import tty
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final, Literal

import anyio
from rich.console import Console, Group
from rich.live import Live
from rich.rule import Rule
from rich.text import Text

from packhost.cli.answering import Answering
from packhost.cli.reaching import Pending
from packhost.cli.times import left
from packhost.errors import PackhostError
from packhost.gate.display import label, visible

Mode = Literal["list", "confirm", "help"]
_TICK: Final = 1.0
_QUIET: Final = 0.3
"""Seconds after a question came up in which no key answers it: it may have been meant for something else."""
_KEYS: Final = {
    "\x1b[A": "up", "\x1bOA": "up", "k": "up",
    "\x1b[B": "down", "\x1bOB": "down", "j": "down",
    "\x1b[5~": "back", "b": "back", "\x1b[6~": "on", " ": "on",
    "\x1b[H": "first", "g": "first", "\x1b[F": "last", "G": "last",
    "a": "allow", "A": "always", "d": "deny", "y": "yes", "n": "no", "\x1b": "no",
    "?": "help", "h": "help", "q": "quit", "\x03": "quit", "\x04": "quit", "r": "look",
}  # fmt: skip
HELP: Final = """\
 ↑ ↓ j k        select            space b        page the text
 g G            first, last       r              look again
 a              allow once        A              always allow such calls, narrowed
 d              deny, with a reason
 ?              this help         q Ctrl-C       leave; nothing is decided by leaving"""


class Inbox:
    """What is shown; drawing it changes nothing."""

    def __init__(self, *, asks: bool) -> None:
        self.rows: list[dict[str, Any]] = []
        self.selected: str | None = None
        self.mode: Mode = "list"
        self.since = 0.0
        """When a question of ours came up."""
        self.said = ""
        self.scroll = 0
        self.runs = True
        self._asks = asks

    @property
    def row(self) -> dict[str, Any] | None:
        """The approval that is selected."""
        return next((row for row in self.rows if row["id"] == self.selected), None)

    def take(self, rows: list[dict[str, Any]], runs: bool) -> None:
        """Take over what waits now."""
        before = [row["id"] for row in self.rows]
        self.rows, self.runs = rows, runs
        if self.row is None:
            at = before.index(self.selected) if self.selected in before else 0
            self.selected = rows[min(at, len(rows) - 1)]["id"] if rows else None
            self.scroll = 0
            if self.mode == "confirm":
                self.mode, self.said = "list", "it was decided elsewhere, or its time is over"

    def move(self, key: str) -> None:
        """Select another one, or page its text."""
        if key in ("on", "back"):
            self.scroll = max(0, self.scroll + (10 if key == "on" else -10))
            return
        ids = [row["id"] for row in self.rows]
        if not ids:
            return
        at = ids.index(self.selected) if self.selected in ids else 0
        to = {"up": at - 1, "down": at + 1, "first": 0, "last": len(ids) - 1}[key]
        self.selected, self.scroll = ids[max(0, min(to, len(ids) - 1))], 0

    def draw(self, width: int, height: int, now: float) -> Group:
        """The screen."""
        listed = max(1, min(len(self.rows), height // 3))
        parts: list[Any] = [self._title(width), *self._list(listed, width, now), Rule(style="dim")]
        room = max(1, height - len(parts) - 3)
        if self.mode == "help":
            parts.append(Text(HELP))
        elif self.row is not None:
            parts += self._text(self.row, room, width)
        parts += [Rule(style="dim"), self._foot(width)]
        return Group(*parts)

    def _title(self, width: int) -> Text:
        many = len(self.rows)
        waits = "nothing waits" if not many else "1 waits" if many == 1 else f"{many} wait"
        host = "" if self.runs else " · no host runs just now"
        return Text(label(f"packhost approvals: {waits} for a person{host}", width), style="bold")

    def _list(self, room: int, width: int, now: float) -> Iterator[Text]:
        ids = [row["id"] for row in self.rows]
        at = ids.index(self.selected) if self.selected in ids else 0
        start = max(0, min(at - room // 2, len(self.rows) - room))
        for row in self.rows[start : start + room]:
            chosen = row["id"] == self.selected
            line = f"{'▶' if chosen else ' '} {row['tool']}  {label(row['client'], 30)}  "
            line += f"in {left(row['expires_at'] - now)}"
            line += "  operator" if row["assurance"] == "operator" else ""
            yield Text(label(line, width), style="reverse" if chosen else "", no_wrap=True)

    def _text(self, row: dict[str, Any], room: int, width: int) -> list[Text]:
        lines = [piece for line in visible(row["prompt"]).split("\n") for piece in _folded(line, width)]
        self.scroll = min(self.scroll, max(0, len(lines) - room))
        shown = lines[self.scroll : self.scroll + room]
        if len(lines) > self.scroll + room:
            more = len(lines) - self.scroll - room + 1
            shown[-1] = Text(f"… {more} more lines: space", style="dim")
        return shown

    def _foot(self, width: int) -> Text:
        if self.mode == "confirm":
            return Text("Allow exactly this call, once?  y yes · n no", style="bold yellow")
        if self.said:
            return Text(label(self.said, width), style="yellow")
        if not self._asks:
            return Text("↑↓ select · space page · ? help · q leave (an agent's shell decides nothing)")
        return Text(
            label("a allow once · A always · d deny · ↑↓ select · space page · ? help · q leave", width)
        )


def _folded(line: str, width: int) -> list[Text]:
    style = "green" if line.startswith("  | +") else "red" if line.startswith("  | -") else ""
    pieces = [line[at : at + width] for at in range(0, len(line), width)] or [""]
    return [Text(piece, style=style, no_wrap=True) for piece in pieces]


class Keys:
    """The keys of the terminal, one by one, not shown while they are typed."""

    def __init__(self) -> None:
        self._fd = sys.stdin.fileno()
        self._before = termios.tcgetattr(self._fd)

    @contextlib.contextmanager
    def raw(self) -> Iterator[None]:
        """Read keys as they are pressed."""
        tty.setcbreak(self._fd, termios.TCSANOW)
        try:
            yield
        finally:
            termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)

    def forget(self) -> None:
        """What was typed before a question was shown is no answer to it."""
        termios.tcflush(self._fd, termios.TCIFLUSH)

    async def pressed(self) -> AsyncIterator[str]:
        """What is pressed; ends with the terminal."""
        while True:
            await anyio.wait_readable(self._fd)
            read = os.read(self._fd, 64).decode("utf-8", "replace")
            if not read:
                return
            if read in _KEYS or read.startswith("\x1b"):
                yield _KEYS.get(read, "")
                continue
            for one in read:
                yield _KEYS.get(one, "")


class _Screen:
    """Draws the inbox and does what keys say."""

    def __init__(self, pending: Pending, *, bell: bool, asks: bool) -> None:
        self.pending = pending
        self.inbox = Inbox(asks=asks)
        self._bell = bell
        self._answering = Answering(pending.host)
        self._keys = Keys()
        self._console = Console(file=sys.stdout, highlight=False)
        self._live = Live(console=self._console, screen=True, auto_refresh=False)
        self._away = False

    def draw(self) -> None:
        """Show the inbox as it is."""
        if not self._away:
            width, height = self._console.size
            self._live.update(self.inbox.draw(width, height, time.time()), refresh=True)

    async def follow(self) -> None:
        """Show what comes."""
        first = True
        async for changed in self.pending.follow():
            self.inbox.take(list(self.pending.rows.values()), self.pending.host.runs)
            if self._bell and not first and any(row["status"] == "pending" for row in changed):
                os.write(self._console.file.fileno(), b"\a")
            first = False
            self.draw()

    async def tick(self) -> None:
        """Let the time that is left go down."""
        while True:
            await anyio.sleep(_TICK)
            self.draw()

    async def resize(self) -> None:
        """Draw anew when the terminal has another size."""
        with anyio.open_signal_receiver(signal.SIGWINCH) as signals:
            async for _ in signals:
                self.draw()

    async def obey(self) -> None:
        """Do what the keys say until it is to leave."""
        async for key in self._keys.pressed():
            if key == "quit":
                return
            await self._do(key)
            self.draw()

    async def _do(self, key: str) -> None:
        inbox = self.inbox
        if inbox.mode == "confirm":
            if key == "yes" and time.monotonic() - inbox.since > _QUIET:
                inbox.mode = "list"
                await self._answer("allow")
            elif key in ("on", "back"):
                inbox.move(key)
            elif key == "no":
                inbox.mode = "list"
            return
        inbox.said = ""
        if key in ("up", "down", "first", "last", "on", "back"):
            inbox.move(key)
        elif key == "help":
            inbox.mode = "list" if inbox.mode == "help" else "help"
        elif key == "no":
            inbox.mode = "list"
        elif key == "look":
            await self.pending.look()
            inbox.take(list(self.pending.rows.values()), self.pending.host.runs)
        elif key in ("allow", "always", "deny") and inbox.row is not None:
            await self._begin(key)

    async def _begin(self, key: str) -> None:
        if (why := self._answering.refused()) is not None:
            self.inbox.said = why
        elif key == "allow":
            self._keys.forget()
            self.inbox.mode, self.inbox.since, self.inbox.scroll = "confirm", time.monotonic(), 0
        else:
            await self._answer(key)

    async def _answer(self, what: str) -> None:
        """Answer the selected one; what has to be typed is asked below a screen that stands still."""
        row = self.inbox.row
        if row is None:
            return
        try:
            if what == "allow" and not await self._answering.needs_passphrase():
                self.inbox.said = await self._answering.allow(row)
            else:
                with self._aside():
                    self.inbox.said = await self._answering.ask(row, what)
        except PackhostError as error:
            self.inbox.said = f"{error.message}; {error.hint}" if error.hint else error.message
        await self.pending.look()
        self.inbox.take(list(self.pending.rows.values()), self.pending.host.runs)

    @contextlib.contextmanager
    def _aside(self) -> Iterator[None]:
        """Give the terminal back to lines while a person types some."""
        self._away = True
        self._live.stop()
        termios.tcsetattr(self._keys._fd, termios.TCSADRAIN, self._keys._before)
        try:
            yield
        finally:
            tty.setcbreak(self._keys._fd, termios.TCSANOW)
            self._live.start()
            self._away = False

    async def run(self) -> None:
        """Until the person leaves."""
        with self._keys.raw(), self._live:
            async with anyio.create_task_group() as tasks:
                for task in (self.follow, self.tick, self.resize):
                    tasks.start_soon(task)
                await self.obey()
                tasks.cancel_scope.cancel()


async def show(pending: Pending, *, bell: bool, asks: bool) -> None:
    """Show the inbox until the person leaves it."""
    await _Screen(pending, bell=bell, asks=asks).run()
