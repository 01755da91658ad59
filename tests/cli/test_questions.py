"""What tools ask of a person, at the command line: read from the person's own terminal and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from packhost.cli.questions import read_field
from packhost.errors import InvalidInput

PACK = """\
packhost: 1
id: desk
version: "1.0"
title: Desk
tools:
  - name: book
    description: Book a seat.
    kind: code
    permission: write
    input_schema:
      type: object
      additionalProperties: false
      required: [flight, seat, count]
      properties:
        flight: {type: string}
        seat: {type: string, enum: [aisle, window]}
        count: {type: integer, minimum: 1, maximum: 9}
        meal: {type: boolean}
        note: {type: string, maxLength: 10}
    config:
      code: "[flight, seat, count, meal, note]"
      elicit:
        message: Which seat, and for how many?
        merge: parameters
        requested_schema:
          type: object
          additionalProperties: false
          required: [seat, count]
          properties:
            seat: {type: string, enum: [aisle, window], title: Seat}
            count: {type: integer, minimum: 1, maximum: 9}
            meal: {type: boolean, description: With a meal}
            note: {type: string, maxLength: 10}
"""
CALL = ("call", "desk:book", '{"flight": "LH 1"}')
ANSWERS = (("Seat", "roof\n"), ("is one of", "aisle\n"), ("count", "two\n"), ("whole number", "2\n"))


@pytest.fixture
def asked(workspace: Path, packhost: Callable[..., Any]) -> str:
    """The question that a call waits for."""
    folder = workspace / "packs" / "desk"
    folder.mkdir(parents=True)
    (folder / "pack.yaml").write_text(PACK)
    settings = workspace / "packhost.yaml"
    settings.write_text(settings.read_text().replace("workspace]", "workspace, {path: packs/desk}]"))
    assert packhost("accept", "--yes").status == 0
    refusal = packhost(*CALL, "--json").json["refusal"]
    assert refusal["code"] == "APPROVAL_REQUIRED", refusal
    return str(refusal["question_id"])


def test_what_is_typed_at_the_terminal_goes_to_the_call_that_asked(
    asked: str, packhost: Callable[..., Any], person: Callable[..., Any]
) -> None:
    someone = person(*ANSWERS, ("With a meal", "yes\n"), ("note", "\n"))
    assert packhost("questions", "answer", asked).status == 0
    assert "desk:book asks for your input" in someone.seen
    shown = packhost("questions", "show", asked, "--json").json
    assert (shown["status"], shown["channel"]) == ("accepted", "cli")
    made = packhost(*CALL, "--json").json
    assert made["value"] == ["LH 1", "aisle", 2, True, None]


@pytest.mark.usefixtures("asked")
def test_a_call_at_the_command_line_asks_at_its_terminal_and_goes_on(
    packhost: Callable[..., Any], person: Callable[..., Any]
) -> None:
    person(*ANSWERS, ("With a meal", "\n"), ("note", "window side\n"))
    refused = packhost(*CALL, "--json")
    assert refused.status == 2
    assert "does not fit" in refused.out
    person(("Seat", "window\n"), ("count", "1\n"), ("With a meal", "\n"), ("note", "near\n"))
    made = packhost(*CALL, "--json").json
    assert made["value"] == ["LH 1", "window", 1, None, "near"]


def test_questions_that_wait_are_listed(asked: str, packhost: Callable[..., Any]) -> None:
    (row,) = packhost("questions", "list", "--json").json["questions"]
    assert (row["id"], row["tool"]) == (asked, "desk:book")
    assert asked in packhost("questions", "list").out


def test_without_a_terminal_nothing_is_answered(
    asked: str, packhost: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("packhost.cli.terminal.DEVICE", str(tmp_path / "no-terminal"))
    assert packhost("questions", "answer", asked).status == 2
    assert packhost("questions", "show", asked, "--json").json["status"] == "pending"


@pytest.mark.parametrize("name", ["CLAUDECODE", "CURSOR_AGENT"])
def test_an_agents_shell_answers_nothing(
    name: str, asked: str, packhost: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "1")
    refused = packhost("questions", "answer", asked)
    assert refused.status != 0
    assert "person's own act" in refused.err
    assert packhost("questions", "show", asked, "--json").json["status"] == "pending"


def test_declining_needs_no_terminal_and_ends_the_question(asked: str, packhost: Callable[..., Any]) -> None:
    assert packhost("questions", "decline", asked).status == 0
    assert packhost("questions", "show", asked, "--json").json["status"] == "declined"
    assert packhost(*CALL, "--json").json["refusal"]["question_id"] != asked


@pytest.mark.parametrize(
    ("field", "line", "value"),
    [
        ({"type": "boolean"}, "YES", True),
        ({"type": "boolean"}, "n", False),
        ({"type": "integer"}, "-3", -3),
        ({"type": "number"}, "2", 2),
        ({"type": "number"}, "2.5e1", 25.0),
        ({"type": "string"}, "7", "7"),
        ({"type": "string", "enum": ["a"]}, "a", "a"),
    ],
)
def test_a_typed_line_is_the_fields_value(field: Any, line: str, value: Any) -> None:
    read = read_field("x", field, line)
    assert (read, type(read)) == (value, type(value))


@pytest.mark.parametrize(
    ("field", "line"),
    [
        ({"type": "boolean"}, "maybe"),
        ({"type": "integer"}, "2.0"),
        ({"type": "integer"}, "1_000"),
        ({"type": "integer"}, "٣"),
        ({"type": "integer"}, "9" * 301),
        ({"type": "number"}, "nan"),
        ({"type": "number"}, "0x1"),
        ({"type": "string", "enum": ["a"]}, "b"),
    ],
)
def test_a_line_that_is_no_such_value_is_told(field: Any, line: str) -> None:
    with pytest.raises(InvalidInput):
        read_field("x", field, line)
