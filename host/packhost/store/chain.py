"""What both databases' transactions have in common: the touched topics and the end of the chain."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from packhost.journal import GENESIS, canonical, digest, link
from packhost.store.base import Rows

LAST = "SELECT id, hash FROM events ORDER BY id DESC LIMIT 1"
_EVENT = (
    "INSERT INTO events(id, workspace, execution_id, call_id, type, actor, data_json, data_sha, ts, prev,"
    " hash) VALUES(?,?,?,?,?,?,?,?,?,?,?)"
)


class Chain:
    """Appends to the audit chain through `execute`; knows its end until `forget`."""

    __slots__ = ("_execute", "_hash", "_id", "_now", "_workspace", "topics")

    def __init__(
        self, workspace: str, execute: Callable[[str, Sequence[Any]], Rows], now: Callable[[], float]
    ) -> None:
        self._workspace = workspace
        self._execute = execute
        self._now = now
        self.topics: set[str] = set()
        self._id = -1
        self._hash = ""

    @property
    def last(self) -> tuple[int, str]:
        """Number and hash of the last event, as far as this transaction knows; -1 when it did not look."""
        return self._id, self._hash

    def forget(self) -> None:
        """Look for the end again before the next event; nothing was touched."""
        self.topics.clear()
        self._id = -1

    def begin_at(self, id: int, hash: str) -> None:
        """Go on from this event, or from `(0, GENESIS)`."""
        self._id, self._hash = id, hash

    def touched(self) -> frozenset[str]:
        """The topics touched so far; from here on none is."""
        found = frozenset(self.topics)
        self.topics.clear()
        return found

    def append(
        self,
        type: str,
        data: Mapping[str, Any] | str,
        execution_id: str | None,
        call_id: str | None,
        actor: str,
    ) -> int:
        """Append an event and give its number; see `packhost.store.base.Tx.emit`."""
        text = data if isinstance(data, str) else canonical(data)
        if self._id < 0:
            row = self._execute(LAST, ()).fetchone()
            self._id, self._hash = row or (0, GENESIS)
        workspace = self._workspace
        id, prev, sha, ts = self._id + 1, self._hash, digest(text), self._now()
        hash = link(prev, id, workspace, execution_id, call_id, type, actor, sha, ts)
        self._execute(_EVENT, (id, workspace, execution_id, call_id, type, actor, text, sha, ts, prev, hash))
        self._id, self._hash = id, hash
        self.topics.add("events")
        if execution_id is not None:
            self.topics.add(f"run:{execution_id}")
        return id
