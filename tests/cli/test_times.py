"""Spans of time, in words."""

from __future__ import annotations

import pytest

from packhost.cli.times import span


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
