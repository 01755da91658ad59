"""Spans of time, in words."""

from __future__ import annotations

import pytest

from packhost.cli.times import left, span


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (2_592_000.0, "30 days"),
        (86_400.0, "1 day"),
        (5_400.0, "90 minutes"),
        (61.0, "61 seconds"),
        (0.5, "0.5 seconds"),
    ],
)
def test_a_span_is_said_in_the_largest_unit_that_is_exact(seconds: float, words: str) -> None:
    assert span(seconds) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (598.4, "9 minutes 58 seconds"),
        (7_200.0, "2 hours"),
        (90_061.0, "1 day 1 hour"),
        (0.2, "0 seconds"),
        (-3.0, "0 seconds"),
    ],
)
def test_what_is_left_is_said_in_its_two_largest_units(seconds: float, words: str) -> None:
    assert left(seconds) == words
