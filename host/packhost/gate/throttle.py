"""How many calls of one tool a principal may make: so many at once, and so many a minute.

A call that is over the limit does not begin, and leaves no line in the record: a flood of refused calls
fills nothing. Calls within a call are not counted, the outer one is.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import anyio

from packhost.gate.configuration import Configuration
from packhost.gate.types import CallRequest, Refusal

REMEMBERED = 10_000
"""Pairs of principal and tool whose use is kept in mind; those idle for longest are forgotten first."""
SOON = 1
"""Seconds after which a call may be tried again that found too many under way."""


@dataclass(slots=True)
class _Use:
    left: float
    seen: float
    under_way: int = 0


class Throttle:
    """Holds every principal to the limits, tool by tool."""

    def __init__(self, configuration: Callable[[], Configuration]) -> None:
        self._configuration = configuration
        self._uses: OrderedDict[tuple[str, str], _Use] = OrderedDict()

    @contextmanager
    def call(self, request: CallRequest) -> Iterator[Refusal | None]:
        """Count a call for as long as it goes on; gives the refusal of one that is too many."""
        configuration, principal = self._configuration(), request.caller.principal
        inside = request.caller.run_id is not None
        entry = None if request.inline else configuration.catalog.find(request.tool, inside=inside)
        tool = "inline" if entry is None else entry.tool.id.canonical
        at_once, a_minute = configuration.limits.calls_at_once, configuration.limits.calls_per_minute
        use = self._used((principal, tool), a_minute)
        if use.under_way >= at_once:
            yield _refusal(tool, principal, f"{at_once} calls at once", SOON)
            return
        if use.left < 1:
            yield _refusal(tool, principal, f"{a_minute} calls a minute", (1 - use.left) * 60 / a_minute)
            return
        use.left -= 1
        use.under_way += 1
        try:
            yield None
        finally:
            use.under_way -= 1

    def _used(self, key: tuple[str, str], a_minute: int) -> _Use:
        now = anyio.current_time()
        use = self._uses.get(key)
        if use is None:
            use = self._uses[key] = _Use(float(a_minute), now)
            self._forget()
        self._uses.move_to_end(key)
        use.left = min(float(a_minute), use.left + (now - use.seen) * a_minute / 60)
        use.seen = now
        return use

    def _forget(self) -> None:
        if len(self._uses) > REMEMBERED:
            idle = next((key for key, use in self._uses.items() if not use.under_way), None)
            if idle is not None:
                del self._uses[idle]


def _refusal(tool: str, principal: str, limit: str, seconds: float) -> Refusal:
    wait = max(1, math.ceil(seconds))
    return Refusal(
        "LIMIT_EXCEEDED",
        f"`{principal}` has had its {limit} of `{tool}`",
        f"nothing happened; make the same call again in {wait} s",
        data={"retry_after": wait},
    )
