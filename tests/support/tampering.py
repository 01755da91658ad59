"""Changing a store behind its back, whatever database it is."""

from __future__ import annotations

import sqlite3
from typing import Any


def tamper(store: Any, *statements: str) -> list[tuple[Any, ...]]:
    """Run statements on a connection of their own; the rows of the last one."""
    rows: list[tuple[Any, ...]] = []
    if hasattr(store, "path"):
        other = sqlite3.connect(store.path, isolation_level=None)
        for sql in statements:
            rows = other.execute(sql).fetchall()
        other.close()
        return rows
    from packhost.store.postgres_connection import connect

    with connect(store.address, "write") as connection:
        for sql in statements:
            cursor = connection.execute(sql.encode())
            rows = cursor.fetchall() if cursor.description else []
    return rows
