"""The one writer: a thread that drains a queue into one transaction at a time (group commit).

An op that raises leaves nothing behind: when it, or the commit, spoils a batch, the batch is
rolled back and its ops run again one by one, so that only the poisonous one fails. Guards raise
before anything was written and cost no rollback.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from packhost.errors import Conflict, PackhostError, StoreUnavailable
from packhost.store.base import Tx

log = logging.getLogger(__name__)

MAX_BATCH = 256
MAX_POSTED = 1024
"""How many best-effort ops may wait before `post` asks its caller to wait."""
Told = Callable[[int, float], None]
"""Takes how many ops a transaction had and the seconds that it took, in the writer's thread; never raises."""
LINGER = 0.005
"""Seconds for which a best-effort op waits for company; an awaited write takes it along at once."""


class CommitUnknown(StoreUnavailable):
    """The database was lost in the middle of a commit: it may have held, so nothing is run again."""


class Session(Tx, Protocol):
    """A connection that the writer drives; used from its thread alone."""

    @property
    def changes(self) -> int:
        """How many rows were ever changed: tells whether an op that raised had written."""

    def begin(self) -> None: ...

    def commit(self) -> frozenset[str]:
        """Commit, and say which topics were touched.

        Raises `CommitUnknown` when it cannot be told whether it held; after any other error it did not.
        """

    def rollback(self) -> None: ...

    def explain(self, error: BaseException) -> PackhostError | None:
        """A database's error as one of ours; `None` for any other."""

    def close(self) -> None: ...


class Waiter(asyncio.Future[Any]):
    """A future that cannot be cancelled.

    Cancelling a task that awaits it is thereby put off until it is done; asyncio then raises the
    cancellation in place of the result.
    """

    def cancel(self, msg: Any | None = None) -> bool:
        return False


class Item:
    """An op on its way; `waiter` is `None` when nobody awaits it."""

    __slots__ = ("args", "error", "kwargs", "op", "posted", "result", "waiter")

    def __init__(
        self,
        op: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        waiter: Waiter | None,
        posted: bool = False,
    ) -> None:
        self.op = op
        self.args = args
        self.kwargs = kwargs
        self.waiter = waiter
        self.posted = posted
        self.result: Any = None
        self.error: BaseException | None = None


class Writer:
    """Runs ops on `session` in a thread of its own; used from one event loop.

    `committed` is called in the loop after each commit with the topics that it touched.
    """

    def __init__(
        self,
        session: Session,
        committed: Callable[[frozenset[str]], None],
        *,
        max_batch: int = MAX_BATCH,
        max_posted: int = MAX_POSTED,
        linger: float = LINGER,
    ) -> None:
        self._session = session
        self._committed = committed
        self._max_batch = max_batch
        self._max_posted = max_posted
        self._linger = linger
        self._queue: queue.SimpleQueue[list[Item] | None] = queue.SimpleQueue()
        self._held: list[Item] = []
        self._timer: asyncio.TimerHandle | None = None
        self._posted = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="packhost-store", daemon=True)
        self._closed = False
        self.told: Told | None = None
        self._thread.start()

    def submit(self, op: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Waiter:
        """Hand an op to the writer at once; done after its commit. Raises `StoreUnavailable` when closed."""
        waiter = Waiter(loop=self._bind())
        self._held.append(Item(op, args, kwargs, waiter))
        self._send()
        return waiter

    def post(self, op: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Waiter | None:
        """Queue an op best effort; when too many wait, a future that ends with it and never raises."""
        loop = self._bind()
        self._posted += 1
        if self._posted > self._max_posted:
            waiter = Waiter(loop=loop)
            self._held.append(Item(op, args, kwargs, waiter, posted=True))
            self._send()
            return waiter
        self._held.append(Item(op, args, kwargs, None, posted=True))
        if self._timer is None:
            self._timer = loop.call_later(self._linger, self._send)
        return None

    async def close(self) -> None:
        """Finish what is queued and end the thread; idempotent."""
        if self._closed:
            return
        waiter = self.submit(nothing, (), {})
        self._closed = True
        self._queue.put(None)
        # what could not be committed was told to whoever waits for it
        with contextlib.suppress(StoreUnavailable):
            await waiter
        self._thread.join()

    def abandon(self) -> None:
        """End the thread without an event loop, when none was ever used; what is queued still runs."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
            self._thread.join()

    def _bind(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            if self._loop is not None and not self._loop.is_closed():
                raise StoreUnavailable(
                    "the store is used from a second event loop", hint="use it from the loop that it began in"
                )
            self._loop = loop
        if self._closed:
            raise StoreUnavailable("the store is closed", hint="start packhost again")
        return loop

    def _send(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._held:
            items, self._held = self._held, []
            self._queue.put(items)

    def _run(self) -> None:
        items: list[Item] | None = self._queue.get()
        while items is not None:
            batch, items = items, []
            while len(batch) < self._max_batch:
                try:
                    more = self._queue.get_nowait()
                except queue.Empty:
                    break
                if more is None:
                    items = None
                    break
                batch.extend(more)
            self._report(batch, self._together(batch) if self.told is None else self._timed(batch, self.told))
            if items is not None:
                items = self._queue.get()
        self._session.close()

    def _timed(self, batch: list[Item], told: Told) -> frozenset[str]:
        began = time.perf_counter()
        try:
            return self._together(batch)
        finally:
            told(len(batch), time.perf_counter() - began)

    def _together(self, batch: list[Item]) -> frozenset[str]:
        session = self._session
        if not self._begin(batch):
            return frozenset()
        try:
            for item in batch:
                before = session.changes
                try:
                    item.result = item.op(session, *item.args, **item.kwargs)
                except PackhostError as error:
                    if session.changes != before:
                        raise
                    item.error = error
            return session.commit()
        except CommitUnknown as error:
            self._undo()
            for item in batch:
                item.error = item.error or error
            return frozenset()
        except BaseException:
            self._undo()
        touched: frozenset[str] = frozenset()
        for item in batch:
            touched |= self._alone(item)
        return touched

    def _alone(self, item: Item) -> frozenset[str]:
        session = self._session
        item.result, item.error = None, None
        if not self._begin([item]):
            return frozenset()
        try:
            item.result = item.op(session, *item.args, **item.kwargs)
            return session.commit()
        except BaseException as error:
            self._undo()
            item.result, item.error = None, session.explain(error) or error
            return frozenset()

    def _begin(self, batch: list[Item]) -> bool:
        # A failure here is nobody's op: trying them singly would wait for a busy database each time.
        try:
            self._session.begin()
        except Exception as error:
            for item in batch:
                item.error = self._session.explain(error) or error
            return False
        return True

    def _undo(self) -> None:
        try:
            self._session.rollback()
        except Exception:
            log.exception("the store could not roll back")

    def _report(self, batch: list[Item], touched: frozenset[str]) -> None:
        loop = self._loop
        try:
            if loop is not None:
                loop.call_soon_threadsafe(self._settle, batch, touched)
        except RuntimeError:
            log.debug("the event loop ended before %d committed ops were reported", len(batch))

    def _settle(self, batch: list[Item], touched: frozenset[str]) -> None:
        for item in batch:
            if item.posted:
                self._posted -= 1
                if item.error is not None:
                    _log_lost(item.error)
                    item.error = None
            waiter = item.waiter
            if waiter is None:
                continue
            if isinstance(item.error, StopIteration):
                waiter.set_exception(RuntimeError("an op of the store raised StopIteration"))
            elif item.error is not None:
                waiter.set_exception(item.error)
            else:
                waiter.set_result(item.result)
        if touched:
            self._committed(touched)


def nothing(tx: Tx) -> None:
    """An op that only marks a place in the queue."""


def _log_lost(error: BaseException) -> None:
    if isinstance(error, Conflict):
        log.info("a best-effort record was not kept: %s", error)
    elif isinstance(error, PackhostError):
        log.warning("a best-effort record was not kept: %s", error)
    else:
        log.error("a best-effort record was not kept", exc_info=error)
