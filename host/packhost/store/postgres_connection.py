"""Connections to PostgreSQL: how they are set up, how long anything may take, what errors mean."""

from __future__ import annotations

from typing import Any, Literal

import psycopg
from psycopg import errors, sql
from psycopg.abc import RV, PQGen
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.numeric import Int8Dumper

from packhost.errors import ConfigInvalid, Conflict, InvalidInput, PackhostError, StoreUnavailable
from packhost.store.address import Address

OLDEST = 13
"""The first PostgreSQL that tells what became of a transaction by its full number."""
CONNECT_WITHIN = 5
"""Seconds to reach the database, unless the address says otherwise."""
LOCK_WITHIN = 5.0
"""Seconds to wait for the writers' lock, or for a row."""
IDLE_WITHIN = 4.0
"""Seconds that a transaction may rest before it is ended: a stopped host gives way after them."""
STATEMENT_WITHIN = 10.0
"""Seconds for one statement of a writer."""
READ_WITHIN = 3.0
"""Seconds for one statement of a short look-up, for which the event loop waits."""
_SLACK = 2.0
"""Seconds more than the server's own limit, after which it is taken for dead."""

Role = Literal["write", "read", "long read", "listen", "migrate"]
_LIMITS: dict[Role, tuple[float, float]] = {  # for a statement at the server (0: none), for an answer here
    "write": (STATEMENT_WITHIN, STATEMENT_WITHIN + _SLACK),
    "read": (READ_WITHIN, READ_WITHIN + _SLACK),
    "long read": (0.0, 60.0),
    "listen": (READ_WITHIN, READ_WITHIN + _SLACK),
    "migrate": (0.0, 600.0),
}
_DEFAULTS: dict[str, Any] = {
    "connect_timeout": CONNECT_WITHIN,
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
    "application_name": "packhost",
    "target_session_attrs": "read-write",
}
_HINTS = {
    "55P03": "another host holds the writers' lock and does not let go: look for one that is stopped",
    "57014": "the database is too slow or too busy: look at its load, then try again",
    "25P03": "this host was stopped in the middle of a change, which was undone: try again",
    "53100": "free space on the disk of the database, then try again",
    "53300": "let the database have more connections (`max_connections`); a host needs three",
    "28P01": "check the user and the password in `store`",
    "28000": "check the user in `store`, and what the server's pg_hba.conf lets in",
    "3D000": "create the database that `store` names; packhost makes its own schema in it",
    "42501": "let the user of `store` create a schema in that database, or own the one that is there",
    "25006": "the server takes no writes: name the primary in `store`",
}
_WORDS = {  # a connection that was refused comes without a state
    "password authentication failed": "28P01",
    "no pg_hba.conf entry": "28000",
    "does not exist": "3D000",
    "too many clients": "53300",
    "connection slots": "53300",
    "session is read-only": "25006",
}
_LOST = "the database cannot be reached now: packhost goes on trying, and what was acknowledged is kept"


class Bounded(psycopg.Connection[tuple[Any, ...]]):
    """A connection that waits no longer than `patience` seconds for any answer."""

    patience = 60.0

    def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        """Wait for an answer; raises an `OperationalError` when none comes in time."""
        return super().wait(gen, interval, self.patience if timeout is None else timeout)


class _Whole(Int8Dumper):
    """Whole numbers and truths always as 64 bits, so that a statement has one plan whatever their size."""

    def dump(self, obj: Any) -> Any:
        return super().dump(int(obj))


def connect(address: Address, role: Role) -> Bounded:
    """A connection in autocommit whose unqualified names are the workspace's; raises psycopg's errors.

    Raises `ConfigInvalid` when the address cannot be read.
    """
    try:
        given = conninfo_to_dict(address.url)
    except psycopg.Error:
        raise ConfigInvalid(  # libpq's own words may hold a part of the password
            "the address of the store cannot be read",
            hint="write `postgresql://USER@HOST:PORT/DATABASE`, special characters as %XX",
        ) from None
    options: dict[str, Any] = {**_DEFAULTS, **given, "client_encoding": "UTF8"}
    connection = Bounded.connect(**options, autocommit=True, prepare_threshold=0)
    statement, patience = _LIMITS[role]
    connection.patience = patience
    connection.prepared_max = 500
    for kind in (int, bool):
        connection.adapters.register_dumper(kind, _Whole)
    settings = {
        "search_path": f"{_quoted(address.schema)}, pg_temp",
        "lock_timeout": _milliseconds(LOCK_WITHIN if role != "migrate" else 120.0),
        "idle_in_transaction_session_timeout": _milliseconds(
            IDLE_WITHIN if role in ("write", "read") else 0.0
        ),
        "statement_timeout": _milliseconds(statement),
        "default_transaction_isolation": "read committed",
        "client_min_messages": "warning",
        "jit": "off",
    }
    listed = sql.SQL(", ").join(
        sql.SQL("set_config({}, {}, false)").format(name, value) for name, value in settings.items()
    )
    try:
        connection.execute(sql.SQL("SELECT ") + listed)
        # a server may acknowledge before it wrote; packhost may not
        connection.execute(
            "SELECT set_config('synchronous_commit', 'on', false)"
            " WHERE current_setting('synchronous_commit') = 'off'"
        )
    except BaseException:
        connection.close()
        raise
    return connection


def fit(connection: Bounded, address: Address) -> str:
    """The server's version. Raises `StoreUnavailable` when packhost cannot keep a workspace there."""
    version = str(connection.info.parameter_status("server_version")).partition(" ")[0]
    if connection.info.server_version < OLDEST * 10_000:
        raise StoreUnavailable(
            f"`{address.shown}` is PostgreSQL {version}", hint=f"packhost needs version {OLDEST} or newer"
        )
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise StoreUnavailable(
            f"`{address.shown}` keeps its texts as {encoding}",
            hint="make the database with `ENCODING 'UTF8' TEMPLATE template0`",
        )
    return version


def explain(error: BaseException, address: Address) -> PackhostError | None:
    """A database's error in our words; `None` when it is another's."""
    if isinstance(error, errors.IntegrityError):
        return Conflict(
            "a record collides with one that exists, or names one that does not:"
            f" {address.clean(error.diag.message_primary or 'integrity')}",
            hint="read the state again before trying once more",
        )
    if isinstance(error, UnicodeEncodeError | psycopg.DataError):
        return InvalidInput(
            "a text cannot be recorded: it holds a NUL, half a character, or a number that is out of range",
            hint="send it without them",
        )
    if not isinstance(error, psycopg.Error | OSError):
        return None
    state = getattr(error, "sqlstate", None) or ""
    text = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    hint = _HINTS.get(state, _LOST if is_lost(error) else "look at the database's log, then try again")
    if not state:
        hint = next((_HINTS[known] for words, known in _WORDS.items() if words in str(error)), hint)
    return StoreUnavailable(
        f"`{address.shown}` cannot be used: {address.clean(text or str(error))}", hint=hint, reason=state
    )


def is_lost(error: BaseException) -> bool:
    """Whether the connection is gone with this error, or of no use any more."""
    if isinstance(error, psycopg.OperationalError):
        state = error.sqlstate or ""
        # 08: connection, 57P: shut down or killed, 25P03: idle too long; none: the socket, or our patience
        return not state or state[:2] == "08" or state[:3] == "57P" or state == "25P03"
    return isinstance(error, errors.IdleInTransactionSessionTimeout | psycopg.InterfaceError | OSError)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _milliseconds(seconds: float) -> str:
    return str(round(seconds * 1000))
