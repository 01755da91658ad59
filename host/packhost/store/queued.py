"""The half of a store that is the same on both databases: the queue before the writer, and who waits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Concatenate, ParamSpec, TypeVar

import anyio
from anyio.lowlevel import checkpoint_if_cancelled

from packhost.errors import StoreUnavailable
from packhost.store.base import Tx
from packhost.store.watches import TopicWatch, Watches
from packhost.store.writer import Told, Writer, nothing

P = ParamSpec("P")
T = TypeVar("T")


class Queued:
    """Writes through `_writer` and wakes through `_watches`, which a store makes when it is opened."""

    _writer: Writer
    _watches: Watches

    async def write(self, op: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `op`, return its result after COMMIT; shielded from cancellation until then."""
        waiter = self._writer.submit(op, args, kwargs)
        with anyio.CancelScope(shield=True):
            result: T = await waiter
        await checkpoint_if_cancelled()
        return result

    def post(
        self, op: Callable[Concatenate[Tx, P], object], *args: P.args, **kwargs: P.kwargs
    ) -> Awaitable[object] | None:
        """Queue `op` best effort; something to await only when too many wait already."""
        return self._writer.post(op, args, kwargs)

    async def flush(self) -> None:
        """Return once everything queued so far was committed or has failed."""
        with suppress(StoreUnavailable):
            await self.write(nothing)

    def watch(self, topic: str) -> TopicWatch:
        """Wait for commits that touched `topic`, on this host or on another that shares the store."""
        return self._watches.watch(topic)

    def tell_commits(self, told: Told | None) -> None:
        """Let somebody know of each transaction of the writer."""
        self._writer.told = told
