"""The page on the console says what is so: its commands exist, its times are the ones that hold."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from packhost.cli.console import command
from packhost.console import holding, live
from packhost.console.guard import COOKIE
from packhost.control.consoles import LASTS
from packhost.store.ops import consoles

TEXT = (Path(__file__).parents[2] / "docs" / "console.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\$ (packhost console.*)$", TEXT, re.M)
FLAT = " ".join(TEXT.split())


def test_every_command_of_the_page_can_be_given() -> None:
    assert COMMANDS
    for line in COMMANDS:
        words = shlex.split(line)[2:]
        assert command.make_context(line, words, parent=click.Context(command)).args == []


@pytest.mark.parametrize(
    ("said", "seconds", "holds"),
    [
        ("open one session, once, within two minutes", 120, LASTS),
        ("ends after an hour without use", 3_600, consoles.IDLE),
        ("after twelve hours in any case", 12 * 3_600, consoles.LONGEST),
        ("stays unlocked for five minutes after its last use", 300, holding.UNLOCKED),
        ("half an hour at most", 1_800, holding.LONGEST),
        ("a console has 64 of them at most", 64, live.MOST),
    ],
)
def test_a_time_of_the_page_is_the_one_that_holds(said: str, seconds: float, holds: float) -> None:
    assert said in FLAT
    assert seconds == holds


def test_the_cookie_is_what_the_page_says() -> None:
    assert COOKIE.startswith("__Host-")
    assert "`__Host-`, `Secure` and `HttpOnly`" in FLAT
