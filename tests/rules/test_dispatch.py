"""Filing conditional rules never loses one that applies."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from packhost.rules.arguments import ArgumentMatch, Unanswerable, parse_argument_match
from packhost.rules.dispatch import Dispatch

values = st.sampled_from(
    [
        None,
        True,
        0,
        1,
        1.0,
        2.5,
        "",
        "a",
        "b",
        "a/b",
        "./a/x",
        "a/../b",
        "/a",
        "src/x",
        ["a"],
        {"d": 1},
        {"d": "a/b"},
    ]
)
arguments_of = st.dictionaries(st.sampled_from(["a", "b", "c"]), values, max_size=3)
wanted = st.sampled_from(
    [
        None,
        True,
        1,
        1.0,
        "a",
        "b",
        "a/**",
        "a*",
        "**",
        "*/b",
        "src/*",
        {"min": 1},
        {"exact": ["a"]},
        {"glob": "a"},
    ]
)
conditions = st.builds(parse_argument_match, st.sampled_from(["a", "b", "c", "c.d"]), wanted)
several = st.lists(st.lists(conditions, min_size=1, max_size=3), max_size=8)


def plainly_not_met(conditions: list[ArgumentMatch], arguments: dict[str, Any]) -> bool:
    for condition in conditions:
        try:
            if not condition.holds(arguments):
                return True
        except Unanswerable:
            continue
    return False


@settings(max_examples=1000, deadline=None)
@given(several, arguments_of)
def test_every_rule_that_may_apply_is_found_once_and_in_order(
    rules: list[list[ArgumentMatch]], arguments: dict[str, Any]
) -> None:
    found = Dispatch(rules).candidates(arguments)
    needed = [number for number, rule in enumerate(rules) if not plainly_not_met(rule, arguments)]
    assert set(found) >= set(needed)
    assert found == sorted(set(found))


def test_among_many_rules_only_those_of_the_calls_own_values_are_met() -> None:
    rules = [[parse_argument_match("path", f"folder{i}/**")] for i in range(100)]
    rules += [[parse_argument_match("mode", f"mode{i}")] for i in range(100)]
    rules += [[parse_argument_match("path", "**/x")]]
    found = Dispatch(rules).candidates({"path": "folder7/a", "mode": "mode9"})
    assert found == [7, 109, 200]
