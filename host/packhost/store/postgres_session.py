"""Transactions on PostgreSQL: a look-up in one snapshot, and the writer's, one at a time in a workspace."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any, NamedTuple

import psycopg
from psycopg import errors

from packhost.errors import PackhostError, StoreUnavailable
from packhost.journal import GENESIS, canonical
from packhost.store.address import Address
from packhost.store.base import Rows
from packhost.store.chain import Chain
from packhost.store.postgres_connection import IDLE_WITHIN, Bounded, explain, is_lost
from packhost.store.postgres_link import Link
from packhost.store.writer import CommitUnknown

SETTLE_WITHIN = 10.0
"""Seconds to find out whether a commit held whose answer was lost."""
LONGEST_PAYLOAD = 7_900
"""PostgreSQL takes 8,000 bytes with a notification; of more topics only that there were any is told."""
_LOOK_AGAIN = 0.05
_GOES_ON = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
CLOCK = "extract(epoch FROM clock_timestamp())::float8"
_BEGIN = (
    "BEGIN; SELECT pg_advisory_xact_lock({lock});"
    " SELECT {clock}, pg_current_xact_id()::text, pg_backend_pid(), e.id, e.hash FROM (SELECT 1) AS one"
    " LEFT JOIN (SELECT id, hash FROM events ORDER BY id DESC LIMIT 1) AS e ON true"
)
_BEGIN_READING = f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SELECT {CLOCK}"
_END_RESTING = (
    # in the middle of statements that are not waited for PostgreSQL does not take its client for idle
    "SELECT pg_terminate_backend(a.pid) FROM pg_locks l JOIN pg_stat_activity a ON a.pid=l.pid"
    " WHERE l.locktype='advisory' AND l.granted AND l.objsubid=1 AND l.database="
    "(SELECT oid FROM pg_database WHERE datname=current_database())"
    " AND l.classid::bigint=%s AND l.objid::bigint=%s AND a.wait_event='ClientRead'"
    " AND a.query_start < clock_timestamp() - make_interval(secs => %s)"
)
_END_STALE = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid=%s AND backend_xid=%s::xid8::xid"
)
_WRITES = ("INSERT", "UPDATE", "DELETE")
_GIVES = ("SELECT", "WITH", "VALUES")


class Statement(NamedTuple):
    """A statement as psycopg takes it: `%s` for `?`; whether it changes rows, and whether it gives any."""

    text: bytes
    writes: bool
    gives: bool


class Statements:
    """Statements by their text; kept, since there are few."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[str, Statement] = {}

    def __getitem__(self, sql: str) -> Statement:
        """What a statement is."""
        found = self._known.get(sql)
        if found is None:
            plain = sql.lstrip().upper()
            writes = plain.startswith(_WRITES)
            gives = plain.startswith(_GIVES) or (writes and " RETURNING " in plain)
            text = sql.replace("%", "%%").replace("?", "%s").encode()
            found = self._known[sql] = Statement(text, writes, gives)
        return found


def _steady() -> float:
    """Seconds on a clock that nobody sets, and that goes on while the machine sleeps where there is one."""
    return time.clock_gettime(_GOES_ON)


class Clock:
    """The database's clock, carried on by this machine's between two looks at it; never ahead of it."""

    __slots__ = ("_offset",)

    def __init__(self) -> None:
        self._offset = time.time() - _steady()

    def set(self, now: float) -> None:
        """The database has just said so."""
        self._offset = now - _steady()

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._offset + _steady()


class Fetched:
    """The rows of one statement."""

    __slots__ = ("_rows",)

    def __init__(self, rows: Sequence[tuple[Any, ...]]) -> None:
        self._rows = iter(rows)

    def fetchone(self) -> Any:
        return next(self._rows, None)

    def fetchall(self) -> list[Any]:
        return list(self._rows)

    def __iter__(self) -> Iterator[Any]:
        return self._rows


_NOTHING = Fetched(())


class _View:
    """Statements on whatever connection it is bound to."""

    def __init__(self, workspace: str, clock: Clock, statements: Statements) -> None:
        self.workspace = workspace
        self._clock = clock
        self._statements = statements
        self._connection: Bounded | None = None
        self._cursor: psycopg.Cursor[tuple[Any, ...]] | None = None

    @property
    def cursor(self) -> psycopg.Cursor[tuple[Any, ...]]:
        """The cursor that every statement goes through."""
        if self._cursor is None:
            raise StoreUnavailable("the store's transaction has not begun", hint="use it inside an op")
        return self._cursor

    def execute(self, sql: str, params: Sequence[Any] = ()) -> Rows:
        """Run one statement with `?` placeholders; its rows are all here when it returns."""
        cursor = self.cursor
        cursor.execute(self._statements[sql].text, params)
        return Fetched(cursor.fetchall() if cursor.description else ())

    def now(self) -> float:
        """The database's clock."""
        return self._clock.now()

    def _bind(self, connection: Bounded) -> None:
        if connection is not self._connection:
            self._connection = connection
            self._cursor = connection.cursor()


class PostgresReading(_View):
    """A look-up in one snapshot; `begin` it on a connection, and `end` it."""

    def begin(self, connection: Bounded) -> None:
        """Open a snapshot, and look at the clock."""
        self._bind(connection)
        self._clock.set(last_row(self.cursor, _BEGIN_READING)[0])

    def end(self) -> None:
        """Close it."""
        self.cursor.execute(b"COMMIT", prepare=False)


class PostgresTx(_View):
    """The writer's transaction, which holds the workspace's advisory lock from its beginning on."""

    def __init__(self, address: Address, link: Link, clock: Clock) -> None:
        super().__init__(address.workspace, clock, Statements())
        self._address = address
        self._link = link
        self._begin = _BEGIN.format(lock=address.lock, clock=CLOCK)
        self._chain = Chain(address.workspace, self.execute, self.now)
        self._started = -1
        self._xid = ""
        self.backend = 0
        self.changes = 0
        self._pipeline: ExitStack | None = None
        self._sink: psycopg.Cursor[tuple[Any, ...]] | None = None

    def begin(self) -> None:
        """Take the lock. Raises psycopg's errors, or `StoreUnavailable` when the database is lost."""
        self._chain.forget()
        for attempt in (1, 2):
            connection = self._link.get()
            try:
                self._open(connection)
                return
            except (psycopg.Error, OSError) as error:
                if is_lost(error):
                    self._link.lose(connection, error)
                else:
                    self._give_up()
                    if not isinstance(error, errors.LockNotAvailable) or not self._made_way(connection):
                        raise
                if attempt == 2:
                    raise

    def _made_way(self, connection: Bounded) -> bool:
        """Whether who holds the lock was found to rest, as a stopped host does, and was ended."""
        high, low = divmod(self._address.lock % 2**64, 2**32)
        with connection.cursor() as cursor:
            cursor.execute(_END_RESTING, (high, low, IDLE_WITHIN))
            return bool(cursor.fetchall())

    def _open(self, connection: Bounded) -> None:
        self._bind(connection)
        now, self._xid, self.backend, id, hash = last_row(self.cursor, self._begin)
        self._clock.set(now)
        self._started = id or 0
        self._chain.begin_at(id or 0, hash or GENESIS)

    def execute(self, sql: str, params: Sequence[Any] = ()) -> Rows:
        """Run one statement with `?` placeholders.

        What gives no rows is sent and not waited for: that it failed shows at the next statement that
        does, or at the commit.
        """
        statement = self._statements[sql]
        if statement.writes and not statement.gives:
            self._unawaited().execute(statement.text, params)
            self.changes += 1
            return _NOTHING
        if not statement.gives:
            self._caught_up()
        cursor = self.cursor
        cursor.execute(statement.text, params)
        if not statement.gives:
            return Fetched(cursor.fetchall() if cursor.description else ())
        rows = cursor.fetchall()
        if statement.writes:
            self.changes += len(rows)
        return Fetched(rows)

    def _unawaited(self) -> psycopg.Cursor[tuple[Any, ...]]:
        """A cursor whose statements are not waited for."""
        if self._sink is None:
            connection = self.cursor.connection
            pipeline = ExitStack()
            pipeline.enter_context(connection.pipeline())
            self._pipeline, self._sink = pipeline, connection.cursor()
        return self._sink

    def _caught_up(self) -> None:
        """Wait for all that was sent; raises the first error that it met."""
        pipeline, self._pipeline, self._sink = self._pipeline, None, None
        if pipeline is not None:
            pipeline.close()

    def touch(self, topic: str) -> None:
        """Wake whoever watches the topic, on every host, after the commit."""
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

    def commit(self) -> frozenset[str]:
        """Commit and tell every host what was touched.

        Raises `CommitUnknown` when the database is lost before it is known whether it held; when it
        is known that it did not, psycopg's error.
        """
        told = self._chain.topics
        text = "COMMIT"
        if told:
            news = payload(self._chain.last[0], told).replace("'", "''")
            text = f"NOTIFY \"{self._address.schema}\", '{news}'; COMMIT"
        cursor = self.cursor
        self._caught_up()
        try:
            cursor.execute(text.encode(), prepare=False)
            while cursor.nextset():
                pass
        except (psycopg.Error, OSError) as error:
            if not is_lost(error):
                raise
            self._settle(error)
        else:
            if cursor.statusmessage != "COMMIT":  # it rolls back without a word where a statement had failed
                raise StoreUnavailable(
                    "the database undid a change that an error was overlooked in", hint="try again"
                )
        return self._chain.touched()

    def rollback(self) -> None:
        """Undo what was done."""
        self._chain.forget()
        self._give_up()

    def close(self) -> None:
        """Let go of the connection."""
        self._link.close()

    def explain(self, error: BaseException) -> PackhostError | None:
        """A database's error in our words."""
        return explain(error, self._address)

    def _give_up(self) -> None:
        connection = self._connection
        with suppress(psycopg.Error, OSError):
            self._caught_up()
        if connection is None or not self._link.connected:
            return
        try:
            self.cursor.execute(b"ROLLBACK", prepare=False)
        except (psycopg.Error, OSError) as error:
            self._link.lose(connection, error)

    def _settle(self, error: BaseException) -> None:
        """The answer to COMMIT was lost: return when it held, raise when it did not or cannot be known."""
        self._link.lose(self._connection, error)
        backend, xid = self.backend, self._xid
        deadline = time.monotonic() + SETTLE_WITHIN
        while (left := deadline - time.monotonic()) > 0:
            connection = self._link.await_return(left)
            if connection is None:
                break
            try:
                held = self._held(connection, backend, xid)
            except (psycopg.Error, OSError) as again:
                if not is_lost(again):
                    raise
                self._link.lose(connection, again)
                continue
            if held:
                return
            if held is False:
                raise error
            time.sleep(_LOOK_AGAIN)
        raise CommitUnknown(
            f"`{self._address.shown}` was lost in the middle of a commit: whether it held is not known",
            hint="look at the record once the database is back",
        ) from error

    def _held(self, connection: Bounded, backend: int, xid: str) -> bool | None:
        """Whether that transaction was committed; `None` while it still goes on."""
        with connection.cursor() as cursor:
            cursor.execute(_END_STALE, (backend, xid))
            try:
                status = last_row(cursor, f"SELECT pg_xact_status('{xid}'::xid8)")[0]
            except errors.InvalidParameterValue:
                return False  # never heard of: it was lost with the server's memory
            if status == "in progress":
                return None
            id, hash = self._chain.last
            if status != "committed" or id <= self._started:
                return bool(status == "committed")
            # another server may have taken over, to which that number means another transaction
            cursor.execute("SELECT 1 FROM events WHERE id=%s AND hash=%s", (id, hash))
            return cursor.fetchone() is not None


def payload(last: int, topics: set[str]) -> str:
    """What a notification carries: the last event's number and the topics; no topics mean any."""
    text = f"{last} {canonical(sorted(topics))}"
    return text if len(text) <= LONGEST_PAYLOAD else str(last)


def last_row(cursor: psycopg.Cursor[tuple[Any, ...]], text: str) -> tuple[Any, ...]:
    """The one row of the last of several statements that are sent at once."""
    cursor.execute(text.encode(), prepare=False)
    while cursor.nextset():
        pass
    row = cursor.fetchone()
    if row is None:
        raise psycopg.OperationalError("the database answered without a row")
    return row
