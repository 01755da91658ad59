"""The page on approvals says what is so: its commands exist, and its prompt is the one that people see."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest

from packhost.cli.root import packhost
from packhost.gate.prompt import Question
from packhost.rules.approvals import ASKS_WITHIN_TIMEOUT
from packhost.rules.policy import Reason
from packhost.rules.proposals import LEAST
from packhost.workspace import operator
from packhost.workspace.config import load_settings

PAGE = Path(__file__).parents[2] / "docs" / "approvals.md"
TEXT = PAGE.read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", TEXT, re.DOTALL)
COMMANDS = [line[2:] for kind, block in BLOCKS if kind == "console" for line in block.splitlines()]
MENTIONED = re.findall(r"`packhost ([a-z]+(?: [a-z]+)?)`", TEXT)


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_of_the_page_can_be_given(line: str) -> None:
    words = shlex.split(line)
    assert words.pop(0) == "packhost"
    command: click.Command = packhost
    context = click.Context(packhost, info_name="packhost")
    while isinstance(command, click.Group):
        found = command.get_command(context, words.pop(0))
        assert found is not None, line
        command = found
    made = command.make_context(line, words, parent=context)
    assert made.args == []


@pytest.mark.parametrize("words", sorted(set(MENTIONED)))
def test_every_command_that_the_page_names_is_there(words: str) -> None:
    command: Any = packhost
    for word in words.split():
        command = command.get_command(click.Context(packhost), word)
        assert command is not None


def test_the_prompt_of_the_page_is_the_prompt() -> None:
    (shown,) = [block for kind, block in BLOCKS if kind == "text"]
    approval = re.search(r"show (ap_\w+)", shown)
    assert approval is not None
    question = Question(
        approval_id=approval.group(1),
        tool="workspace:write_file",
        tool_version="1.0.0+abc",
        arguments={"path": "src/a.txt", "content": "Good morning.\n"},
        paths={"path"},
        preview="+Good morning.",
        reasons=(Reason("rule", "writes are looked at first (packhost.yaml:17:5)"),),
        approvals=(),
        approvers=1,
        assurance="client",
        client="claude-code",
        principal="ann",
        session="s-1",
        level="guarded",
        run=None,
        expires_in=600.0,
        expires_at=1_800_000_000.0,
    )
    assert question.text() == shown.rstrip("\n")


def test_the_settings_of_the_page_can_be_accepted() -> None:
    (block,) = [block for kind, block in BLOCKS if kind == "yaml"]
    settings = load_settings(f"packhost: 1\npacks: [workspace]\n{block}".encode(), "page", lambda pack: None)
    assert settings.policy[0].assurance == "operator"


def test_the_numbers_of_the_page_are_those_of_the_host() -> None:
    assert "three times within the time-out" in TEXT
    assert ASKS_WITHIN_TIMEOUT == 3
    assert "three or more like approvals" in TEXT.replace("\n", " ")
    assert LEAST == 3
    assert "128 MiB" in TEXT
    assert 128 * operator.COST * operator._BLOCK == 128 * 2**20
