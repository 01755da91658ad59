"""The store on SQLite: one writing connection in its thread, one reading connection beside it.

Nothing else may write or checkpoint: SQLite before 3.51.3 can lose commits when two connections
do so at one instant. The caller therefore holds the `HostLock` for as long as a store is open.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import anyio

from packhost.errors import Conflict, InvalidInput, PackhostError, StoreUnavailable
from packhost.store.base import Reading, StoreInfo
from packhost.store.chain import Chain
from packhost.store.migrations import migrate
from packhost.store.queued import Queued
from packhost.store.schema import MIGRATIONS, Migration
from packhost.store.watches import Watches
from packhost.store.writer import MAX_POSTED, Writer

P = ParamSpec("P")
T = TypeVar("T")

STORE_NAME = "store.db"
BUSY = 5.0
"""Seconds for which a statement waits for another process that has the database."""


class SqliteReading:
    """A read-only view on one connection."""

    __slots__ = ("connection", "execute", "workspace")

    def __init__(self, connection: sqlite3.Connection, workspace: str) -> None:
        self.connection = connection
        self.execute = connection.execute
        self.workspace = workspace

    def now(self) -> float:
        """The store's clock."""
        return time.time()


class Place:
    """Where the database lies, and that it still does: what is written to a removed file is lost."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = self._found()

    def _found(self) -> tuple[int, int]:
        found = os.stat(self._path)
        return found.st_dev, found.st_ino

    def check(self) -> None:
        """Raise `StoreUnavailable` when another file, or none, lies there."""
        with suppress(FileNotFoundError, NotADirectoryError):
            if self._found() == self._file:
                return
        raise StoreUnavailable(
            f"`{self._path}` was removed or replaced while it was in use",
            hint="end this host, put the state folder back or restore a backup, then start it again",
        )


class SqliteTx(SqliteReading):
    """The writing connection; the chain's head is kept in memory between commits."""

    __slots__ = ("_chain", "_place")

    def __init__(self, connection: sqlite3.Connection, workspace: str, place: Place | None = None) -> None:
        super().__init__(connection, workspace)
        self._place = place
        self._chain = Chain(workspace, connection.execute, time.time)

    @property
    def changes(self) -> int:
        """How many rows this connection has changed."""
        return self.connection.total_changes

    def begin(self) -> None:
        if self._place is not None:
            self._place.check()
        self.execute("BEGIN IMMEDIATE")

    def commit(self) -> frozenset[str]:
        self.execute("COMMIT")
        return self._chain.touched()

    def rollback(self) -> None:
        self._chain.forget()
        if self.connection.in_transaction:
            self.execute("ROLLBACK")

    def close(self) -> None:
        self.connection.close()

    def explain(self, error: BaseException) -> PackhostError | None:
        return explain(error)

    def touch(self, topic: str) -> None:
        """Wake whoever watches the topic, after the commit."""
        self._chain.topics.add(topic)

    def emit(
        self,
        type: str,
        data: Mapping[str, Any] | str,
        *,
        execution_id: str | None = None,
        call_id: str | None = None,
        actor: str = "",
    ) -> int:
        """Append an event to the chain."""
        return self._chain.append(type, data, execution_id, call_id, actor)


class SqliteStore(Queued):
    """The `Store` of one workspace in the file `path`; see `packhost.store.base`.

    Opening it creates or migrates the database. Raises `StoreUnavailable` when that cannot be
    done, `PackhostError` with `STORE_NEWER` when a later packhost wrote it.
    """

    def __init__(
        self,
        path: Path,
        workspace: str,
        *,
        migrations: Sequence[Migration] = MIGRATIONS,
        max_posted: int = MAX_POSTED,
    ) -> None:
        self.path = path
        self.workspace = workspace
        self._watches = Watches()
        self._reading = threading.Lock()
        with _explained(path):
            _make_private(path)
            writing = _connect(path)
            try:
                _prepare(writing)
                self.backup = migrate(writing, path, migrations)
                reader = _read_only(path)
            except BaseException:
                writing.close()
                raise
        self._reader = SqliteReading(reader, workspace)
        self._writer = Writer(
            SqliteTx(writing, workspace, Place(path)), self._watches.wake, max_posted=max_posted
        )
        self._open = True

    def read(self, op: Callable[Concatenate[Reading, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a short look-up in one snapshot; its result must not be lazy."""
        reader = self._reader
        with self._reading:
            if not self._open:
                raise StoreUnavailable("the store is closed", hint="start packhost again")
            try:
                reader.execute("BEGIN")
                try:
                    return op(reader, *args, **kwargs)
                finally:
                    reader.execute("COMMIT")
            except (sqlite3.Error, UnicodeEncodeError) as error:
                raise explain(error, self.path) or error from error

    @contextmanager
    def snapshot(self) -> Iterator[Reading]:
        """A view for long reads, on a connection of its own."""
        with _explained(self.path):
            connection = _read_only(self.path)
        try:
            connection.execute("BEGIN")
            yield SqliteReading(connection, self.workspace)
        except sqlite3.Error as error:
            raise explain(error, self.path) or error from error
        finally:
            connection.close()

    def now(self) -> float:
        """The store's clock: this machine's."""
        return time.time()

    @property
    def label(self) -> str:
        """The database in a few words."""
        return f"SQLite {sqlite3.sqlite_version}"

    def info(self) -> StoreInfo:
        """What the store is and holds."""
        schema, last = self.read(_facts)
        return StoreInfo("sqlite", str(self.path), self.label, schema, last, self.path.stat().st_size)

    async def close(self) -> None:
        """Commit what is queued and let go of the database; idempotent."""
        self._close_reader()
        with anyio.CancelScope(shield=True):
            await self._writer.close()

    def close_now(self) -> None:
        """`close` for a store that was only read, or whose event loop has ended."""
        self._close_reader()
        self._writer.abandon()

    def _close_reader(self) -> None:
        # Before the writer: the last connection to close checkpoints, and that must be the writer's.
        with self._reading:
            if self._open:
                self._open = False
                self._reader.connection.close()


def explain(error: BaseException, path: Path | None = None) -> PackhostError | None:
    """A database's error in our words; `None` when it is another's."""
    if isinstance(error, sqlite3.IntegrityError):
        return Conflict(
            f"a record collides with one that exists, or names one that does not: {error}",
            hint="read the state again before trying once more",
        )
    if isinstance(error, UnicodeEncodeError):
        return InvalidInput("a text cannot be recorded: it holds half a character", hint="send it without it")
    if not isinstance(error, sqlite3.DatabaseError | OSError):
        return None
    place = f"`{path}`" if path else "the store"
    name = getattr(error, "sqlite_errorname", "")
    hint = "check the disk and the rights of the state folder, then try again"
    if name == "SQLITE_FULL":
        hint = "free space on the disk that holds the state folder, then try again"
    elif name.startswith("SQLITE_IOERR") or name.startswith("SQLITE_READONLY"):
        hint = "the disk is full, read-only or fails, or the state folder was removed: see `packhost doctor`"
    elif name in ("SQLITE_BUSY", "SQLITE_LOCKED"):
        hint = "another process writes to the store: end it, then try again"
    elif name in ("SQLITE_NOTADB", "SQLITE_CORRUPT") or name.startswith("SQLITE_CORRUPT"):
        hint = "move the file aside to start afresh, or put a backup in its place"
    return StoreUnavailable(f"{place} cannot be used: {error}", hint=hint, reason=name)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise explain(error, path) or error from error


def _make_private(path: Path) -> None:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.fchmod(fd, 0o600)
    finally:
        os.close(fd)


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, timeout=BUSY, cached_statements=256
    )


def _write_ahead(connection: sqlite3.Connection) -> str:
    """Have the database keep a write-ahead log; the mode that it is in then.

    SQLite does not wait by itself for another process that changes the mode at the same instant.
    """
    patience = time.monotonic() + BUSY
    while True:
        try:
            return str(connection.execute("PRAGMA journal_mode=WAL").fetchone()[0])
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > patience:
                raise
            time.sleep(0.01)


def _prepare(connection: sqlite3.Connection) -> None:
    if _write_ahead(connection) != "wal":
        raise StoreUnavailable(
            "the store cannot keep a write-ahead log where it lies",
            hint="put the state folder on a local disk, by XDG_STATE_HOME",
        )
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")
    # What is redacted is to be gone from the file as well.
    connection.execute("PRAGMA secure_delete=ON")
    if sys.platform == "darwin":
        connection.execute("PRAGMA fullfsync=1")


def _read_only(path: Path) -> sqlite3.Connection:
    connection = _connect(path)
    connection.execute("PRAGMA query_only=ON")
    return connection


def _facts(tx: Reading) -> tuple[int, int]:
    row = tx.execute(
        "SELECT (SELECT MAX(version) FROM schema_migrations), (SELECT COALESCE(MAX(id), 0) FROM events)"
    ).fetchone()
    return int(row[0]), int(row[1])
