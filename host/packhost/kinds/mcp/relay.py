"""What a server says while a call goes on, handed to the caller in order, without holding it up."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast, get_args

from packhost.kinds.context import CallContext, LogLevel

MOST: Final = 64
"""Messages that wait for a slow caller; older ones give way."""
_LAST: Final = 1.0
"""Seconds in which what is left is handed on once the call is over."""


class Relay:
    """Progress and log lines of one call."""

    def __init__(self, context: CallContext) -> None:
        self._context = context
        self._waiting: deque[Callable[[], Awaitable[None]]] = deque(maxlen=MOST)
        self._task: asyncio.Task[None] | None = None

    def advance(self, progress: float, total: float | None, message: str | None) -> None:
        """How far the call is."""
        self._add(lambda: self._context.report_progress(progress, total, message))

    def log(self, level: Any, data: Any, logger: Any) -> None:
        """A line; one of no known level counts as `info`."""
        known = cast(LogLevel, level if level in get_args(LogLevel) else "info")
        name = logger[:100] if isinstance(logger, str) else None
        self._add(lambda: self._context.log(known, data, name))

    async def end(self) -> None:
        """Hand on what is left, for a moment."""
        if self._task is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._task, _LAST)

    def _add(self, tell: Callable[[], Awaitable[None]]) -> None:
        self._waiting.append(tell)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._tell())

    async def _tell(self) -> None:
        while self._waiting:
            with contextlib.suppress(Exception):  # a caller that hears nothing does not end the call
                await self._waiting.popleft()()
