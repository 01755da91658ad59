"""A server told to stop: it lets what is under way end, within a time of grace."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import anyio

GRACE: Final = 10.0
"""Seconds from the signal to the end, unless told otherwise."""
_TO_END: Final = 1.5
"""Of them, those that the end itself may take: connections, processes, the last words to the store."""


async def _nothing(_: float) -> None:
    """What a server drains that has nothing under way."""


@dataclass(frozen=True, slots=True)
class Stopping:
    """How to stop: `drain` takes nothing new and returns once what is under way has ended.

    It is told within how many seconds.
    """

    drain: Callable[[float], Awaitable[None]] = _nothing
    grace: float = GRACE

    async def upon_signal(self, begin: Callable[[], None], end: Callable[[], None]) -> None:
        """Wait for SIGTERM or SIGINT: `begin`, drain, then `end`. A second signal ends at once."""
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async with anyio.create_task_group() as tasks:

                async def drain() -> None:
                    begin()
                    within = max(self.grace - _TO_END, self.grace / 2)
                    with anyio.move_on_after(within):
                        await self.drain(within)
                    end()

                told = False
                async for _ in signals:
                    if told:
                        tasks.cancel_scope.cancel()
                        end()
                        return
                    told = True
                    tasks.start_soon(drain)
