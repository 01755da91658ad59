"""What one run may spend, and the defaults of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from packhost.api import InvalidInput

MAX_TURNS = 20
MAX_TOOL_CALLS = 100
WALL_CLOCK = 900.0
MAX_TOKENS = 500_000
MAX_RETRIES = 6

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"\s*(\d{1,9}(?:\.\d{1,6})?)\s*(ms|s|m|h|d)?\s*\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class Limits:
    """A run's budgets: replies, tool calls, seconds at work, tokens in and out together, repeated requests.

    Seconds spent paused or waiting for a person do not count.
    """

    max_turns: int = MAX_TURNS
    max_tool_calls: int = MAX_TOOL_CALLS
    wall_clock: float = WALL_CLOCK
    max_tokens: int = MAX_TOKENS
    max_retries: int = MAX_RETRIES

    def as_json(self) -> dict[str, Any]:
        """The limits as a run's spec holds them."""
        return {
            "max_turns": self.max_turns,
            "max_tool_calls": self.max_tool_calls,
            "wall_clock": self.wall_clock,
            "max_tokens": self.max_tokens,
            "max_retries": self.max_retries,
        }


@dataclass(frozen=True, slots=True)
class Spent:
    """What was used of the same five budgets."""

    turns: int = 0
    tool_calls: int = 0
    seconds: float = 0.0
    tokens: int = 0
    retries: int = 0

    def plus(self, other: Spent) -> Spent:
        """Both together."""
        return Spent(
            self.turns + other.turns,
            self.tool_calls + other.tool_calls,
            self.seconds + other.seconds,
            self.tokens + other.tokens,
            self.retries + other.retries,
        )


def seconds(value: float | str) -> float:
    """Seconds of a number, or of a text such as `90s`, `10m`, `1h`.

    Raises `InvalidInput` for anything else and for what is not more than zero.
    """
    found = None if isinstance(value, int | float) else _DURATION.match(value)
    if isinstance(value, int | float):
        number = float(value)
    elif found is not None:
        number = float(found[1]) * _UNITS[found[2] or "s"]
    else:
        raise InvalidInput(f"`{value}` is not a duration", hint="write `90s`, `10m`, `1h` or seconds")
    if not 0 < number <= 366 * 86400:
        raise InvalidInput(
            f"a duration of `{value}` is out of range", hint="it is more than 0, at most `366d`"
        )
    return number


def limits_of(saved: Mapping[str, Any], asked: Mapping[str, Any]) -> Limits:
    """What a request asks for, never past what its saved agent has; the default where neither says."""
    return Limits(
        int(_lower(saved, asked, "max_turns", MAX_TURNS)),
        int(_lower(saved, asked, "max_tool_calls", MAX_TOOL_CALLS)),
        _lower(saved, asked, "wall_clock", WALL_CLOCK),
        int(_lower(saved, asked, "max_tokens", MAX_TOKENS)),
        int(_lower(saved, asked, "max_retries", MAX_RETRIES)),
    )


def _lower(saved: Mapping[str, Any], asked: Mapping[str, Any], name: str, default: float) -> float:
    given = [
        seconds(one[name]) if name == "wall_clock" else one[name] for one in (saved, asked) if name in one
    ]
    return min(given) if given else default
