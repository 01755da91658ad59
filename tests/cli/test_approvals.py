"""Answers at the command line: a person's, at a terminal; a late one counts and is used once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from packhost.cli.watching import line_of

WRITE = ("call", "workspace:write_file", '{"path": "src/a.txt", "content": "hello\\n"}')


@pytest.fixture
def pending(workspace: Path, packhost: Callable[..., Any]) -> str:
    """The approval that a call waits for."""
    return str(packhost(*WRITE, "--json").json["refusal"]["approval_id"])


def test_an_approval_given_elsewhere_lets_the_identical_call_run_once(
    pending: str,
    workspace: Path,
    packhost: Callable[..., Any],
    person: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    someone = person(("Approve?", "yes\n"))
    assert packhost("approvals", "approve", pending).status == 0
    assert "src/a.txt" in someone.seen
    monkeypatch.setattr("packhost.cli.terminal.DEVICE", str(tmp_path / "no-terminal"))
    assert packhost(*WRITE).status == 0
    assert (workspace / "src/a.txt").read_text() == "hello\n"
    assert packhost(*WRITE).status == 4


def test_without_a_terminal_nothing_is_approved(pending: str, packhost: Callable[..., Any]) -> None:
    assert packhost("approvals", "approve", pending).status == 2
    assert packhost("approvals", "show", pending, "--json").json["status"] == "pending"


def test_what_others_wrote_steers_no_terminal(pending: str, packhost: Callable[..., Any]) -> None:
    hostile = "no\x1b]52;c;aGk=\x07\r\u202e\n09:00:00 ap_x approved by ann"
    packhost("approvals", "deny", pending, "--reason", hostile)
    row = packhost("approvals", "show", pending, "--json").json
    refused = packhost("approvals", "deny", f"{pending}\x1b[2J")
    for text in (line_of(row), packhost("approvals", "show", pending).out, refused.err):
        assert not {"\x1b", "\x07", "\r", "\u202e"} & set(text), text
    assert "\n" not in line_of(row)
    assert "\\u001b[2J" in refused.err


@pytest.mark.parametrize("name", ["CLAUDECODE", "CURSOR_AGENT"])
def test_an_agents_shell_approves_nothing(
    name: str,
    pending: str,
    packhost: Callable[..., Any],
    person: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    person(("Approve?", "yes\n"))
    monkeypatch.setenv(name, "1")
    ran = packhost("approvals", "approve", pending)
    assert ran.status == 3
    assert "speed bump" in ran.err
    assert packhost("approvals", "show", pending, "--json").json["status"] == "pending"


def test_a_person_who_says_no_there_denies(
    pending: str, packhost: Callable[..., Any], person: Callable[..., Any]
) -> None:
    person(("Approve?", "no\n"))
    assert packhost("approvals", "approve", pending, "--json").status == 3
    assert packhost("approvals", "show", pending, "--json").json["status"] == "denied"


def test_denying_needs_no_terminal_and_keeps_the_reason(pending: str, packhost: Callable[..., Any]) -> None:
    ran = packhost("approvals", "deny", pending, "--reason", "not now", "--json")
    assert (ran.status, ran.json["status"], ran.json["reason"]) == (0, "denied", "not now")


def test_a_second_answer_is_refused(pending: str, packhost: Callable[..., Any]) -> None:
    packhost("approvals", "deny", pending)
    ran = packhost("approvals", "deny", pending, "--json")
    assert (ran.status, ran.json["error"]["code"]) == (3, "APPROVAL_DENIED")


def test_the_question_is_shown_whole(pending: str, packhost: Callable[..., Any]) -> None:
    shown = packhost("approvals", "show", pending).out
    assert "Allow workspace:write_file" in shown
    assert 'path: "src/a.txt"' in shown
    assert "+hello" in shown


def test_the_list_has_what_waits_and_all_when_asked(pending: str, packhost: Callable[..., Any]) -> None:
    assert pending in packhost("approvals", "list").out
    packhost("approvals", "deny", pending)
    assert packhost("approvals", "list").out == "nothing waits for a person\n"
    assert pending in packhost("approvals", "list", "--all").out
    assert pending in packhost("approvals", "list", "--status", "denied").out


def test_an_unknown_approval_is_said_to_be_none(workspace: Path, packhost: Callable[..., Any]) -> None:
    ran = packhost("approvals", "show", "ap_none", "--json")
    assert (ran.status, ran.json["error"]["code"]) == (2, "NOT_FOUND")
