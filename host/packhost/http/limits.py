"""How much one principal may ask for: requests a second, requests at once, streams at once.

How many calls of one tool they may make is the gate's to say: see `gate.throttle`.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import anyio

from packhost.http.problems import Problem

_REMEMBERED: Final = 10_000
"""Principals whose use is kept in mind; those idle for longest are forgotten first."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """What one principal has."""

    rate: float = 200.0
    """Requests a second, in the long run."""
    burst: float = 400.0
    """Requests that may come at once after a pause."""
    at_once: int = 64
    """Requests that are being answered, streams aside."""
    streams: int = 1_024
    """Streams of events that are open."""


FOR_MCP: Final = Allowance(at_once=1_024)
"""What one principal has at the doors of MCP, where a request goes on for as long as its call does."""


@dataclass(slots=True)
class _Use:
    left: float
    seen: float
    open: int = 0
    streams: int = 0


class Limits:
    """Keeps every principal to its allowance."""

    def __init__(self, allowance: Allowance | None = None) -> None:
        self._allowance = allowance or Allowance()
        self._uses: OrderedDict[str, _Use] = OrderedDict()

    @contextmanager
    def request(self, principal: str) -> Iterator[None]:
        """One request while it is answered.

        :raises Problem: 429 with the seconds to wait.
        """
        use, mine = self._used(principal), self._allowance
        if use.left < 1:
            raise _too_many("too many requests a second", (1 - use.left) / mine.rate)
        if use.open >= mine.at_once:
            raise _too_many("too many requests at once", 1)
        use.left -= 1
        use.open += 1
        try:
            yield
        finally:
            use.open -= 1

    @contextmanager
    def stream(self, principal: str) -> Iterator[None]:
        """One stream while it is open.

        :raises Problem: 429 with the seconds to wait.
        """
        use = self._used(principal)
        if use.streams >= self._allowance.streams:
            raise _too_many("too many streams are open", 5)
        use.streams += 1
        try:
            yield
        finally:
            use.streams -= 1

    def _used(self, principal: str) -> _Use:
        now, mine = anyio.current_time(), self._allowance
        use = self._uses.get(principal)
        if use is None:
            use = self._uses[principal] = _Use(mine.burst, now)
            self._forget()
        self._uses.move_to_end(principal)
        use.left = min(mine.burst, use.left + (now - use.seen) * mine.rate)
        use.seen = now
        return use

    def _forget(self) -> None:
        if len(self._uses) > _REMEMBERED:
            idle = next((who for who, use in self._uses.items() if not use.open and not use.streams), None)
            if idle is not None:
                del self._uses[idle]


def _too_many(detail: str, seconds: float) -> Problem:
    wait = max(1, math.ceil(seconds))
    return Problem(
        429,
        "LIMIT_EXCEEDED",
        detail,
        hint=f"try again in {wait} s",
        headers={"Retry-After": str(wait)},
    )
