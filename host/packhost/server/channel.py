"""The way back to a client while its request is open: progress, and what a result may weigh."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final, get_args

from mcp import types
from mcp.server.context import ServerRequestContext
from mcp.shared.jsonrpc_dispatcher import progress_token_from_params
from mcp_types import LOG_LEVEL_META_KEY

from packhost.kinds.eliciting import LogLevel
from packhost.server.callers import headers_of, is_modern
from packhost.server.wire import EVENT_LIMIT

_LEVELS: Final[tuple[str, ...]] = (*get_args(LogLevel), "none")
_QUIET: Final = 12.0
"""Seconds within which a silent stateless HTTP request is still answered by plain JSON."""


class Channel:
    """One open request. Progress only ever grows, as the protocol wants it, whoever reports."""

    def __init__(self, ctx: ServerRequestContext[Any, Any]) -> None:
        self._ctx = ctx
        self.wanted = progress_token_from_params(ctx.params) is not None
        """Whether the client asked to be told of progress."""
        self._started = time.monotonic()
        self._sent = False
        self._last = 0.0
        self._offset = 0.0

    async def report(self, progress: float, total: float | None, message: str | None) -> None:
        """Tell the client how far a tool is, if it asked to know."""
        if not self.wanted:
            return
        value = progress + self._offset
        if self._sent and value <= self._last:
            return
        await self._send(value, total + self._offset if total is not None else None, message)

    async def waiting(self, message: str) -> None:
        """Tell the client what it waits for; what the tool reports later counts on from here."""
        if not self.wanted:
            return
        self._offset = self._last + 1
        await self._send(self._offset, None, message)

    async def log(self, level: LogLevel, data: Any, logger: str | None) -> None:
        """Tell the client a line, if it takes such."""
        if _LEVELS.index(level) < _LEVELS.index(self._threshold()):
            return
        params = types.LoggingMessageNotificationParams(level=level, data=data, logger=logger)
        line = types.LoggingMessageNotification(params=params)
        await self._ctx.session.send_notification(line, self._ctx.request_id)

    def _threshold(self) -> str:
        """The least level that this client is told: said with each request, or once for its session."""
        if not is_modern(self._ctx):
            peer = self._ctx.lifespan_context.peer(self._ctx)
            return "info" if peer is None else peer.log_level
        meta = (self._ctx.params or {}).get("_meta")
        wanted = meta.get(LOG_LEVEL_META_KEY) if isinstance(meta, Mapping) else None
        return wanted if wanted in _LEVELS else "none"

    @property
    def limit(self) -> int | None:
        """The size of a result that the way back carries, in bytes; `None` is no limit."""
        if headers_of(self._ctx) is None:
            return None
        quiet = not self._sent and time.monotonic() - self._started < _QUIET
        return None if is_modern(self._ctx) and quiet else EVENT_LIMIT

    async def _send(self, value: float, total: float | None, message: str | None) -> None:
        self._last = value
        self._sent = True
        await self._ctx.session.report_progress(value, total, message)
