"""Levels of enforcement and what a workspace may require."""

from __future__ import annotations

import pytest

from packhost.sandbox.level import Enforcement, Requirement, satisfies


@pytest.mark.parametrize(
    ("level", "require", "enough"),
    [
        ("host", "kernel", True),
        ("kernel", "kernel", True),
        ("partial", "kernel", False),
        ("advisory", "kernel", False),
        ("kernel", "partial", True),
        ("partial", "partial", True),
        ("advisory", "partial", False),
        ("advisory", "advisory", True),
    ],
)
def test_a_level_is_enough_for_what_is_no_stronger(
    level: Enforcement, require: Requirement, enough: bool
) -> None:
    assert satisfies(level, require) is enough
