"""A connection to PostgreSQL that comes back by itself when it is lost."""

from __future__ import annotations

import contextlib
import logging
import threading
import time

import psycopg

from packhost.errors import PackhostError, StoreUnavailable
from packhost.store.address import Address
from packhost.store.postgres_connection import Bounded, Role, connect, explain

log = logging.getLogger(__name__)

RETURN_WITHIN = 1.0
"""Seconds after a loss for which whoever needs the connection waits for it; after them all fail at once."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0


class Link:
    """One connection in one role, opened at once; raises psycopg's errors when that fails.

    While it is lost a thread of its own tries to open it again, more slowly each time.
    """

    def __init__(self, address: Address, role: Role) -> None:
        self._address = address
        self._role = role
        self._connection: Bounded | None = connect(address, role)
        self._back = threading.Event()
        self._back.set()
        self._closed = threading.Event()
        self._lost_at = 0.0
        self._why: BaseException | None = None
        self._lock = threading.Lock()

    @property
    def connected(self) -> bool:
        """There is a connection, as far as is known."""
        return self._connection is not None

    def get(self) -> Bounded:
        """The connection; waits for it when it was lost just now.

        Raises `StoreUnavailable`, at once when it was lost longer ago.
        """
        left = self._lost_at + RETURN_WITHIN - time.monotonic()
        if self._connection is None and left > 0:
            self._back.wait(left)
        connection = self._connection
        if connection is None:
            raise self.unavailable()
        return connection

    def unavailable(self) -> PackhostError:
        """The error for whoever needs the connection now."""
        if self._closed.is_set():
            return StoreUnavailable("the store is closed", hint="start packhost again")
        why = explain(self._why, self._address) if self._why is not None else None
        return why or StoreUnavailable(
            f"`{self._address.shown}` cannot be reached", hint="look whether the database runs"
        )

    def await_return(self, seconds: float) -> Bounded | None:
        """The connection, waited for so long when it is lost."""
        self._back.wait(max(0.0, seconds))
        return self._connection

    def lose(self, connection: Bounded | None, error: BaseException) -> None:
        """This connection is of no use any more: begin to open another."""
        with self._lock:
            if connection is None or connection is not self._connection:
                return
            self._connection, self._why, self._lost_at = None, error, time.monotonic()
            self._back.clear()
        _discard(connection)
        if not self._closed.is_set():
            log.warning("lost the store's database (%s): trying again", self._role)
            threading.Thread(target=self._return, name="packhost-store-return", daemon=True).start()

    def close(self) -> None:
        """Let go of it for good."""
        self._closed.set()
        self._back.set()
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            _discard(connection)

    def _return(self) -> None:
        pause = _FIRST_PAUSE
        while not self._closed.is_set():
            try:
                connection = connect(self._address, self._role)
            except (psycopg.Error, OSError, PackhostError) as error:
                self._why = error
                self._closed.wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
                continue
            with self._lock:
                if not self._closed.is_set():
                    self._connection = connection
                    self._back.set()
                    log.info("the store's database is back (%s)", self._role)
                    return
            _discard(connection)


def _discard(connection: Bounded) -> None:
    with contextlib.suppress(psycopg.Error, OSError):
        connection.close()
