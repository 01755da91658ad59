"""The host of a workspace over a time in which it may come and go."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import anyio

from packhost.app import open_control
from packhost.app.entry import RemoteControl, workspace_root
from packhost.errors import StoreUnavailable

AWHILE: Final = 25
"""Seconds that one look for news lasts."""
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
