"""Which calls are let in, and how many are under way: a host that stops takes no new one."""

from __future__ import annotations

from types import TracebackType

import anyio

from packhost.gate.types import Refusal


class Admission:
    """Counts calls under way; used as a context manager around each."""

    def __init__(self) -> None:
        self.open = True
        """Whether calls are let in."""
        self._under_way = 0
        self._none = anyio.Event()

    def close(self) -> None:
        """Let no further call in."""
        self.open = False

    async def empty(self) -> None:
        """Return once no call is under way."""
        while self._under_way:
            self._none = anyio.Event()
            await self._none.wait()

    def refusal(self) -> Refusal:
        """What a call is told that comes too late."""
        return Refusal(
            "CANCELLED",
            "packhost is stopping and takes no call any more",
            "nothing happened: make the same call again once it serves anew, or at another host",
        )

    def begin(self) -> None:
        """A call is under way."""
        self._under_way += 1

    def end(self) -> None:
        """It is no more."""
        self._under_way -= 1
        if not self._under_way:
            self._none.set()

    def __enter__(self) -> None:
        self.begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
