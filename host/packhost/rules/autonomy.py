"""Levels of autonomy, from the least to the most that a session may do unasked.

`observe`: read tools alone run. `supervised`: every write and admin call asks. `guarded`: asks where a
manifest or a rule says so, and for admin tools. `autonomous`: rules marked relaxable no longer ask.
What each level means for one call is decided in `policy`.
"""

from __future__ import annotations

from typing import Literal, get_args

Level = Literal["observe", "supervised", "guarded", "autonomous"]
LEVELS: tuple[Level, ...] = get_args(Level)
_RANKS = {level: number for number, level in enumerate(LEVELS)}


def rank(level: Level) -> int:
    """0 for the least autonomy."""
    return _RANKS[level]


def lowest(first: Level, *others: Level) -> Level:
    """The least of several levels."""
    return min(first, *others, key=rank) if others else first


def opening(default: Level, opener: Level | None, maximum: Level) -> Level:
    """The level of a new session: no higher than the default, its opener's level and the maximum."""
    return lowest(default, maximum) if opener is None else lowest(default, opener, maximum)


def effective(level: Level, expires_at: float | None, floor: Level, now: float) -> Level:
    """The level that holds now: a raised one falls back to `floor` when its time is up.

    Times are seconds of one clock; `None` never expires. Falling back never raises: a level below the
    floor stays.
    """
    return level if expires_at is None or now < expires_at else lowest(level, floor)


def raise_allowed(current: Level, wanted: Level, maximum: Level) -> bool:
    """Whether going from `current` to `wanted` is a raise that stays within the maximum."""
    return rank(current) < rank(wanted) <= rank(maximum)
