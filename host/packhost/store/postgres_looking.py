"""Looking into a workspace's PostgreSQL schema without a host: nothing is written, nothing migrated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from packhost.errors import StoreUnavailable
from packhost.store.address import Address
from packhost.store.base import Reading
from packhost.store.info import describe
from packhost.store.postgres_connection import connect, explain
from packhost.store.postgres_migrations import applied
from packhost.store.postgres_session import Clock, PostgresReading, Statements

_SIZE = (
    "SELECT COALESCE(SUM(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c"
    " JOIN pg_namespace n ON n.oid=c.relnamespace WHERE n.nspname=? AND c.relkind='r'"
)
_LIVE = "SELECT id, host, pid, version, lease_until, draining FROM replicas WHERE lease_until>? ORDER BY id"


@contextmanager
def view_of(address: Address) -> Iterator[Reading]:
    """One snapshot of a workspace's schema.

    Raises `StoreUnavailable` when the database cannot be read or holds no such workspace yet.
    """
    try:
        connection = connect(address, "long read")
        try:
            if not applied(connection):
                raise StoreUnavailable(
                    "there is no store here yet", hint="the first host of the workspace makes it"
                )
            view = PostgresReading(address.workspace, Clock(), Statements())
            view.begin(connection)
            yield view
        finally:
            connection.close()
    except psycopg.Error as error:
        raise explain(error, address) or error from error


def applied_in(address: Address) -> dict[int, str]:
    """The migrations on record with their checksums; none where there is no schema yet."""
    try:
        connection = connect(address, "read")
        try:
            return applied(connection)
        finally:
            connection.close()
    except psycopg.Error as error:
        raise explain(error, address) or error from error


def look_inside(address: Address) -> dict[str, Any]:
    """What the store is and holds; never a password."""
    with view_of(address) as view:
        return {
            "kind": "postgresql",
            "place": address.shown,
            "workspace": address.workspace,
            "bytes": int(view.execute(_SIZE, (address.schema,)).fetchone()[0]),
            "postgresql": str(view.execute("SHOW server_version").fetchone()[0]),
            "replicas": live_replicas(view),
            **describe(view),
        }


def live_replicas(view: Reading) -> list[dict[str, Any]]:
    """The hosts that take part now; none where the schema is older than they are."""
    names = ("id", "host", "pid", "version", "lease_until", "draining")
    if view.execute("SELECT to_regclass('replicas')").fetchone()[0] is None:
        return []
    return [dict(zip(names, row, strict=True)) for row in view.execute(_LIVE, (view.now(),))]
