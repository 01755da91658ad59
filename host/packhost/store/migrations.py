"""Bringing a database to the schema that this packhost knows.

A database that is newer is refused, as is one with a migration that was never released. An older
one is copied first and then brought up in one transaction; of several that try at once, one does it.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from packhost.errors import PackhostError, StoreUnavailable
from packhost.store.schema import MIGRATIONS, TABLE, Dialect, Migration

APPLIED = "SELECT version, sha256 FROM schema_migrations ORDER BY version"
RECORD = "INSERT INTO schema_migrations(version, name, sha256, applied_at) VALUES(?,?,?,?)"


def due(
    applied: Mapping[int, str], migrations: Sequence[Migration], dialect: Dialect, place: str
) -> tuple[Migration, ...]:
    """The migrations that are still to be applied; `applied` are the checksums on record, by version.

    Raises `PackhostError` with `STORE_NEWER` when a later packhost wrote the database,
    `StoreUnavailable` when its schema is not one that was released.
    """
    known = {migration.version: migration for migration in migrations}
    newest, present = max(known), max(applied, default=0)
    if present > newest:
        raise PackhostError(
            f"the store has schema {present}, this packhost knows up to {newest}",
            code="STORE_NEWER",
            hint="use the packhost that wrote it, or a later one",
            found=present,
            known=newest,
        )
    for version, sha256 in applied.items():
        if version not in known or known[version].sha256(dialect) != sha256:
            raise StoreUnavailable(
                f"schema {version} of the store is not the one that this packhost knows",
                hint=f"use the packhost that wrote it, or move `{place}` aside to start afresh",
            )
    return tuple(migration for migration in migrations if migration.version > present)


def migrate(
    connection: sqlite3.Connection, path: Path, migrations: Sequence[Migration] = MIGRATIONS
) -> Path | None:
    """Bring the SQLite database at `path` to the last migration; where its copy lies, if one was made.

    Needs a connection in autocommit. Raises as `due` does.
    """
    connection.execute(TABLE)
    applied = dict(connection.execute(APPLIED))
    if not due(applied, migrations, "sqlite", str(path)):
        return None
    backup = _copy(connection, path, max(applied)) if applied else None
    _apply(connection, path, migrations)
    return backup


def _copy(connection: sqlite3.Connection, path: Path, version: int) -> Path:
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    target = path.with_name(f"{path.name}.schema-{version}-{stamp}-{os.getpid()}")
    target.unlink(missing_ok=True)
    fd = os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        connection.execute("VACUUM INTO ?", (str(target),))
        os.fsync(fd)
    finally:
        os.close(fd)
    return target


def _apply(connection: sqlite3.Connection, path: Path, migrations: Sequence[Migration]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        for migration in due(dict(connection.execute(APPLIED)), migrations, "sqlite", str(path)):
            for statement in migration.statements("sqlite"):
                connection.execute(statement)
            record = (migration.version, migration.name, migration.sha256("sqlite"), time.time())
            connection.execute(RECORD, record)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
