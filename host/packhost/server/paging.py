"""Lists by pages: a cursor names the entry before it, so that it holds on every host and through changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from mcp import MCPError, types

PAGE: Final = 1000
"""Entries of a page: few clients follow cursors, so that a page holds what most workspaces have."""
Entry = TypeVar("Entry")


def page(
    entries: Sequence[Entry], cursor: str | None, key: Callable[[Entry], str], size: int = PAGE
) -> tuple[Sequence[Entry], str | None]:
    """A page of a list, and the cursor of the next one.

    Raises `MCPError` for a cursor that leads nowhere.
    """
    start = 0 if cursor is None else _after(entries, cursor, key)
    end = start + size
    if end >= len(entries):
        return entries[start:], None
    return entries[start:end], key(entries[end - 1]).encode().hex()


def _after(entries: Sequence[Entry], cursor: str, key: Callable[[Entry], str]) -> int:
    try:
        last = bytes.fromhex(cursor).decode()
    except ValueError:
        last = ""
    for index, entry in enumerate(entries):
        if key(entry) == last:
            return index + 1
    raise MCPError(types.INVALID_PARAMS, "the cursor leads nowhere: list from the beginning again")
