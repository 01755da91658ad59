"""Calls with effects that are under way, so that an identical call can share an outcome.

Two identical calls may wait for one approval: the first to use it runs, the other gets the first
one's outcome instead of asking a person again.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import anyio

from packhost.gate.types import Outcome

KEPT = 64
"""So many ended calls are remembered for one that comes a moment late."""


@dataclass(slots=True)
class Flight:
    """One call under way."""

    call_id: str
    landed: anyio.Event = field(default_factory=anyio.Event)
    outcome: Outcome | None = None


class Flights:
    """The calls under way and the last that ended."""

    def __init__(self) -> None:
        self._known: dict[str, Flight] = {}
        self._ended: deque[str] = deque()

    def open(self, call_id: str) -> Flight:
        """Enter a call before its intent is written."""
        flight = self._known[call_id] = Flight(call_id)
        return flight

    def close(self, flight: Flight, outcome: Outcome) -> None:
        """Give the outcome to whoever shares it."""
        flight.outcome = outcome
        flight.landed.set()
        self._ended.append(flight.call_id)
        if len(self._ended) > KEPT:
            self._known.pop(self._ended.popleft(), None)

    def drop(self, flight: Flight) -> None:
        """Forget a call that did not start."""
        self._known.pop(flight.call_id, None)

    async def join(self, call_id: str) -> Outcome | None:
        """The outcome of a call under way or just ended; `None` when it is not known here."""
        flight = self._known.get(call_id)
        if flight is None:
            return None
        await flight.landed.wait()
        return flight.outcome
