"""`GET /console/live`: tells a page that something was committed, so that it fetches itself anew."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

import anyio
from starlette.responses import StreamingResponse

from packhost.control.base import Control
from packhost.errors import PackhostError

MOST: Final = 64
"""Streams that one console has open at once."""
_WITHIN: Final = 20
"""Seconds after which a stream on which nothing happens says that it is there, and looks at its session."""
_PAUSE: Final = 0.25
"""Seconds between two events of one stream."""


class Live:
    """The streams of one console."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._open = 0

    def stream(self, secret: str, after: int) -> StreamingResponse:
        """A stream for one session, from the event `after` on.

        :raises PackhostError: `LIMIT_EXCEEDED` when too many are open.
        """
        if self._open >= MOST:
            raise PackhostError(
                "too many pages of this console are open", code="LIMIT_EXCEEDED", hint="close some of them"
            )
        return StreamingResponse(self._follow(secret, after), media_type="text/event-stream")

    async def _follow(self, secret: str, after: int) -> AsyncIterator[str]:
        self._open += 1
        try:
            yield "retry: 3000\n\n"
            while True:
                found = await self._changed(secret, after)
                if found is None:
                    yield "event: end\ndata: the session is over\n\n"
                    return
                if found["changed"]:
                    after = found["head"]
                    yield f"event: change\nid: {after}\ndata: {found['waiting']}\n\n"
                    await anyio.sleep(_PAUSE)
                else:
                    yield ": still here\n\n"
        except PackhostError:
            return  # the host is gone: the browser comes again
        finally:
            self._open -= 1

    async def _changed(self, secret: str, after: int) -> dict[str, Any] | None:
        """What came after; `None` once the session is over."""
        asked = {"session": secret, "op": "changes.wait", "params": {"after": after, "within": _WITHIN}}
        try:
            found = await self._control.request("console.act", asked)
            whose = await self._control.request("console.enter", {"session": secret, "idle": True})
        except PackhostError as error:
            if error.data.get("signed_out"):
                return None
            raise
        return {**found, "waiting": whose["waiting"]}
