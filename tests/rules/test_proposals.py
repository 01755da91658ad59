"""Proposals: the narrowest grant that would have covered what was approved."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packhost.rules.proposals import narrowest, propose

PATHS = {"path"}


def calls(*paths: str, **more: Any) -> list[dict[str, Any]]:
    return [{"path": path, **more} for path in paths]


@pytest.mark.parametrize(
    ("approved", "pattern"),
    [
        (calls("src/a", "src/a", "src/a"), {"path": {"exact": "src/a"}}),
        (calls("src/a", "src/b", "src/c/d"), {"path": {"glob": "src/**"}}),
        (calls("src/x/a", "src/x/b", "src/x/c"), {"path": {"glob": "src/x/**"}}),
        (calls("src/xa/a", "src/xb/b", "src/xc/c"), {"path": {"glob": "src/**"}}),
        (calls("src/a", "docs/b", "c"), {"path": {"glob": "**"}}),
        (calls("a/*/x", "a/*/y", "a/*/z"), {"path": {"glob": "a/**"}}),
        (
            [{"path": "src/a", "n": 1}, {"path": "src/a", "n": 2}, {"path": "src/a", "n": 1}],
            {"path": {"exact": "src/a"}, "n": {"any": True}},
        ),
        (
            [{"path": "src/a"}, {"path": "src/a", "n": 2}, {"path": "src/a"}],
            {"path": {"exact": "src/a"}, "n": {"any": True}},
        ),
        ([{"n": 1}, {"n": 1.0}, {"n": True}], {"n": {"any": True}}),
        ([{"path": 1}, {"path": 2}, {"path": "a"}], {"path": {"any": True}}),
        ([{}, {}, {}], {}),
    ],
)
def test_it_is_the_narrowest_that_covers_all(approved: list[dict[str, Any]], pattern: dict[str, Any]) -> None:
    found = propose("ann", "t:x", "1", approved, [], PATHS)
    assert found is not None
    assert found.pattern.as_json() == pattern
    assert found.covered == len(approved)


def test_two_like_approvals_are_no_habit() -> None:
    assert propose("ann", "t:x", "1", calls("a", "b"), [], PATHS) is None


def test_what_a_person_denied_is_never_proposed() -> None:
    approved = calls("src/a", "src/b", "src/c")
    assert propose("ann", "t:x", "1", approved, calls("src/d"), PATHS) is None
    assert propose("ann", "t:x", "1", approved, calls("docs/d"), PATHS) is not None


def test_a_name_that_no_pattern_can_hold_is_not_proposed() -> None:
    assert propose("ann", "t:x", "1", [{"a.b": 1}] * 3, [], PATHS) is None


def test_an_identity_stands_for_one_proposal() -> None:
    first = propose("ann", "t:x", "1", calls("a", "a", "a"), [], PATHS)
    same = propose("ann", "t:x", "1", calls("a", "a", "a", "a"), [], PATHS)
    other = propose("ann", "t:x", "2", calls("a", "a", "a"), [], PATHS)
    assert first is not None
    assert same is not None
    assert other is not None
    assert first.id == same.id != other.id


segment = st.sampled_from(["a", "b", "ab", "a.txt", ".git", "*"])
path = st.lists(segment, min_size=1, max_size=4).map("/".join)
arguments = st.fixed_dictionaries({"path": path}, optional={"n": st.integers(0, 2), "s": st.text(max_size=2)})


@given(st.lists(arguments, min_size=3, max_size=6))
def test_it_covers_every_call_that_it_was_made_of(approved: list[dict[str, Any]]) -> None:
    pattern = narrowest(approved, PATHS)
    assert pattern is not None
    assert all(pattern.holds(call) for call in approved)


@given(st.lists(arguments, min_size=3, max_size=6), arguments)
def test_a_path_outside_the_common_folder_is_not_covered(
    approved: list[dict[str, Any]], other: dict[str, Any]
) -> None:
    pattern = narrowest(approved, PATHS)
    assert pattern is not None
    tops = {call["path"].split("/")[0] for call in approved if "/" in call["path"]}
    flat = any("/" not in call["path"] for call in approved)
    if len(tops) == 1 and not flat and "*" not in tops and other["path"].split("/")[0] not in tops:
        assert not pattern.holds(other)
