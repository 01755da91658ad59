"""Approvals: what they are bound to, how they are used up, how answers count."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packhost.errors import InvalidInput
from packhost.rules.approvals import (
    ApprovalStatus,
    Assurance,
    Vote,
    binding,
    canonical_json,
    may_ask_again,
    may_become,
    person,
    standing,
    tally,
    usable,
)

KEY = b"a key of sixteen bytes or more"
FIELDS: dict[str, Any] = {
    "workspace": "w",
    "principal": "p",
    "client": "c",
    "run_id": "r",
    "tool": "pack:tool",
    "tool_version": "1",
    "arguments": {"path": "a", "count": 1},
}

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@dataclass(frozen=True)
class Record:
    status: ApprovalStatus = "approved"
    binding: str = "d"
    expires_at: float = 100.0
    consumed_by: str | None = None


@pytest.mark.parametrize(
    "change",
    [
        {"workspace": "w2"},
        {"principal": "p2"},
        {"client": "c2"},
        {"run_id": "r2"},
        {"run_id": None},
        {"tool": "pack:tool2"},
        {"tool_version": "2"},
        {"arguments": {"path": "a", "count": 2}},
        {"arguments": {"path": "a", "count": 1.0}},
        {"arguments": {"path": "a", "count": True}},
        {"arguments": {"path": "a", "count": "1"}},
        {"arguments": {"path": "a"}},
        {"arguments": {"path": "a", "count": 1, "hidden": None}},
        {"workspace": "wp", "principal": ""},
    ],
)
def test_any_changed_field_gives_another_binding(change: dict[str, Any]) -> None:
    assert binding(KEY, **{**FIELDS, **change}) != binding(KEY, **FIELDS)


def test_another_key_gives_another_binding() -> None:
    assert binding(KEY + b"x", **FIELDS) != binding(KEY, **FIELDS)


def test_no_run_is_not_a_run_named_null() -> None:
    assert binding(KEY, **{**FIELDS, "run_id": None}) != binding(KEY, **{**FIELDS, "run_id": "null"})


def test_the_order_of_keys_does_not_change_a_binding() -> None:
    swapped = {**FIELDS, "arguments": {"count": 1, "path": "a"}}
    assert binding(KEY, **swapped) == binding(KEY, **FIELDS)


def test_a_short_key_is_refused() -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        binding(b"short", **FIELDS)


@settings(max_examples=250, deadline=None)
@given(st.dictionaries(st.text(max_size=3), json_values, max_size=3), st.data())
def test_arguments_that_differ_as_json_are_bound_apart(
    arguments: dict[str, Any], data: st.DataObject
) -> None:
    other = data.draw(st.dictionaries(st.text(max_size=3), json_values, max_size=3))
    # `repr` tells 1 from 1.0 and from true, as a handler can; sorting takes the order of keys away.
    same = repr(sort(arguments)) == repr(sort(other))
    bound = [binding(KEY, **{**FIELDS, "arguments": each}) for each in (arguments, other)]
    assert (bound[0] == bound[1]) is same


def sort(value: Any) -> Any:
    if isinstance(value, dict):
        return {"object": [(key, sort(value[key])) for key in sorted(value)]}
    return [sort(item) for item in value] if isinstance(value, list) else (value,)


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        {1: "a"},
        {"a": {True: 1}},
        [{None: 1}],
        {1, 2},
        b"x",
        pytest.param(deep(100_000), id="deep"),
        pytest.param(10**5000, id="long"),
    ],
)
def test_what_is_no_json_is_bad_input(value: object) -> None:
    with pytest.raises(InvalidInput):
        canonical_json(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": [None, True]}, '{"a":[null,true],"b":1}'),
        (1.0, "1.0"),
        (-0.0, "-0.0"),
        ("\u00e9\n", '"\\u00e9\\n"'),
        ("\udcff", '"\\udcff"'),
    ],
)
def test_json_is_spelled_in_one_way(value: object, text: str) -> None:
    assert canonical_json(value) == text


def test_an_approved_record_is_usable_for_its_call_once_and_in_time() -> None:
    assert usable(Record(), binding="d", now=99.9)


@pytest.mark.parametrize(
    "change",
    [
        {"status": "pending"},
        {"status": "denied"},
        {"status": "expired"},
        {"status": "cancelled"},
        {"binding": "e"},
        {"binding": "d\u00e9"},
        {"consumed_by": "call_1"},
        {"expires_at": 99.0},
        {"expires_at": 98.0},
    ],
)
def test_any_other_record_is_not_usable(change: dict[str, Any]) -> None:
    assert not usable(replace(Record(), **change), binding="d", now=99.0)


STATUSES: tuple[ApprovalStatus, ...] = ("pending", "approved", "denied", "expired", "cancelled")


def test_a_record_moves_only_forward() -> None:
    allowed = {(one, two) for one in STATUSES for two in STATUSES if may_become(one, two)}
    assert allowed == {
        ("pending", "approved"),
        ("pending", "denied"),
        ("pending", "expired"),
        ("pending", "cancelled"),
        ("approved", "expired"),
        ("approved", "cancelled"),
    }


@pytest.mark.parametrize(
    ("status", "now", "expected"),
    [
        ("pending", 99.0, "pending"),
        ("pending", 100.0, "expired"),
        ("approved", 100.0, "expired"),
        ("denied", 200.0, "denied"),
        ("cancelled", 200.0, "cancelled"),
    ],
)
def test_an_expiry_holds_before_it_is_written_down(status: ApprovalStatus, now: float, expected: str) -> None:
    assert standing(status, 100.0, now) == expected


@pytest.mark.parametrize(
    ("denied", "again"),
    [
        ([], True),
        ([990.0, 995.0], True),
        ([990.0, 995.0, 999.0], False),
        ([400.0, 995.0, 999.0], True),
        ([400.001, 995.0, 999.0], False),
        ([990.0, 995.0, 2000.0], False),
    ],
)
def test_a_call_asks_again_until_it_was_rejected_three_times_within_the_timeout(
    denied: list[float], again: bool
) -> None:
    assert may_ask_again(denied, now=1000.0, timeout=600.0) is again


def yes(by: str, assurance: Assurance = "client") -> Vote:
    return Vote(by, True, assurance)


def no(by: str) -> Vote:
    return Vote(by, False)


@pytest.mark.parametrize(
    ("votes", "needed", "assurance", "expected"),
    [
        ([], 1, "client", "pending"),
        ([yes("a")], 1, "client", "approved"),
        ([yes("a")], 0, "client", "approved"),
        ([], 0, "client", "pending"),
        ([no("a")], 1, "client", "denied"),
        ([no("a"), yes("b")], 1, "client", "denied"),
        ([yes("a"), no("b")], 1, "client", "approved"),
        ([yes("a")], 2, "client", "pending"),
        ([yes("a"), yes("a")], 2, "client", "pending"),
        ([yes("a"), yes(" A ")], 2, "client", "pending"),
        ([yes("a"), yes("b")], 2, "client", "approved"),
        ([yes("a"), no("b")], 2, "client", "denied"),
        ([yes("a"), no("a")], 2, "client", "denied"),
        ([yes("")], 1, "client", "pending"),
        ([yes("a")], 1, "operator", "pending"),
        ([yes("a", "operator")], 1, "operator", "approved"),
        ([yes("a", "operator"), yes("b")], 2, "operator", "pending"),
        ([no("a")], 1, "operator", "denied"),
    ],
)
def test_answers_count_by_people_and_the_first_rejection_denies(
    votes: list[Vote], needed: int, assurance: Assurance, expected: str
) -> None:
    assert tally(votes, needed, assurance) == expected


votes_of = st.lists(st.builds(Vote, st.sampled_from(["a", "b", "c", ""]), st.booleans()), max_size=5)


@given(votes_of, st.integers(1, 3))
def test_what_answers_decided_no_later_answer_changes(votes: list[Vote], needed: int) -> None:
    for end in range(len(votes)):
        before = tally(votes[:end], needed)
        if before != "pending":
            assert tally(votes, needed) == before


@given(votes_of, st.integers(1, 3))
def test_needing_more_people_never_approves_sooner(votes: list[Vote], needed: int) -> None:
    if tally(votes, needed + 1) == "approved":
        assert tally(votes, needed) == "approved"


@pytest.mark.parametrize("same", ["ANN", " ann\t", "\uff41nn", "A\uff2e\uff2e"])
def test_another_spelling_of_a_name_makes_no_other_person(same: str) -> None:
    assert person(same) == person("ann")
    assert tally([Vote("ann", True), Vote(same, True)], 2) == "pending"
    assert tally([Vote("ann", True), Vote("anne", True)], 2) == "approved"
