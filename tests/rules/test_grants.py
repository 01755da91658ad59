"""Grants: what a standing answer covers, and what none ever does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from packhost.names import ToolId
from packhost.rules.grants import Grant, covers, live
from packhost.rules.policy import Facts, NamedApproval, parse_argument_match

NOW = 1000.0
FACTS = Facts(ToolId("workspace", "write_file"), "python", "write", "me", "editor", {"path": "src/a"})
GRANT = Grant(
    "grant_1",
    "me",
    ToolId("workspace", "write_file"),
    "1.0.0",
    arguments=(parse_argument_match("path", "src/**"),),
    expires_at=2000.0,
    maximum_uses=2,
)


def test_a_grant_covers_the_calls_that_it_names() -> None:
    assert covers(GRANT, FACTS, "1.0.0", NOW)
    assert covers(replace(GRANT, arguments=(), expires_at=None, maximum_uses=None), FACTS, "1.0.0", NOW)


@pytest.mark.parametrize(
    "change",
    [
        {"principal": "you"},
        {"tool": ToolId("workspace", "edit_file")},
        {"tool_version": "1.0.1"},
        {"arguments": (parse_argument_match("path", "docs/**"),)},
        {"arguments": (parse_argument_match("path", "src/**"), parse_argument_match("mode", "x"))},
        {"arguments": (parse_argument_match("path", {"min": 1}),)},
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
