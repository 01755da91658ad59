"""What a server tells of changes, passed on: once in a while, and only of what somebody wants to hear."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from packhost.kinds.mcp.peer import Gone, RpcError
from packhost.kinds.mcp.session import Session

Told = Callable[[str, str], None]
"""Hears of `tools`, `resources`, `prompts` or `resource`, the last with its URI, that changed."""
PAUSE: Final = 1.0
"""Seconds after news in which further ones are gathered: each client asks again for a list that changed."""


class News:
    """One server's news."""

    def __init__(self, told: Told) -> None:
        self._told = told
        self._gathered: dict[tuple[str, str], None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._asking: asyncio.Task[None] | None = None
        self.wanted: set[str] = set()
        """The resources that somebody wants to hear of from this server; it may tell of no other's."""

    def tell(self, what: str, uri: str = "") -> None:
        """Pass a change on, at once if there was none lately."""
        if what == "resource" and uri not in self.wanted:
            return
        if self._timer is not None:
            self._gathered[what, uri] = None
            return
        self._timer = asyncio.get_running_loop().call_later(PAUSE, self._go_on)
        self._told(what, uri)

    def resume(self, session: Session) -> None:
        """Have a server that has just been started tell of what somebody wants to hear of."""
        session.watched |= self.wanted
        session.listen()
        if not session.modern and self.wanted:
            self._asking = asyncio.get_running_loop().create_task(self._ask(session, tuple(self.wanted)))

    async def _ask(self, session: Session, wanted: tuple[str, ...]) -> None:
        for uri in wanted:
            with contextlib.suppress(RpcError, Gone):
                await session.request("resources/subscribe", {"uri": uri})

    def close(self) -> None:
        """Nothing is passed on any more."""
        for one in (self._timer, self._asking):
            if one is not None:
                one.cancel()

    def _go_on(self) -> None:
        gathered, self._gathered, self._timer = self._gathered, {}, None
        if gathered:
            self._timer = asyncio.get_running_loop().call_later(PAUSE, self._go_on)
        for what, uri in gathered:
            self._told(what, uri)
