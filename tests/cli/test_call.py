"""`packhost call`: the same gate, and a person at the terminal where one must agree."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

WRITE = ("call", "workspace:write_file", '{"path": "src/a.txt", "content": "hello\\n"}')
TURN = (
    "call",
    "agent-runtime:execute-turn",
    '{"messages": [{"role": "user", "content": "go"}], "loop": true}',
)


def test_an_allowed_call_prints_its_value_and_the_enforcement(
    workspace: Path, packhost: Callable[..., Any]
) -> None:
    ran = packhost("call", "workspace:read_file", '{"path": "README.md"}', "--json")
    assert ran.status == 0
    assert ran.json["status"] == "completed"
    assert ran.json["value"]["content"] == "# A project\n"
    assert ran.json["enforcement"] == "host"


def test_arguments_come_from_a_file(workspace: Path, packhost: Callable[..., Any]) -> None:
    (workspace / "arguments.json").write_text('{"path": "README.md"}')
    assert packhost("call", "workspace:read_file", "@arguments.json").status == 0


def test_arguments_come_from_standard_input(
    workspace: Path, packhost: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"path": "README.md"}'))
    assert packhost("call", "workspace:read_file", "-").status == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("{", "not JSON"),
        ("[1]", "not a JSON object"),
        ("@missing.json", "cannot be read"),
        ('{"path": 1}', "INVALID_INPUT"),
        ('{"pth": "a"}', "INVALID_INPUT"),
    ],
)
def test_arguments_that_do_not_fit_are_a_usage_error(
    arguments: str, said: str, workspace: Path, packhost: Callable[..., Any]
) -> None:
    ran = packhost("call", "workspace:read_file", arguments)
    assert ran.status == 2
    assert said in ran.err


def test_a_refusal_says_why_and_what_to_do_next(workspace: Path, packhost: Callable[..., Any]) -> None:
    ran = packhost("call", "workspace:write_file", '{"path": "docs/a.txt", "content": ""}')
    assert ran.status == 3
    assert ran.out == ""
    assert "SCOPE_DENIED" in ran.err
    assert "next:" in ran.err


def test_a_refusal_in_json_carries_its_code_and_layer(workspace: Path, packhost: Callable[..., Any]) -> None:
    ran = packhost("call", "workspace:write_file", '{"path": "docs/a.txt", "content": ""}', "--json")
    assert (ran.status, ran.json["status"]) == (3, "refused")
    assert ran.json["refusal"]["code"] == "SCOPE_DENIED"
    assert "bound" in ran.json["refusal"]["layer"]


def test_an_unknown_tool_names_near_ones(workspace: Path, packhost: Callable[..., Any]) -> None:
    ran = packhost("call", "workspace:read_fil", "--json")
    assert ran.status == 2
    assert "read_file" in ran.json["refusal"]["next"]


def test_a_tool_that_fails_has_an_exit_code_of_its_own(workspace: Path, packhost: Callable[..., Any]) -> None:
    ran = packhost("call", "workspace:read_file", '{"path": "missing.txt"}', "--json")
    assert ran.status == 1
    assert ran.json["refusal"]["code"] == "NOT_FOUND"


def test_without_a_terminal_approval_is_required_at_once(
    workspace: Path, packhost: Callable[..., Any]
) -> None:
    ran = packhost(*WRITE, "--json")
    assert ran.status == 4
    assert ran.json["refusal"]["code"] == "APPROVAL_REQUIRED"
    waiting = packhost("approvals", "list", "--json").json["approvals"]
    assert [one["id"] for one in waiting] == [ran.json["refusal"]["approval_id"]]
    assert not (workspace / "src/a.txt").exists()


@pytest.mark.parametrize("name", ["CLAUDECODE", "CURSOR_AGENT"])
def test_an_agents_shell_asks_nobody(
    name: str,
    workspace: Path,
    packhost: Callable[..., Any],
    person: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    someone = person(("Approve?", "yes\n"))
    monkeypatch.setenv(name, "1")
    assert packhost(*WRITE).status == 4
    assert someone.seen == ""


def test_a_person_at_the_terminal_sees_the_diff_and_approves(
    workspace: Path, packhost: Callable[..., Any], person: Callable[..., Any]
) -> None:
    (workspace / "src/a.txt").write_text("bye\n")
    someone = person(("Approve?", "yes\n"))
    ran = packhost(*WRITE, "--json")
    assert (ran.status, ran.json["status"]) == (0, "completed")
    assert (workspace / "src/a.txt").read_text() == "hello\n"
    assert "-bye" in someone.seen
    assert "+hello" in someone.seen
    decided = packhost("approvals", "list", "--all", "--json").json["approvals"][0]
    assert (decided["status"], decided["decided_channel"]) == ("approved", "cli")


def test_a_word_that_is_neither_yes_nor_no_is_asked_again(
    workspace: Path, packhost: Callable[..., Any], person: Callable[..., Any]
) -> None:
    person(("Approve?", "sure\n"), ("Write yes or no", "y\n"))
    assert packhost(*WRITE).status == 0


def test_a_no_is_a_denial_and_nothing_runs(
    workspace: Path, packhost: Callable[..., Any], person: Callable[..., Any]
) -> None:
    person(("Approve?", "no\n"))
    ran = packhost(*WRITE, "--json")
    assert (ran.status, ran.json["refusal"]["code"]) == (3, "APPROVAL_DENIED")
    assert not (workspace / "src/a.txt").exists()
    assert packhost("approvals", "list", "--json").json["approvals"] == []


def test_an_end_of_input_leaves_the_question_open(
    workspace: Path, packhost: Callable[..., Any], person: Callable[..., Any]
) -> None:
    person(("Approve?", "\x04"))
    assert packhost(*WRITE).status == 4
    assert len(packhost("approvals", "list", "--json").json["approvals"]) == 1


def test_what_was_typed_before_the_question_does_not_answer_it(
    workspace: Path, packhost: Callable[..., Any], person: Callable[..., Any]
) -> None:
    someone = person(("Approve?", "no\n"))
    os.write(someone.master, b"yes\n")
    assert packhost(*WRITE).status == 3


def test_what_is_piped_in_does_not_answer(
    workspace: Path, packhost: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("yes\nyes\n"))
    assert packhost(*WRITE).status == 4


def test_what_a_turn_must_ask_is_asked_while_it_runs(
    workspace: Path, packhost: Callable[..., Any], person: Callable[..., Any]
) -> None:
    someone = person(("Approve?", "yes\n"))
    ran = packhost(*TURN, "--json")
    assert ran.status == 0, ran
    assert ran.json["value"]["outcome"] == "completed"
    assert (workspace / "src/turn.txt").read_text() == "turned"
    assert "workspace:write_file" in someone.seen


def test_without_a_terminal_a_turn_is_refused_what_it_must_ask_and_goes_on(
    workspace: Path, packhost: Callable[..., Any]
) -> None:
    ran = packhost(*TURN, "--json")
    assert (ran.status, ran.json["value"]["outcome"]) == (0, "completed")
    assert not (workspace / "src/turn.txt").exists()
    calls = packhost("runs", "show", ran.json["value"]["run_id"], "--json").json
    assert [approval["tool"] for approval in calls["approvals"]] == ["workspace:write_file"]


def test_explaining_a_call_runs_and_records_nothing(workspace: Path, packhost: Callable[..., Any]) -> None:
    before = packhost("audit", "verify", "--json").json["events"]
    ran = packhost("explain", *WRITE[1:], "--json")
    assert (ran.status, ran.json["verdict"]) == (0, "ask")
    assert [step["step"] for step in ran.json["steps"]][:4] == ["resolve", "admit", "cover", "decide"]
    assert not (workspace / "src/a.txt").exists()
    # The session of the command line is opened at its first mention.
    assert packhost("audit", "verify", "--json").json["events"] <= before + 1


def test_explaining_for_people_marks_each_step(workspace: Path, packhost: Callable[..., Any]) -> None:
    ran = packhost("explain", "workspace:write_file", '{"path": "docs/a", "content": ""}')
    assert ran.status == 0
    assert "✓ resolve" in ran.out
    assert "✗ cover" in ran.out


def test_a_prompt_shows_what_hides_as_escapes(
    workspace: Path, packhost: Callable[..., Any], person: Callable[..., Any]
) -> None:
    someone = person(("Approve?", "no\n"))
    arguments = json.dumps({"path": "src/a.txt", "content": "\x1b[2J\u202eevil"})
    packhost("call", "workspace:write_file", arguments)
    assert "\x1b[2J" not in someone.seen
    assert "\\u202e" in someone.seen


def test_protected_paths_are_not_said_to_be_allowed(workspace: Path, packhost: Callable[..., Any]) -> None:
    ran = packhost("call", "workspace:write_file", '{"path": "packhost.yaml", "content": ""}')
    assert "protected: packhost.yaml" in ran.err
    assert "allowed there" not in ran.err


def test_a_file_of_arguments_that_is_not_there_says_what_to_name(
    workspace: Path, packhost: Callable[..., Any]
) -> None:
    ran = packhost("call", "workspace:read_file", "@missing.json", "--json")
    assert (ran.status, ran.json["error"]["next"]) == (2, "name a file of JSON after the `@`")
