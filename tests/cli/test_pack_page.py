"""The pack of the page on packs can be accepted and called, and its tools do what the page says."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "writing-a-pack.md").read_text(encoding="utf-8")
EXAMPLES = dict(re.findall(r"<!-- example: (\S+) -->\n```\w+\n(.*?)```", PAGE, re.S))


@pytest.fixture
def pack(empty: Path, packhost: Callable[..., Any]) -> Path:
    """The page's workspace, accepted."""
    (empty / "packs/notes").mkdir(parents=True)
    for name, text in EXAMPLES.items():
        if name != "console":
            (empty / name).write_text(text)
    assert packhost("accept", "--yes").status == 0
    return empty


def test_a_call_of_the_page_prints_what_it_says(pack: Path, packhost: Callable[..., Any]) -> None:
    (pack / "notes").mkdir()
    (pack / "notes/first.md").write_text("one\ntwo\n")
    line, _, expected = EXAMPLES["console"].partition("\n")
    ran = packhost(*line.removeprefix("$ packhost ").split())
    assert (ran.status, ran.out) == (0, expected)


def test_a_person_is_asked_and_the_handler_writes(
    pack: Path, packhost: Callable[..., Any], person: Callable[..., Any]
) -> None:
    someone = person(("Approve?", "yes\n"))
    assert packhost("call", "notes:add", '{"path": "notes/a.md", "text": "Hello."}').status == 0
    assert "Keep a note" in someone.seen
    assert (pack / "notes/a.md").read_text() == "Hello.\n"


def test_a_handlers_own_error_is_told_as_it_stands(pack: Path, packhost: Callable[..., Any]) -> None:
    ran = packhost("call", "notes:count", '{"path": "notes/none.md"}', "--json")
    assert (ran.status, ran.json["refusal"]["code"]) == (1, "TOOL_FAILED")
    assert ran.json["refusal"]["message"] == "there is no such note"
    assert ran.json["refusal"]["next"] == "add a line to it first"
