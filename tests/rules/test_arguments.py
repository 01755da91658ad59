"""Conditions on arguments: how they are read, and what they hold of."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packhost.errors import ConfigInvalid, Place
from packhost.rules.arguments import (
    ArgumentMatch,
    Unanswerable,
    format_argument_match,
    parse_argument_match,
)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("src/**", ArgumentMatch("a.b", "glob", glob="src/**")),
        ("plain", ArgumentMatch("a.b", "exact", exact="plain")),
        (3, ArgumentMatch("a.b", "exact", exact=3)),
        (True, ArgumentMatch("a.b", "exact", exact=True)),
        (None, ArgumentMatch("a.b", "exact", exact=None)),
        ({"exact": "*"}, ArgumentMatch("a.b", "exact", exact="*")),
        ({"exact": [1, {"x": None}]}, ArgumentMatch("a.b", "exact", exact=[1, {"x": None}])),
        ({"exact": None}, ArgumentMatch("a.b", "exact", exact=None)),
        ({"glob": "x"}, ArgumentMatch("a.b", "glob", glob="x")),
        ({"min": 0, "max": 1.5}, ArgumentMatch("a.b", "range", minimum=0, maximum=1.5)),
        ({"min": 2}, ArgumentMatch("a.b", "range", minimum=2)),
        ({"max": -2}, ArgumentMatch("a.b", "range", maximum=-2)),
    ],
)
def test_a_condition_reads_as_its_match_and_is_written_back(value: Any, expected: ArgumentMatch) -> None:
    match = parse_argument_match("a.b", value)
    assert match == expected
    assert parse_argument_match("a.b", format_argument_match(match)) == match


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("", 1),
        (".a", 1),
        ("a..b", 1),
        ("a", [1, 2]),
        ("a", {}),
        ("a", {"glbo": "x"}),
        ("a", {1: 2}),
        ("a", {"exact": 1, "min": 2}),
        ("a", {"glob": "x", "exact": "x"}),
        ("a", {"glob": 3}),
        ("a", {"glob": "/x"}),
        ("a", "x**"),
        ("a", {"min": None}),
        ("a", {"min": "1"}),
        ("a", {"max": True}),
        ("a", {"max": float("nan")}),
        ("a", {"min": float("inf")}),
        ("a", {"min": 2, "max": 1}),
    ],
)
def test_what_is_no_condition_is_an_error_with_its_place(path: str, value: Any) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        parse_argument_match(path, value, Place("packhost.yaml", 4))
    assert caught.value.place == Place("packhost.yaml", 4)
    assert caught.value.hint


def test_a_mistyped_key_names_the_right_one() -> None:
    with pytest.raises(ConfigInvalid) as caught:
        parse_argument_match("a", {"glbo": "x"})
    assert "did you mean `glob`" in caught.value.hint


ABSENT = object()


@pytest.mark.parametrize(
    ("condition", "value", "holds"),
    [
        ("x", "x", True),
        ("x", "X", False),
        ("x", 1, False),
        (1, 1, True),
        (1, 1.0, True),
        (1, True, False),
        (True, 1, False),
        (True, True, True),
        (None, None, True),
        (None, 0, False),
        (None, ABSENT, False),
        ({"exact": {"a": [1]}}, {"a": [1]}, True),
        ({"exact": {"a": [1]}}, {"a": [True]}, False),
        ({"exact": {"a": [1]}}, {"a": [1], "b": 2}, False),
        ({"exact": [1, 2]}, [1], False),
        ("src/**", "src/a", True),
        ("src/**", "src", True),
        ("src/**", "./src//a/", True),
        ("src/**", "srcs", False),
        ("src/**", ABSENT, False),
        ("**", "", True),
        ({"glob": "a*"}, "abc", True),
        ({"glob": "a*"}, "a/b", False),
        ({"min": 1, "max": 2}, 1, True),
        ({"min": 1, "max": 2}, 2.0, True),
        ({"min": 1, "max": 2}, 2.1, False),
        ({"min": 1}, 10**400, True),
        ({"max": 1}, 0.5, True),
        ({"max": 1}, ABSENT, False),
    ],
)
def test_a_condition_holds_as_its_table_says(condition: Any, value: Any, holds: bool) -> None:
    arguments = {} if value is ABSENT else {"a": {"b": value}}
    assert parse_argument_match("a.b", condition).holds(arguments) is holds


def test_null_on_the_way_is_an_absent_value() -> None:
    assert not parse_argument_match("a.b", None).holds({"a": None})


@pytest.mark.parametrize(
    ("condition", "value"),
    [
        ("src/**", 3),
        ("src/**", None),
        ("src/**", ["src/a"]),
        ("src/**", "/src/a"),
        ("src/**", "src/../x"),
        ("src/**", "src/a\0"),
        ({"min": 1}, "1"),
        ({"min": 1}, True),
        ({"min": 1}, None),
        ({"min": 1}, float("nan")),
    ],
)
def test_a_value_of_the_wrong_kind_cannot_be_asked(condition: Any, value: Any) -> None:
    with pytest.raises(Unanswerable):
        parse_argument_match("a", condition).holds({"a": value})


@pytest.mark.parametrize("value", ["text", 3, [{"b": 1}], True])
def test_a_path_through_something_that_is_no_object_cannot_be_asked(value: Any) -> None:
    with pytest.raises(Unanswerable, match=r"a\.b"):
        parse_argument_match("a.b", 1).holds({"a": value})


@settings(max_examples=300, deadline=None)
@given(
    st.text(max_size=6),
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text("a*/.", max_size=6),
        lambda inner: (
            st.dictionaries(st.sampled_from(["exact", "glob", "min", "max", "x"]), inner, max_size=2)
            | st.lists(inner, max_size=2)
        ),
        max_leaves=4,
    ),
)
def test_any_yaml_is_a_condition_or_a_clear_error(path: str, value: Any) -> None:
    try:
        match = parse_argument_match(path, value)
    except ConfigInvalid:
        return
    assert match.path == path
