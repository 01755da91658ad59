"""The person's own terminal: questions go to `/dev/tty`, and only from there comes an answer.

Whatever is piped into a command can therefore not answer for a person.
"""

from __future__ import annotations

import os
import sys
import termios
from collections.abc import Mapping
from types import TracebackType
from typing import Final, Literal, Self

import anyio

from packhost.errors import PackhostError

DEVICE: Final = "/dev/tty"
AGENT_SHELLS: Final = ("CLAUDECODE", "CURSOR_AGENT")
"""What agents' clients set in the shells that they run commands in."""
_CHUNK: Final = 4096

Verdict = Literal["approve", "deny"]
_WORDS: Final[dict[str, Verdict]] = {"y": "approve", "yes": "approve", "n": "deny", "no": "deny"}


def agents_shell(environ: Mapping[str, str] | None = None) -> str | None:
    """The variable that shows that an agent's client runs this command; `None` in a person's shell."""
    known = os.environ if environ is None else environ
    return next((name for name in AGENT_SHELLS if known.get(name)), None)


def refuse_agents(what: str) -> None:
    """Raise `POLICY_DENIED` in an agent's shell."""
    found = agents_shell()
    if found is not None:
        raise PackhostError(
            f"`{what}` is a person's own act and does not run in an agent's shell (`{found}` is set)",
            code="POLICY_DENIED",
            hint="run it in a terminal of your own; this is a speed bump and no lock, "
            "since a shell that nothing confines can always be talked around it",
        )


def person_at_hand() -> bool:
    """Whether somebody can be asked here: there is a terminal, and no agent's client runs this."""
    if agents_shell() is not None:
        return False
    try:
        os.close(_open())
    except OSError:
        return False
    return True


def _open() -> int:
    return os.open(DEVICE, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)


class Terminal:
    """`/dev/tty`, opened for a question; raises `PackhostError` where there is none."""

    def __init__(self, what: str = "this") -> None:
        try:
            self._fd = _open()
        except OSError:
            raise PackhostError(
                f"{what} needs a person's answer, and there is no terminal to ask at",
                code="INVALID_INPUT",
                hint="run it in a terminal of your own",
            ) from None

    def write(self, text: str) -> None:
        """Show text to the person."""
        # Both go to one screen: what was printed before stands above.
        sys.stdout.flush()
        data = text.encode("utf-8", "replace")
        while data:
            data = data[os.write(self._fd, data) :]

    def line(self, question: str) -> str | None:
        """Ask and wait for a line; `None` at the end of input."""
        self._put(question)
        read = b""
        while not read.endswith(b"\n"):
            piece = os.read(self._fd, _CHUNK)
            if not piece:
                return None
            read += piece
        return _text(read)

    def secret(self, question: str) -> str | None:
        """Ask for something that is not shown while it is typed; `None` at the end of input."""
        before = termios.tcgetattr(self._fd)
        silent = [*before]
        silent[3] = before[3] & ~termios.ECHO
        try:
            termios.tcsetattr(self._fd, termios.TCSAFLUSH, silent)
            self.write(question)
            read = b""
            while not read.endswith(b"\n"):
                piece = os.read(self._fd, _CHUNK)
                if not piece:
                    return None
                read += piece
        finally:
            termios.tcsetattr(self._fd, termios.TCSAFLUSH, before)
            self.write("\n")
        return read[:-1].decode("utf-8", "surrogateescape").removesuffix("\r")

    async def line_async(self, question: str) -> str | None:
        """As `line`, and cancellable."""
        self._put(question)
        read = b""
        while not read.endswith(b"\n"):
            await anyio.wait_readable(self._fd)
            piece = os.read(self._fd, _CHUNK)
            if not piece:
                return None
            read += piece
        return _text(read)

    def decide(self, prompt: str) -> Verdict | None:
        """Show an approval's prompt and wait for yes or no; `None` when the person leaves it open."""
        self.write(f"\n{prompt}\n")
        question = QUESTION
        while (answer := self.line(question)) is not None:
            if answer.lower() in _WORDS:
                return _WORDS[answer.lower()]
            question = AGAIN
        return None

    async def decide_async(self, prompt: str) -> Verdict | None:
        """As `decide`, and cancellable."""
        self.write(f"\n{prompt}\n")
        question = QUESTION
        while (answer := await self.line_async(question)) is not None:
            if answer.lower() in _WORDS:
                return _WORDS[answer.lower()]
            question = AGAIN
        return None

    def confirm(self, question: str) -> bool:
        """A yes or no; anything but a yes is a no."""
        return (self.line(f"{question} [y/N] ") or "").lower() in ("y", "yes")

    def _put(self, question: str) -> None:
        # What was typed before the question was shown is no answer to it.
        termios.tcflush(self._fd, termios.TCIFLUSH)
        self.write(question)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._fd)


QUESTION: Final = "Approve? [yes/no, Ctrl-D leaves it open] "
AGAIN: Final = "Write yes or no: "


def _text(read: bytes) -> str:
    return read.decode("utf-8", "replace").strip()
