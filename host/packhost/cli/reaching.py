"""The host of a workspace over a time in which it may come and go."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import anyio

from packhost.app import open_control
from packhost.app.entry import RemoteControl, workspace_root
from packhost.errors import StoreUnavailable

AWHILE: Final = 25
"""Seconds that one look for news lasts."""
_MOST: Final = 200
"""Approvals that are shown at once."""
_AGAIN: Final = 1.0
"""Seconds between two looks for a host where there is none."""


class WhicheverHost:
    """Operations on the host that there is at the time of each.

    Where none runs, one is opened for the time of an operation and no longer: whoever only looks on must not
    be the host of others.
    """

    def __init__(self, start: Path | None) -> None:
        self._start = start
        with workspace_root(start) as root:
            self._remote = RemoteControl(root.socket)
        self.runs = True
        """Whether a host answered last."""

    async def request(self, op: str, params: dict[str, Any]) -> Any:
        """Run one operation; raises `PackhostError` as the host does."""
        try:
            found = await self._remote.request(op, params)
        except StoreUnavailable as error:
            if error.data:
                raise
            self.runs = False
        else:
            self.runs = True
            return found
        async with open_control(self._start) as control:
            return await control.request(op, params)

    async def news(self, after: int) -> int:
        """The last event's number, once there is another one than `after`, or after a while."""
        try:
            found = await self._remote.request("changes.wait", {"after": after, "within": AWHILE})
        except StoreUnavailable:
            self.runs = False
            await anyio.sleep(_AGAIN)
            return after
        self.runs = True
        return int(found["head"])


class Pending:
    """What waits, and what became of it."""

    def __init__(self, host: WhicheverHost) -> None:
        self.host = host
        self.rows: dict[str, dict[str, Any]] = {}
        """The approvals that wait, the oldest first."""
        self._head = 0

    async def look(self) -> list[dict[str, Any]]:
        """Look anew: those that came, and those that are over with what became of them."""
        found = await self.host.request("approvals.list", {"status": "pending", "limit": _MOST})
        rows = {row["id"]: row for row in reversed(found["approvals"])}
        over = [id for id in self.rows if id not in rows]
        changed = [await self.host.request("approvals.show", {"id": id}) for id in over]
        changed += [row for id, row in rows.items() if id not in self.rows]
        self.rows = rows
        return changed

    async def follow(self) -> AsyncIterator[list[dict[str, Any]]]:
        """What changed, whenever something may have; the first time everything that waits."""
        while True:
            yield await self.look()
            self._head = await self.host.news(self._head)
