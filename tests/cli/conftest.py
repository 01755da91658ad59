"""A workspace of its own, the command line in this process, and a person at a terminal."""

from __future__ import annotations

import json
import os
import pty
import select
import termios
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from projects import SETTINGS

from packhost.cli import terminal
from packhost.cli.run import run

PATIENCE = 20.0
DAY = 86_400.0


@dataclass(frozen=True)
class Ran:
    """What one command line came to."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON document on stdout."""
        return json.loads(self.out)


Command = Callable[..., Ran]


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder without packhost.yaml as the working directory, a private state, and no terminal."""
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    (project / "README.md").write_text("# A project\n")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in terminal.AGENT_SHELLS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(terminal, "DEVICE", str(tmp_path / "no-terminal"))
    monkeypatch.chdir(project)
    return project


@pytest.fixture
def packhost(empty: Path, capfd: pytest.CaptureFixture[str]) -> Command:
    """Runs a command line in this process."""

    def command(*words: str) -> Ran:
        capfd.readouterr()
        status = run(words)
        out, err = capfd.readouterr()
        return Ran(status, out, err)

    return command


@pytest.fixture
def workspace(empty: Path, packhost: Command) -> Path:
    """A workspace whose writes below `src/` are asked first, with a scripted model; accepted."""
    (empty / "packhost.yaml").write_text(SETTINGS)
    assert packhost("accept", "--yes").status == 0
    return empty


@dataclass
class Person:
    """Somebody at a terminal: waits until it shows a text, then types a line."""

    answers: list[tuple[str, str]]
    master: int
    seen: str = ""
    unread: str = ""
    ended: threading.Event = field(default_factory=threading.Event)

    def sit(self) -> None:
        """Read the terminal until the command is over, and answer in order."""
        while not self.ended.is_set():
            if not select.select([self.master], [], [], 0.02)[0]:
                continue
            piece = os.read(self.master, 4096).decode("utf-8", "replace").replace("\r\n", "\n")
            self.seen += piece
            self.unread += piece
            while self.answers and self.answers[0][0] in self.unread:
                expected, answer = self.answers.pop(0)
                self.unread = self.unread.split(expected, 1)[1]
                os.write(self.master, answer.encode())


@pytest.fixture
def person(monkeypatch: pytest.MonkeyPatch, empty: Path) -> Iterator[Callable[..., Person]]:
    """Seats a person at `/dev/tty` who gives these answers: pairs of what is shown and what is typed."""
    seated: list[tuple[Person, threading.Thread, int]] = []

    def seat(*answers: tuple[str, str]) -> Person:
        master, slave = pty.openpty()
        attributes = termios.tcgetattr(slave)
        attributes[3] &= ~termios.ECHO
        termios.tcsetattr(slave, termios.TCSANOW, attributes)
        monkeypatch.setattr(terminal, "DEVICE", os.ttyname(slave))
        someone = Person(list(answers), master)
        thread = threading.Thread(target=someone.sit, daemon=True)
        thread.start()
        seated.append((someone, thread, slave))
        return someone

    yield seat
    for someone, thread, slave in seated:
        someone.ended.set()
        thread.join(PATIENCE)
        os.close(slave)
        os.close(someone.master)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the wall clock back by so many seconds."""
    real = time.time

    def back(seconds: float) -> None:
        monkeypatch.setattr(time, "time", lambda: real() - seconds)

    return back


@pytest.fixture
def aged(workspace: Path, packhost: Callable[..., Any], clock: Callable[[float], None]) -> Path:
    """A workspace with two calls of three days ago on record, and one of now."""
    for days in (3, 3, 0):
        clock(days * DAY)
        assert packhost("call", "workspace:read_file", '{"path": "README.md"}').status == 0
    return workspace
