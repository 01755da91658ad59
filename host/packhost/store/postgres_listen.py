"""Hearing of other hosts' commits: one LISTEN connection in a thread, and now and then a look."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import threading
from collections.abc import Callable

import psycopg

from packhost.errors import PackhostError
from packhost.store.address import Address
from packhost.store.postgres_connection import Bounded, connect
from packhost.store.postgres_session import CLOCK, Clock, last_row

log = logging.getLogger(__name__)

_LOOK = f"SELECT COALESCE(MAX(id), 0), {CLOCK} FROM events"  # noqa: S608  # nothing of anybody's is in it
LOOK_EVERY = 2.0
"""Seconds between two looks at the end of the record, should a notification be lost."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0


class Listener:
    """Tells `heard` which topics were touched by other hosts, or `None` when it may be any.

    `heard` is called in this thread. `own` is the backend of this host's writer, whose commits are
    known already. After every new connection it may have been any topic.
    """

    def __init__(
        self,
        address: Address,
        heard: Callable[[frozenset[str] | None], None],
        own: Callable[[], int],
        clock: Clock,
    ) -> None:
        self._address = address
        self._heard = heard
        self._own = own
        self._clock = clock
        self._wake, self._end = os.pipe()
        self._last = -1
        self._thread = threading.Thread(target=self._run, name="packhost-store-listen", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread; idempotent."""
        if self._thread.is_alive():
            os.write(self._end, b"x")
            self._thread.join()
        if self._wake >= 0:
            os.close(self._wake)
            os.close(self._end)
            self._wake = self._end = -1

    def _run(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            connection: Bounded | None = None
            try:
                connection = connect(self._address, "listen")
                connection.execute(f'LISTEN "{self._address.schema}"'.encode())
                pause = _FIRST_PAUSE
                self._look(connection)
                self._heard(None)
                self._listen(connection)
                return
            except (psycopg.Error, OSError, PackhostError) as error:
                log.debug("not listening to the store's database: %s", self._address.clean(str(error)))
            finally:
                if connection is not None:
                    with contextlib.suppress(psycopg.Error, OSError):
                        connection.close()
            if self._asked_to_end(pause):
                return
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _listen(self, connection: Bounded) -> None:
        """Returns when it is to end; raises when the connection is lost."""
        socket = connection.fileno()
        while True:
            ready, _, _ = select.select([socket, self._wake], [], [], LOOK_EVERY)
            if self._wake in ready:
                return
            if not ready and self._look(connection):
                self._heard(None)
            self._tell(connection)

    def _tell(self, connection: Bounded) -> None:
        own, topics, every = self._own(), set[str](), False
        for notice in connection.notifies(timeout=0):
            head, _, listed = notice.payload.partition(" ")
            self._last = int(head)
            if notice.pid == own:
                continue
            if not listed:
                every = True
            topics.update(json.loads(listed or "[]"))
        if every or topics:
            self._heard(None if every else frozenset(topics))

    def _look(self, connection: Bounded) -> bool:
        """Whether the record has grown since the last look without a word."""
        last = self._last
        self._last, now = last_row(connection.cursor(), _LOOK)
        self._clock.set(now)
        return self._last != last

    def _asked_to_end(self, seconds: float) -> bool:
        return bool(select.select([self._wake], [], [], seconds)[0])
