"""Proof and export of the audit chain."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from packhost.journal import BrokenLink, Record, verify
from packhost.store.base import Reading
from packhost.store.ops import events
from packhost.store.ops.redaction import REDACTED_EVENT
from packhost.store.seals import Anchor, export_line

UNEXPLAINED = "its payload is gone and no redaction of it is on record"


@dataclass(frozen=True, slots=True)
class ChainReport:
    """What a walk over the chain found.

    `count` and `head_hash` are of the stored chain; `broken` is the first link that does not
    hold, `None` when all do. `missed` tells of each anchor that the chain does not go through.
    """

    count: int
    head_hash: str
    broken: BrokenLink | None
    redacted: int = 0
    missed: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """The whole chain holds and goes through every anchor."""
        return self.broken is None and not self.missed


class _Walk:
    """Looks at each record in passing: anchors, payloads that are gone, redactions on record."""

    def __init__(self, anchors: Sequence[Anchor]) -> None:
        self._wanted = {anchor.hash for anchor in anchors}
        self.seen: dict[str, int] = {}
        self.gone: set[int] = set()
        self.explained: set[int] = set()

    def through(self, records: Iterator[Record]) -> Iterator[Record]:
        for record in records:
            if record.hash in self._wanted:
                self.seen[record.hash] = record.id
            if record.data is None:
                self.gone.add(record.id)
            elif record.type == REDACTED_EVENT:
                self.explained.update(json.loads(record.data).get("events", ()))
            yield record


def verify_chain(tx: Reading, anchors: Sequence[Anchor] = ()) -> ChainReport:
    """Verify every link of the stored chain, that it goes through the anchors and that each payload that is
    gone was redacted on record."""
    walk = _Walk(anchors)
    found = verify(walk.through(events.export(tx)))
    head = events.head(tx)
    broken = found if isinstance(found, BrokenLink) else None
    unexplained = walk.gone - walk.explained
    if broken is None and unexplained:
        broken = BrokenLink(min(unexplained), UNEXPLAINED)
    count = tx.execute("SELECT COUNT(*) FROM events").fetchone()[0]
    missed = tuple(_missed(anchor, walk.seen, head.id) for anchor in anchors if _misses(anchor, walk.seen))
    return ChainReport(count, head.hash, broken, len(walk.gone), missed)


def _misses(anchor: Anchor, seen: dict[str, int]) -> bool:
    found = seen.get(anchor.hash)
    return found is None or (anchor.id not in (0, found))


def _missed(anchor: Anchor, seen: dict[str, int], last: int) -> str:
    if anchor.id > last:
        return f"the chain ends at event {last}, and event {anchor.id} was anchored: its end was cut off"
    if anchor.id:
        return f"event {anchor.id} is not the one that was anchored: the chain was written anew"
    return f"no event has the hash `{anchor.hash}`: the chain was cut off or written anew"


def export_lines(tx: Reading) -> Iterator[str]:
    """Every event as one line of JSON, first to last, without line ends; see `export_line`."""
    return map(export_line, events.export(tx))
