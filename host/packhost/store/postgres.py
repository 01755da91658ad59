"""The store on PostgreSQL: one schema a workspace, which any number of hosts share.

Writers of all hosts follow one another by an advisory lock, held from the beginning of each
transaction, so that ops behave as on SQLite. Every host has three connections: one writes, one
reads, one listens for what other hosts commit.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import anyio
import psycopg

from packhost.errors import StoreUnavailable
from packhost.store.address import Address
from packhost.store.base import Reading, Rows, StoreInfo
from packhost.store.postgres_connection import Bounded, connect, explain, fit, is_lost
from packhost.store.postgres_link import Link
from packhost.store.postgres_listen import Listener
from packhost.store.postgres_migrations import bring_up
from packhost.store.postgres_session import CLOCK, Clock, PostgresReading, PostgresTx, Statements, last_row
from packhost.store.queued import Queued
from packhost.store.schema import MIGRATIONS, Migration
from packhost.store.watches import Watches
from packhost.store.writer import MAX_POSTED, Writer

P = ParamSpec("P")
T = TypeVar("T")

_FETCH = 2_000
"""Rows that a long read takes at once."""


class PostgresStore(Queued):
    """The `Store` of one workspace in a PostgreSQL database; see `packhost.store.base`.

    Opening it creates or migrates its schema; `copies` is the folder for a copy of the schema before
    that. Raises `StoreUnavailable` when the database cannot be used, `PackhostError` with
    `STORE_NEWER` when a later packhost wrote it.
    """

    def __init__(
        self,
        address: Address,
        *,
        copies: Path | None = None,
        migrations: Sequence[Migration] = MIGRATIONS,
        max_posted: int = MAX_POSTED,
    ) -> None:
        self.address = address
        self.workspace = address.workspace
        self._clock = Clock()
        self._statements = Statements()
        with self._explained():
            self._writing = Link(address, "write")
            try:
                connection = self._writing.get()
                self._label = f"PostgreSQL {fit(connection, address)}"
                self.backup = bring_up(connection, address, migrations, copies)
                self._clock.set(last_row(connection.cursor(), f"SELECT {CLOCK}")[0])
                self._reader = Link(address, "read")
            except BaseException:
                self._writing.close()
                raise
        self._view = PostgresReading(address.workspace, self._clock, self._statements)
        self._tx = PostgresTx(address, self._writing, self._clock)
        self._watches = Watches(self._listen)
        self._writer = Writer(self._tx, self._watches.wake, max_posted=max_posted)
        self._reading = threading.Lock()
        self._listener: Listener | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._open = True

    def read(self, op: Callable[Concatenate[Reading, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a short look-up in one snapshot; on a new connection once more when the old one is gone."""
        with self._reading:
            if not self._open:
                raise StoreUnavailable("the store is closed", hint="start packhost again")
            for attempt in (1, 2):
                connection = self._reader.get()
                try:
                    return self._look(connection, op, args, kwargs)
                except (psycopg.Error, UnicodeEncodeError) as error:
                    if is_lost(error):
                        self._reader.lose(connection, error)
                        if attempt == 1:
                            continue
                    raise explain(error, self.address) or error from error
        raise self._reader.unavailable()

    def _look(
        self, connection: Bounded, op: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> T:
        view = self._view
        view.begin(connection)
        try:
            return op(view, *args, **kwargs)
        finally:
            if not connection.closed:
                view.end()

    @contextmanager
    def snapshot(self) -> Iterator[Reading]:
        """A view for long reads, on a connection of its own."""
        with self._explained():
            connection = connect(self.address, "long read")
        view = _Snapshot(self.workspace, self._clock, self._statements)
        try:
            view.begin(connection)
            yield view
        except psycopg.Error as error:
            raise explain(error, self.address) or error from error
        finally:
            view.close(connection)

    def now(self) -> float:
        """The database's clock, as last seen and carried on by this machine's."""
        return self._clock.now()

    @property
    def label(self) -> str:
        """The database in a few words."""
        return self._label

    def info(self) -> StoreInfo:
        """What the store is and holds."""
        schema, last, size = self.read(_facts, self.address.schema)
        return StoreInfo("postgresql", self.address.shown, self.label, schema, last, size)

    async def close(self) -> None:
        """Commit what is queued and let go of the database; idempotent."""
        with anyio.CancelScope(shield=True):
            await self._writer.close()
        self._let_go()

    def close_now(self) -> None:
        """`close` for a store that was only read, or whose event loop has ended."""
        self._writer.abandon()
        self._let_go()

    def _let_go(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        with self._reading:
            self._open = False
            self._reader.close()

    def _listen(self) -> None:
        """Somebody waits: hear of other hosts from now on."""
        if self._listener is None and self._open:
            self._loop = asyncio.get_running_loop()
            self._listener = Listener(self.address, self._heard, lambda: self._tx.backend, self._clock)

    def _heard(self, topics: frozenset[str] | None) -> None:
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # the loop has ended
                if topics is None:
                    loop.call_soon_threadsafe(self._watches.wake_all)
                else:
                    loop.call_soon_threadsafe(self._watches.wake, topics)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (psycopg.Error, OSError) as error:
            raise explain(error, self.address) or error from error


class _Snapshot(PostgresReading):
    """A long read: rows are taken from the database as they are wanted."""

    def __init__(self, workspace: str, clock: Clock, statements: Statements) -> None:
        super().__init__(workspace, clock, statements)
        self._cursors: list[psycopg.ServerCursor[tuple[Any, ...]]] = []

    def execute(self, sql: str, params: Sequence[Any] = ()) -> Rows:
        """Run one query with `?` placeholders; its rows may be read until the snapshot ends."""
        cursor = self.cursor.connection.cursor(f"rows_{len(self._cursors)}")
        self._cursors.append(cursor)
        cursor.itersize = _FETCH
        return cursor.execute(self._statements[sql].text, params)

    def close(self, connection: Bounded) -> None:
        """End it, and every look in it that was left early."""
        connection.close()
        for cursor in self._cursors:
            cursor.close()


def _facts(tx: Reading, schema: str) -> tuple[int, int, int]:
    row = tx.execute(
        "SELECT (SELECT MAX(version) FROM schema_migrations), (SELECT COALESCE(MAX(id), 0) FROM events),"
        " (SELECT SUM(pg_total_relation_size(oid))::bigint FROM pg_class"
        " WHERE relkind='r' AND relnamespace=to_regnamespace(?))",
        (f'"{schema}"',),
    ).fetchone()
    return int(row[0]), int(row[1]), int(row[2])
