"""Durations and sizes as people write them."""

from __future__ import annotations

import pytest
from pydantic_core import PydanticCustomError

from packhost.manifest.values import parse_duration, parse_size


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("60s", 60.0),
        ("10m", 600.0),
        ("1h", 3600.0),
        ("500ms", 0.5),
        ("1.5 h", 5400.0),
        (30, 30.0),
        ("30", 30.0),
        (0.5, 0.5),
        ("366d", 366 * 86400.0),
    ],
)
def test_a_duration_is_read_in_seconds(written: object, seconds: float) -> None:
    assert parse_duration(written) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "written",
    ["", "m", "10 minutes", "-1s", "0s", 0, -5, True, None, [], "1e3s", "367d", float("inf"), "\u0661s"],
)
def test_what_is_no_duration_is_an_error(written: object) -> None:
    with pytest.raises(PydanticCustomError):
        parse_duration(written)


@pytest.mark.parametrize(
    ("written", "size"),
    [("1MiB", 1024**2), ("64KiB", 65536), ("10MB", 10**7), ("1.5KiB", 1536), (12, 12), ("12B", 12)],
)
def test_a_size_is_read_in_bytes(written: object, size: int) -> None:
    assert parse_size(written) == size


@pytest.mark.parametrize("written", ["", "1mib", "1M", "-1B", 0, True, None, "2000GiB"])
def test_what_is_no_size_is_an_error(written: object) -> None:
    with pytest.raises(PydanticCustomError):
        parse_size(written)


def test_a_wrong_unit_is_told_the_nearest_right_one() -> None:
    with pytest.raises(PydanticCustomError, match="did you mean `1MiB`"):
        parse_size("1Mib")
