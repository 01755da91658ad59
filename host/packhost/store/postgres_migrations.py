"""Bringing a workspace's PostgreSQL schema up to date: one migrator at a time, a copy first."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from pathlib import Path

import psycopg

from packhost.errors import PackhostError
from packhost.store.address import Address
from packhost.store.migrations import APPLIED, RECORD, due
from packhost.store.postgres_connection import Bounded, connect
from packhost.store.postgres_dump import dump
from packhost.store.schema import TABLE, Migration, in_postgres

log = logging.getLogger(__name__)


def bring_up(
    connection: Bounded, address: Address, migrations: Sequence[Migration], copies: Path | None
) -> Path | None:
    """Bring the schema to the last migration; where its copy lies, if one was made.

    `copies` is the folder for a copy of the schema as it was, by `pg_dump` where there is one. Hosts
    of the version before may go on while a migration waits for its turn. Raises as `migrations.due`.
    """
    if not due(applied(connection), migrations, "postgres", address.shown):
        return None
    own = connect(address, "migrate")
    try:
        own.execute("SELECT pg_advisory_lock(%s)", (address.migration_lock,))
        present = applied(own)
        if not due(present, migrations, "postgres", address.shown):
            return None
        copy = _copy(address, copies, max(present)) if present and copies is not None else None
        _apply(own, address, migrations)
        return copy
    finally:
        own.close()


def applied(connection: Bounded) -> dict[int, str]:
    """The checksums of the applied migrations by version; none where there is no schema yet."""
    found = connection.execute("SELECT to_regclass('schema_migrations') IS NOT NULL").fetchone()
    if found is None or not found[0]:
        return {}
    return dict(connection.execute(APPLIED).fetchall())


def _copy(address: Address, folder: Path, version: int) -> Path | None:
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    target = folder / f"store.schema-{version}-{stamp}.dump"
    try:
        dump(address, target)
    except PackhostError as error:
        log.warning("schema %d of the store was not copied before its migration: %s", version, error)
        return None
    return target


def _apply(connection: Bounded, address: Address, migrations: Sequence[Migration]) -> None:
    connection.execute(b"BEGIN")
    try:
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (address.lock,))
        connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{address.schema}"'.encode())
        connection.execute(in_postgres(TABLE).encode())
        for migration in due(applied(connection), migrations, "postgres", address.shown):
            for statement in migration.statements("postgres"):
                connection.execute(statement.encode(), prepare=False)
            record = (migration.version, migration.name, migration.sha256("postgres"), time.time())
            connection.execute(RECORD.replace("?", "%s").encode(), record)
        connection.execute(b"COMMIT")
    except BaseException:
        _roll_back(connection)
        raise


def _roll_back(connection: Bounded) -> None:
    try:
        connection.execute(b"ROLLBACK")
    except psycopg.Error:
        connection.close()
