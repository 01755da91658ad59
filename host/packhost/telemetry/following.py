"""Following the record of a host as it is written, for whoever turns events into spans, numbers or lines."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

import anyio

from packhost.errors import StoreUnavailable
from packhost.journal import Record
from packhost.store.base import Store
from packhost.store.ops import events

log = logging.getLogger(__name__)
Sink = Callable[[Record], None]
"""Takes one event; it must neither fail nor wait."""
_PAGE: Final = 500
_PAUSE: Final = 0.2
"""Seconds in which events gather: looking is not for each commit."""


class Follower:
    """Hands every event from its making on to the sinks, in order."""

    def __init__(self, store: Store, sinks: Sequence[Sink], pause: float = _PAUSE) -> None:
        self._store = store
        self._sinks = sinks
        self._pause = pause
        self._cursor = store.read(events.head).id

    async def follow(self) -> None:
        """Hand over what comes, for as long as the task lives."""
        with self._store.watch("events") as watch:
            while True:
                self.catch_up()
                await watch.changed()
                await anyio.sleep(self._pause)

    def catch_up(self) -> None:
        """Hand over everything that has come by now."""
        try:
            while page := self._store.read(events.page, self._cursor, None, _PAGE):
                for record in page:
                    for sink in self._sinks:
                        _give(sink, record)
                self._cursor = page[-1].id
        except StoreUnavailable as error:
            log.debug("the record cannot be followed now: %s", error)


def _give(sink: Sink, record: Record) -> None:
    try:
        sink(record)
    except Exception:  # what looks on must not take the host down
        log.exception("event %d could not be told of", record.id)
