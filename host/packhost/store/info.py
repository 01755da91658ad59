"""What a store holds, for a person who looks after it; works on any schema that was ever released."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from packhost.errors import StoreUnavailable
from packhost.store.base import Reading
from packhost.store.migrations import APPLIED
from packhost.store.schema import MIGRATIONS
from packhost.store.sqlite import STORE_NAME, SqliteReading, explain

_CREATES: Final = re.compile(r"CREATE TABLE (\w+)\(")
_WAL_RESET_FIXED: Final = ((3, 44, 6), (3, 50, 7), (3, 51, 3))
"""The releases of SQLite that first held the fix of its WAL-reset bug, each for its own line."""


def wal_reset_bug(found: tuple[int, int, int] = sqlite3.sqlite_version_info) -> bool:
    """Whether this SQLite can lose commits when two connections write and checkpoint at one instant."""
    fixed = any(found[:2] == one[:2] and found >= one for one in _WAL_RESET_FIXED)
    return not (fixed or found >= _WAL_RESET_FIXED[-1])


def applied(tx: Reading) -> dict[int, str]:
    """The migrations on record with their checksums, by version."""
    return dict(tx.execute(APPLIED).fetchall())


def describe(tx: Reading) -> dict[str, Any]:
    """Schema, rows by table, and where the record begins and ends."""
    versions = applied(tx)
    statements = [one for step in MIGRATIONS if step.version in versions for one in step.sqlite]
    tables = [found[1] for one in statements if (found := _CREATES.match(one))]
    first = tx.execute("SELECT id, ts FROM events ORDER BY id LIMIT 1").fetchone()
    last = tx.execute("SELECT id, ts, hash FROM events ORDER BY id DESC LIMIT 1").fetchone()
    return {
        "schema": max(versions, default=0),
        "known_schema": MIGRATIONS[-1].version,
        "rows": {name: tx.execute(f"SELECT COUNT(*) FROM {name}").fetchone()[0] for name in tables},  # noqa: S608
        "record": {
            "first": first[0] if first else None,
            "oldest": first[1] if first else None,
            "last": last[0] if last else None,
            "newest": last[1] if last else None,
            "head": last[2] if last else None,
        },
    }


def sqlite_files(path: Path) -> dict[str, Any]:
    """The sizes of a SQLite store's files in bytes, and the room that is left beside it."""
    return {
        "place": str(path),
        "bytes": _size(path),
        "wal_bytes": _size(path.with_name(f"{path.name}-wal")),
        "free_bytes": shutil.disk_usage(path.parent).free,
        "sqlite": sqlite3.sqlite_version,
        "wal_reset_bug": wal_reset_bug(),
    }


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


@contextmanager
def looking(state: Path) -> Iterator[SqliteReading]:
    """A view of a SQLite store that can neither write nor checkpoint, whoever holds the store.

    Raises `StoreUnavailable` when there is none or it cannot be read.
    """
    path = state / STORE_NAME
    if not path.exists():
        raise StoreUnavailable("there is no store here yet", hint="the first host of the workspace makes it")
    try:
        connection = read_only(path)
        try:
            connection.execute("BEGIN")
            yield SqliteReading(connection, state.name)
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise explain(error, path) or error from error


def read_only(path: Path) -> sqlite3.Connection:
    """A connection whose descriptor cannot write: closing it as the last one checkpoints nothing."""
    uri = f"file:{_quoted(path)}?mode=ro"
    return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=5)


def _quoted(path: Path) -> str:
    return quote(os.fsencode(path.absolute()))
