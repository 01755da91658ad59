"""Rules tested by a table, looked at for mistakes, and held against what was called."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CASES = """\
cases:
  - name: reading is free
    tool: workspace:read_file
    arguments: {path: README.md}
    expect: allow
  - name: writes are looked at
    tool: workspace:write_file
    arguments: {path: src/a.py, content: ""}
    expect: ask
    rule: writes are looked at first
  - name: docs stay as they are
    tool: workspace:write_file
    arguments: {path: docs/a.md, content: ""}
    expect: deny
    code: SCOPE_DENIED
  - name: nobody writes at the lowest level
    tool: workspace:write_file
    arguments: {path: src/a.py, content: ""}
    level: observe
    expect: deny
    code: AUTONOMY_DENIED
"""


@pytest.fixture
def cases(workspace: Path) -> Path:
    """A file of cases that all hold."""
    file = workspace / "policy-tests.yaml"
    file.write_text(CASES)
    return file


def line_of(workspace: Path, text: str) -> int:
    """The line of packhost.yaml that holds a text."""
    lines = (workspace / "packhost.yaml").read_text().splitlines()
    return 1 + next(number for number, line in enumerate(lines) if text in line)


def test_cases_that_hold_pass(cases: Path, packhost: Callable[..., Any]) -> None:
    ran = packhost("policy", "test", str(cases))
    assert (ran.status, ran.out) == (0, "4 passed, 0 failed\n")


def test_a_case_that_fails_shows_what_differs_and_the_line_that_decided(
    workspace: Path, cases: Path, packhost: Callable[..., Any]
) -> None:
    cases.write_text(CASES.replace("expect: ask", "expect: allow"))
    ran = packhost("policy", "test", str(cases))
    assert ran.status == 1
    assert "✗ writes are looked at (" in ran.out
    assert f"{cases}:6" in ran.out
    assert "- verdict: allow\n  + verdict: ask\n" in ran.out
    place = f"packhost.yaml:{line_of(workspace, 'match:')}"
    assert f"because {place}" in ran.out
    assert ran.out.endswith("3 passed, 1 failed\n")


@pytest.mark.parametrize(
    ("rule", "status"),
    [("{line}", 0), ("packhost.yaml:{line}", 0), ("looked at", 0), ("999", 1), ("other", 1)],
)
def test_a_case_can_name_the_rule_that_must_decide(
    rule: str, status: int, workspace: Path, cases: Path, packhost: Callable[..., Any]
) -> None:
    wanted = rule.format(line=line_of(workspace, "match:"))
    cases.write_text(CASES.replace("rule: writes are looked at first", f"rule: {wanted}"))
    assert packhost("policy", "test", str(cases)).status == status


def test_programs_read_each_case(cases: Path, packhost: Callable[..., Any]) -> None:
    cases.write_text(CASES.replace("code: AUTONOMY_DENIED", "code: POLICY_DENIED"))
    ran = packhost("policy", "test", str(cases), "--json")
    told = ran.json
    assert (ran.status, told["ok"], told["passed"], told["failed"]) == (1, False, 3, 1)
    assert told["cases"][3]["differences"] == [
        {"what": "code", "expected": "POLICY_DENIED", "actual": "AUTONOMY_DENIED"}
    ]


def test_the_file_is_tested_as_if_it_were_accepted_and_is_not(
    empty: Path, packhost: Callable[..., Any]
) -> None:
    (empty / "packhost.yaml").write_text("packhost: 1\nbound: [path read **, path write docs/**]\n")
    tests = empty / "tests.yaml"
    tests.write_text(
        "cases: [{tool: 'workspace:write_file', arguments: {path: docs/a, content: ''}, expect: allow}]"
    )
    assert packhost("policy", "test", str(tests)).status == 0
    explained = packhost("explain", "workspace:write_file", '{"path": "docs/a", "content": ""}', "--json")
    assert explained.json["verdict"] == "refuse"
    assert not (empty / "packhost.lock").exists()


def test_the_hooks_of_a_pack_from_elsewhere_are_not_run_by_a_test(
    empty: Path, packhost: Callable[..., Any]
) -> None:
    pack = empty / "mine"
    pack.mkdir()
    tool = "{name: go, description: Goes., kind: python, target: 'mine:go', permission: write}"
    (pack / "pack.yaml").write_text(f"packhost: 1\nid: mine\nversion: '1'\ntitle: M\ntools: [{tool}]\n")
    (pack / "mine.py").write_text("open('ran', 'w')\ndef go(context, arguments): return {}\n")
    (empty / "packhost.yaml").write_text("packhost: 1\npacks: [{path: ./mine, trust: true}]\n")
    tests = empty / "tests.yaml"
    tests.write_text("cases: [{tool: 'mine:go', expect: allow}]")
    ran = packhost("policy", "test", str(tests))
    assert (ran.status, ran.err) == (0, "")
    assert not (empty / "ran").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cases: [{tool: a, expcet: allow}]", "expect"),
        ("cases: [{tool: a, expect: alow}]", "allow"),
        ("cases: [{tool: a, expect: deny, code: SCOPE_DENID}]", "SCOPE_DENIED"),
        ("cases: []", "cases"),
        ("[]", "mapping"),
        ("cases: [", "1:"),
    ],
)
def test_a_broken_file_of_cases_is_told_with_its_place(
    text: str, said: str, cases: Path, packhost: Callable[..., Any]
) -> None:
    cases.write_text(text)
    ran = packhost("policy", "test", str(cases))
    assert (ran.status, str(cases) in ran.err, said in ran.err) == (2, True, True)


def test_sound_rules_pass_the_check(workspace: Path, packhost: Callable[..., Any]) -> None:
    ran = packhost("policy", "check")
    assert (ran.status, ran.out) == (0, "1 rules, 0 of them to be looked at\n")


def test_a_rule_that_speaks_of_nothing_is_found(workspace: Path, packhost: Callable[..., Any]) -> None:
    file = workspace / "packhost.yaml"
    rule = "policy:\n  - {match: {tool: 'workspace:wirte_file'}, decide: deny}\n"
    file.write_text(file.read_text().replace("policy:\n", rule))
    ran = packhost("policy", "check", "--json")
    (one,) = ran.json["findings"]
    assert (ran.status, one["finding"]) == (1, "unknown")
    assert one["place"].startswith(f"packhost.yaml:{line_of(workspace, 'wirte')}")
    assert one["hint"] == "did you mean `workspace:write_file`?"
    assert ran.json["warnings"] == []
    assert "did you mean" in packhost("policy", "check").out


@pytest.fixture
def used(workspace: Path, packhost: Callable[..., Any]) -> Path:
    """A workspace with some calls on record."""
    for path in ("README.md", "README.md", "src"):
        tool = "list_directory" if path == "src" else "read_file"
        assert packhost("call", f"workspace:{tool}", f'{{"path": "{path}"}}').status == 0
    packhost("call", "workspace:write_file", '{"path": "src/a", "content": "x"}')
    packhost("call", "workspace:write_file", '{"path": "docs/a", "content": "x"}')
    packhost("call", "workspace:write_file", '{"wrong": 1}')
    return workspace


def test_recorded_calls_are_held_against_a_changed_policy(used: Path, packhost: Callable[..., Any]) -> None:
    changed = used / "new.yaml"
    changed.write_text(
        (used / "packhost.yaml")
        .read_text()
        .replace("path read **", "path read src/**")
        .replace("path write src/**", "path write **")
    )
    told = packhost("policy", "replay", "--file", str(changed), "--json").json
    assert (told["calls"], told["changed"], told["left_out"]) == (5, 3, 1)
    met = {(change["before"], change["after"]): change for change in told["changes"]}
    assert met["allow", "deny SCOPE_DENIED"]["count"] == 2
    assert "README.md" in met["allow", "deny SCOPE_DENIED"]["example"]
    assert "docs/a" in met["deny SCOPE_DENIED", "ask"]["example"]
    people = packhost("policy", "replay", "--file", str(changed)).out
    assert "deny SCOPE_DENIED" in people
    assert "3 would meet something else" in people


def test_a_replay_of_the_policy_that_holds_changes_nothing(used: Path, packhost: Callable[..., Any]) -> None:
    assert "nothing would change" in packhost("policy", "replay").out


def test_a_replay_can_be_asked_about_a_level_and_a_time(used: Path, packhost: Callable[..., Any]) -> None:
    changed = used / "new.yaml"
    changed.write_text(
        (used / "packhost.yaml").read_text().replace("decide: ask", "decide: ask\n    relaxable: true")
    )
    args = ("policy", "replay", "--file", str(changed), "--json")
    assert packhost(*args).json["changed"] == 0
    relaxed = packhost(*args, "--level", "autonomous").json
    assert {change["before"]: change["after"] for change in relaxed["changes"]} == {"ask": "allow"}
    assert packhost(*args, "--since", "1ms").json["calls"] == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--since", "7x"), "is not a unit"),
        (("--level", "guardde"), "guarded"),
        (("--run", "run_none"), "run_none"),
    ],
)
def test_a_wrong_option_of_a_replay_is_told(
    words: tuple[str, ...], said: str, used: Path, packhost: Callable[..., Any]
) -> None:
    ran = packhost("policy", "replay", *words)
    assert (ran.status, said in ran.err) == (2, True)


@pytest.mark.parametrize(
    ("tool", "arguments", "code"),
    [
        ("workspace:wirte_file", "{path: build/x, content: ''}", "TOOL_NOT_FOUND"),
        ("workspace:write_file", "{pth: build/x, content: ''}", "INVALID_INPUT"),
    ],
)
def test_a_misspelled_case_does_not_pass_for_a_denial(
    tool: str, arguments: str, code: str, cases: Path, packhost: Callable[..., Any]
) -> None:
    case = f'cases:\n  - tool: "{tool}"\n    arguments: {arguments}\n    expect: deny\n'
    cases.write_text(case)
    ran = packhost("policy", "test", str(cases))
    assert ran.status == 1
    assert f"+ code: {code}" in ran.out
    cases.write_text(f"{case}    code: {code}\n")
    assert packhost("policy", "test", str(cases)).status == 0
