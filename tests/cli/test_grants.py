"""Always allow at the command line: seen, narrowed, listed, taken back, and proposed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Packhost = Callable[..., Any]
Seat = Callable[..., Any]
TOOL = "workspace:write_file"


def call(packhost: Packhost, path: str, content: str) -> Any:
    return packhost("call", TOOL, json.dumps({"path": path, "content": content}), "--json")


def wanting(packhost: Packhost, path: str, content: str) -> str:
    return str(call(packhost, path, content).json["refusal"]["approval_id"])


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[], None]:
    """Nobody sits at the terminal any more."""
    return lambda: monkeypatch.setattr("packhost.cli.terminal.DEVICE", str(tmp_path / "no-terminal"))


def test_always_means_exactly_this_call_unless_it_is_widened(
    workspace: Path, packhost: Packhost, person: Seat, alone: Callable[[], None]
) -> None:
    approval = wanting(packhost, "src/a.txt", "one")
    someone = person(("Approve?", "yes\n"))
    found = packhost("approvals", "approve", approval, "--always", "--json")
    assert found.status == 0, found.err
    assert 'path: exactly "src/a.txt"' in someone.seen
    alone()
    assert call(packhost, "src/a.txt", "one").status == 0
    assert call(packhost, "src/a.txt", "one").status == 0
    assert call(packhost, "src/a.txt", "two").status == 4
    assert call(packhost, "src/b.txt", "one").status == 4


def test_a_folder_and_any_content_can_be_allowed_for_a_time_and_so_often(
    workspace: Path, packhost: Packhost, person: Seat, alone: Callable[[], None]
) -> None:
    approval = wanting(packhost, "src/a.txt", "one")
    someone = person(("Approve?", "yes\n"))
    more = ("--only", "path=src/**", "--any", "content", "--expires", "30d", "--uses", "2")
    found = packhost("approvals", "approve", approval, "--always", *more, "--json")
    assert found.status == 0, found.err
    assert "any path below" in someone.seen
    assert "Mind: `content` may be anything" in someone.seen
    alone()
    assert [call(packhost, f"src/{n}.txt", "x").status for n in range(3)] == [0, 0, 4]
    listed = packhost("grants", "list", "--all", "--json").json["grants"]
    assert [(each["state"], each["uses"], each["max_uses"]) for each in listed] == [("used up", 2, 2)]


def test_a_grant_that_is_revoked_ends_at_once(
    workspace: Path, packhost: Packhost, person: Seat, alone: Callable[[], None]
) -> None:
    approval = wanting(packhost, "src/a.txt", "one")
    person(("Approve?", "yes\n"))
    grant = packhost("approvals", "approve", approval, "--always", "--json").json["grant"]
    alone()
    assert [call(packhost, "src/a.txt", "one").status for _ in range(2)] == [0, 0]
    assert packhost("grants", "show", grant, "--json").json["uses"] == 1  # the approval itself came first
    assert packhost("grants", "revoke", grant).status == 0
    assert call(packhost, "src/a.txt", "one").status == 4
    assert packhost("grants", "show", grant, "--json").json["state"] == "revoked"
    assert packhost("grants", "list").out == "nothing is allowed for good\n"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--only", "content=*"), "only paths take a pattern"),
        (("--only", "path=docs/**"), "does not cover the call itself"),
        (("--only", "path"), "no pattern"),
        (("--any", "mode"), "no argument"),
    ],
)
def test_a_pattern_that_does_not_fit_grants_nothing(
    more: tuple[str, ...], said: str, workspace: Path, packhost: Packhost, person: Seat, alone: Any
) -> None:
    approval = wanting(packhost, "src/a.txt", "one")
    person(("Approve?", "yes\n"))
    ran = packhost("approvals", "approve", approval, "--always", *more)
    assert ran.status == 2
    assert said in ran.err
    assert packhost("grants", "list", "--all", "--json").json["grants"] == []
    assert packhost("approvals", "show", approval, "--json").json["status"] == "pending"


def test_patterns_without_always_are_a_mistake(workspace: Path, packhost: Packhost) -> None:
    assert packhost("approvals", "approve", "ap_x", "--expires", "1d").status == 2


def test_where_always_allow_is_off_nothing_is_granted_and_what_was_is_void(
    workspace: Path, packhost: Packhost, person: Seat, alone: Callable[[], None]
) -> None:
    approval = wanting(packhost, "src/a.txt", "one")
    person(("Approve?", "yes\n"))
    grant = packhost("approvals", "approve", approval, "--always", "--json").json["grant"]
    config = workspace / "packhost.yaml"
    config.write_text(config.read_text() + "approvals: {always_allow: false}\n")
    assert packhost("accept", "--yes").status == 0
    alone()
    assert packhost("grants", "show", grant, "--json").json["state"] == "void"
    assert call(packhost, "src/a.txt", "one").status == 0  # the approval
    assert call(packhost, "src/a.txt", "one").status == 4
    approval = wanting(packhost, "src/b.txt", "one")
    person(("Approve?", "yes\n"))
    ran = packhost("approvals", "approve", approval, "--always")
    assert ran.status == 3
    assert "always_allow" in ran.err


def approve(packhost: Packhost, person: Seat, alone: Any, path: str, content: str) -> None:
    alone()
    approval = wanting(packhost, path, content)
    person(("Approve?", "yes\n"))
    assert packhost("approvals", "approve", approval).status == 0
    alone()
    assert call(packhost, path, content).status == 0


def test_a_habit_is_proposed_and_a_person_takes_it_up(
    workspace: Path, packhost: Packhost, person: Seat, alone: Callable[[], None]
) -> None:
    for number in range(3):
        approve(packhost, person, alone, f"src/{number}.txt", str(number))
    (proposal,) = packhost("grants", "propose", "--json").json["proposals"]
    assert proposal["match"] == {"path": {"glob": "src/**"}, "content": {"any": True}}
    assert proposal["also"]["count"] == 0
    waiting = wanting(packhost, "src/x.txt", "x")
    assert proposal["id"] in packhost("approvals", "show", waiting).out
    assert "packhost grants accept" in packhost("grants", "propose").out

    assert packhost("grants", "accept", proposal["id"]).status == 2  # nobody at the terminal
    person(("Always allow this?", "y\n"))
    made = packhost("grants", "accept", proposal["id"], "--expires", "1d", "--json")
    assert made.status == 0, made.err
    alone()
    assert call(packhost, "src/new.txt", "y").status == 0
    assert packhost("grants", "propose", "--json").json["proposals"] == []


def test_a_proposal_can_be_narrowed_and_says_what_else_it_would_have_allowed(
    workspace: Path, packhost: Packhost, person: Seat, alone: Callable[[], None]
) -> None:
    for number in range(3):
        approve(packhost, person, alone, f"src/{number}/a.txt", str(number))
    (proposal,) = packhost("grants", "propose", "--json").json["proposals"]
    person(("Always allow this?", "y\n"))
    only = ("--only", "path=src/0/**")
    assert packhost("grants", "accept", proposal["id"], *only, "--json").status == 0
    alone()
    assert call(packhost, "src/0/b.txt", "y").status == 0
    assert call(packhost, "src/1/b.txt", "y").status == 4
    (again,) = packhost("grants", "propose", "--json").json["proposals"]
    assert again["also"]["count"] == 1
    assert again["also"]["calls"][0]["arguments"]["path"] == "src/0/b.txt"


def test_an_agents_shell_grants_nothing(workspace: Path, packhost: Packhost, monkeypatch: Any) -> None:
    monkeypatch.setenv("CLAUDECODE", "1")
    assert packhost("grants", "accept", "gp_x").status == 3


def test_two_approvers_are_two_people_and_one_at_the_terminal_is_one(
    workspace: Path, packhost: Packhost, person: Seat, alone: Callable[[], None]
) -> None:
    config = workspace / "packhost.yaml"
    config.write_text(config.read_text().replace("    decide: ask\n", "    decide: ask\n    approvers: 2\n"))
    assert packhost("accept", "--yes").status == 0
    approval = wanting(packhost, "src/a.txt", "one")
    someone = person(("Approve?", "yes\n"))
    ran = packhost("approvals", "approve", approval)
    assert ran.status == 3
    assert "2 different people" in someone.seen
    assert "1 of 2 people" in ran.out
    person(("Approve?", "yes\n"))
    ran = packhost("approvals", "approve", approval)
    assert ran.status == 4
    assert "another person must agree" in ran.err
    ran = packhost("approvals", "approve", approval, "--always")
    assert ran.status == 3
    alone()
    assert call(packhost, "src/a.txt", "one").status == 4


def test_a_named_approval_that_the_workspace_raises_needs_the_operator(
    workspace: Path, packhost: Packhost, person: Seat, alone: Callable[[], None]
) -> None:
    config = workspace / "packhost.yaml"
    config.write_text(
        config.read_text() + "approvals: {named: {'agent-runtime:remote_control': {assurance: operator}}}\n"
    )
    assert packhost("accept", "--yes").status == 0
    ran = packhost("call", "agent-runtime:pause_turn", '{"run_id": "run_x"}', "--json")
    approval = ran.json["refusal"]["approval_id"]
    shown = packhost("approvals", "show", approval)
    assert "an operator's passphrase" in shown.out
    person(("Approve?", "yes\n"))
    ran = packhost("approvals", "approve", approval)
    assert ran.status == 3
    assert "packhost operator set" in ran.err


def test_always_for_a_question_that_was_answered_grants_nothing_and_says_so(
    workspace: Path, packhost: Packhost
) -> None:
    approval = wanting(packhost, "src/a.txt", "one")
    packhost("approvals", "deny", approval)
    ran = packhost("approvals", "approve", approval, "--always", "--json")
    assert ran.status == 2
    assert "is denied already, so nothing was allowed for good" in ran.json["error"]["message"]
    assert packhost("grants", "list", "--json").json["grants"] == []


def test_a_question_says_in_words_how_long_a_grant_holds(
    workspace: Path, packhost: Packhost, person: Seat
) -> None:
    approval = wanting(packhost, "src/a.txt", "one")
    someone = person(("Approve?", "no\n"))
    packhost("approvals", "approve", approval, "--always", "--expires", "30d")
    assert "It holds for 30 days;" in someone.seen
