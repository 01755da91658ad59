"""Levels of autonomy."""

from __future__ import annotations

import itertools

import pytest

from packhost.rules.autonomy import LEVELS, Level, effective, lowest, opening, raise_allowed, rank


def test_levels_are_ranked_from_the_least_autonomy() -> None:
    assert LEVELS == ("observe", "supervised", "guarded", "autonomous")
    assert [rank(level) for level in LEVELS] == [0, 1, 2, 3]


def test_the_lowest_of_several_levels_is_the_least_of_them() -> None:
    for levels in itertools.product(LEVELS, repeat=3):
        assert rank(lowest(*levels)) == min(map(rank, levels))
    assert lowest("guarded") == "guarded"


@pytest.mark.parametrize(
    ("default", "opener", "maximum", "expected"),
    [
        ("guarded", None, "autonomous", "guarded"),
        ("guarded", "autonomous", "autonomous", "guarded"),
        ("guarded", "observe", "autonomous", "observe"),
        ("autonomous", "autonomous", "supervised", "supervised"),
        ("autonomous", None, "guarded", "guarded"),
    ],
)
def test_a_session_opens_at_the_lower_of_the_default_and_its_openers_level(
    default: Level, opener: Level | None, maximum: Level, expected: Level
) -> None:
    assert opening(default, opener, maximum) == expected


@pytest.mark.parametrize(
    ("level", "expires_at", "floor", "now", "expected"),
    [
        ("autonomous", None, "guarded", 1e12, "autonomous"),
        ("autonomous", 100.0, "guarded", 99.9, "autonomous"),
        ("autonomous", 100.0, "guarded", 100.0, "guarded"),
        ("autonomous", 100.0, "observe", 200.0, "observe"),
        ("observe", 100.0, "guarded", 200.0, "observe"),
    ],
)
def test_a_raised_level_falls_back_when_its_time_is_up(
    level: Level, expires_at: float | None, floor: Level, now: float, expected: Level
) -> None:
    assert effective(level, expires_at, floor, now) == expected


def test_a_raise_goes_up_and_never_past_the_maximum() -> None:
    for current, wanted, maximum in itertools.product(LEVELS, repeat=3):
        allowed = rank(current) < rank(wanted) <= rank(maximum)
        assert raise_allowed(current, wanted, maximum) is allowed
