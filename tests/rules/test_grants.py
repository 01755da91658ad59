"""Grants: what a standing answer covers, and what none ever does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from packhost.errors import InvalidInput
from packhost.names import ToolId
from packhost.rules.grants import (
    Grant,
    Pattern,
    adjusted,
    covers,
    exact_pattern,
    lexical,
    live,
    pattern_of,
    widest,
)
from packhost.rules.policy import Facts, NamedApproval

NOW = 1000.0
FACTS = Facts(ToolId("workspace", "write_file"), "python", "write", "me", "editor", {"path": "src/a"})
GRANT = Grant(
    "grant_1",
    "me",
    ToolId("workspace", "write_file"),
    "1.0.0",
    pattern_of({"path": "src/**"}),
    expires_at=2000.0,
    maximum_uses=2,
)


def test_a_grant_covers_the_calls_that_it_names() -> None:
    assert covers(GRANT, FACTS, "1.0.0", NOW)
    assert covers(
        replace(GRANT, pattern=pattern_of({"path": {"any": True}}), expires_at=None, maximum_uses=None),
        FACTS,
        "1.0.0",
        NOW,
    )


@pytest.mark.parametrize(
    "change",
    [
        {"principal": "you"},
        {"tool": ToolId("workspace", "edit_file")},
        {"tool_version": "1.0.1"},
        {"pattern": Pattern()},
        {"pattern": pattern_of({"path": "docs/**"})},
        {"pattern": pattern_of({"path": "src/**", "mode": "x"})},
        {"pattern": pattern_of({"path": {"min": 1}})},
        {"pattern": pattern_of({"path.name": {"any": True}})},
        {"hidden": "another"},
        {"expires_at": NOW},
        {"revoked_at": NOW - 1},
        {"revoked_at": 0.0},
        {"uses": 2},
    ],
)
def test_a_grant_covers_no_other_call(change: dict[str, Any]) -> None:
    assert not covers(replace(GRANT, **change), FACTS, "1.0.0", NOW)


@pytest.mark.parametrize("path", ["docs/a", "/src/a", "src/../docs", None])
def test_a_grant_does_not_cover_arguments_outside_its_patterns(path: str | None) -> None:
    assert not covers(GRANT, replace(FACTS, arguments={"path": path}), "1.0.0", NOW)


def test_a_grant_never_covers_a_control_tool() -> None:
    assert not covers(GRANT, replace(FACTS, control=True), "1.0.0", NOW)


def test_a_grant_never_covers_an_approval_that_may_not_be_granted() -> None:
    may, may_not = NamedApproval("a:x", "X"), NamedApproval("a:y", "Y", grantable=False)
    assert covers(GRANT, replace(FACTS, required=(may,)), "1.0.0", NOW)
    assert not covers(GRANT, replace(FACTS, required=(may, may_not)), "1.0.0", NOW)


def test_a_grant_lives_until_it_expires_is_revoked_or_used_up() -> None:
    assert live(GRANT, NOW)
    assert live(replace(GRANT, uses=1), NOW)
    assert not live(replace(GRANT, uses=2), NOW)
    assert not live(replace(GRANT, expires_at=NOW), NOW)
    assert not live(replace(GRANT, revoked_at=NOW + 1), NOW)


CALL = {"path": "src/a.txt", "content": "x", "overwrite": True}


def test_what_a_pattern_does_not_name_must_be_absent() -> None:
    pattern = exact_pattern({"path": "src/a"})
    assert pattern.holds({"path": "src/a"})
    assert not pattern.holds({"path": "src/a", "overwrite": True})
    assert not pattern_of({"options.mode": "x"}).holds({"options": {"mode": "x", "force": True}})


def test_a_pattern_is_read_back_as_it_was_written() -> None:
    pattern = adjusted(exact_pattern(CALL), CALL, {"path"}, {"path": "src/**"}, ["content"])
    assert pattern_of(pattern.as_json()) == pattern
    assert pattern.words() == ['path: any path below "src"', "overwrite: exactly true", "content: anything"]


def test_a_star_in_an_exact_value_stays_a_star() -> None:
    pattern = pattern_of(exact_pattern({"path": "src/*"}).as_json())
    assert pattern.holds({"path": "src/*"})
    assert not pattern.holds({"path": "src/a"})


@pytest.mark.parametrize(
    ("only", "anything", "said"),
    [
        ({"content": "*"}, [], "only paths take a pattern"),
        ({"pth": "src/**"}, [], "no argument"),
        ({}, ["mode"], "no argument"),
        ({"path": "docs/**"}, [], "does not cover the call itself"),
        ({"path": "src"}, [], "does not cover the call itself"),
        ({"path": "../**"}, [], "no pattern"),
        ({"path": "/**"}, [], "no pattern"),
        ({"path": "src/{a,b}"}, [], "no pattern"),
    ],
)
def test_a_person_can_only_write_patterns_that_cover_the_call(
    only: dict[str, str], anything: list[str], said: str
) -> None:
    with pytest.raises(InvalidInput, match=said):
        adjusted(exact_pattern(CALL), CALL, {"path"}, only, anything)


@pytest.mark.parametrize(
    "path",
    ["src-evil/a", "srcs/a", "src", "src/../docs/a", "/src/a", "docs/src/a", "SRC/a", "src\\a", "src/\0"],
)
def test_a_folders_pattern_does_not_widen(path: str) -> None:
    assert not pattern_of({"path": "src/**"}).holds({"path": path})


@pytest.mark.parametrize("name", ["", "a.b"])
def test_an_argument_that_a_pattern_cannot_name_cannot_be_granted(name: str) -> None:
    with pytest.raises(InvalidInput, match="cannot be named"):
        exact_pattern({name: 1})


def test_what_a_pattern_leaves_open_is_said() -> None:
    pattern = adjusted(exact_pattern(CALL), CALL, {"path"}, {"path": "**"}, ["content"])
    assert widest(pattern, {"path"}) == [
        "`content` may be anything",
        "`path` may be any path in the workspace",
    ]
    assert widest(exact_pattern(CALL), {"path"}) == []


def test_paths_have_one_spelling_and_none_outside_the_root() -> None:
    assert lexical({"path": "./src//a", "n": 1}, {"path"}) == {"path": "src/a", "n": 1}
    assert lexical({"path": "../a"}, {"path"}) is None
    assert lexical({"n": 1}, {"path"}) == {"n": 1}
