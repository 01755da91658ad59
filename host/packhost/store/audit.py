"""Proof and export of the audit chain."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from packhost.journal import BrokenLink, Record, verify
from packhost.store.base import Reading
from packhost.store.ops import events
from packhost.store.ops.pruning import PRUNED_EVENT, Pruning, pruning_of
from packhost.store.ops.redaction import REDACTED_EVENT
from packhost.store.rows import Head
from packhost.store.seals import Anchor, Span, export_line

_ANY_PRUNING = "SELECT 1 FROM events WHERE type='audit.pruned' LIMIT 1"
UNEXPLAINED = "its payload is gone and no redaction of it is on record"


@dataclass(frozen=True, slots=True)
class ChainReport:
    """What a walk over the chain found.

    `count` and `head_hash` are of the stored chain, which begins after event `pruned`; `prunings` are what
    is on record of that, and `unfinished` how many events are still there that were announced to go.
    `broken` is the first link that does not hold, `None` when all do. `missed` tells of each anchor that the
    chain does not go through, `unchecked` of each that lies in the part that was pruned.
    """

    count: int
    head_hash: str
    broken: BrokenLink | None
    redacted: int = 0
    missed: tuple[str, ...] = ()
    pruned: int = 0
    prunings: tuple[Pruning, ...] = ()
    unfinished: int = 0
    unchecked: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """The whole chain holds and goes through every anchor that is not of a part that was pruned."""
        return self.broken is None and not self.missed


class _Walk:
    """Looks at each record in passing: anchors, payloads that are gone, redactions and prunings on record."""

    def __init__(self, anchors: Sequence[Anchor]) -> None:
        self._wanted = {anchor.hash for anchor in anchors}
        self.seen: dict[str, int] = {}
        self.gone: set[int] = set()
        self.explained: set[int] = set()
        self.prunings: list[Pruning] = []
        self.blank: int | None = None

    def through(self, records: Iterator[Record]) -> Iterator[Record]:
        for record in records:
            if record.hash in self._wanted:
                self.seen[record.hash] = record.id
            if record.data is None:
                self.gone.add(record.id)
            elif record.type == REDACTED_EVENT:
                self.explained.update(json.loads(record.data).get("events", ()))
            if record.type == PRUNED_EVENT:
                said = pruning_of(record)
                if said is None:
                    self.blank = self.blank or record.id
                else:
                    self.prunings.append(said)
            yield record


def verify_chain(tx: Reading, anchors: Sequence[Anchor] = ()) -> ChainReport:
    """Verify every link of the stored chain, that it goes through the anchors, that each payload that is gone
    was redacted on record, and that a beginning that is gone was pruned on record, exactly that far."""
    walk, seam, head = _Walk(anchors), events.seam(tx), events.head(tx)
    begin = seam if tx.execute(_ANY_PRUNING).fetchone() else events.NOTHING
    found = verify(walk.through(events.export(tx)), begin.id, begin.hash)
    broken = found if isinstance(found, BrokenLink) else None
    broken = broken or _unexplained(walk) or _unpruned(tx, walk, seam)
    count = tx.execute("SELECT COUNT(*) FROM events").fetchone()[0]
    if begin.id:
        walk.seen.setdefault(begin.hash, begin.id)
    missed, unchecked = [], []
    for anchor in anchors:
        if 0 < anchor.id < begin.id:
            unchecked.append(f"event {anchor.id} was pruned: join the export of it to hold it to the anchor")
        elif _misses(anchor, walk.seen):
            missed.append(_missed(anchor, head.id))
    left = max(0, walk.prunings[-1].last - seam.id) if walk.prunings else 0
    return ChainReport(
        count,
        head.hash,
        broken,
        len(walk.gone),
        tuple(missed),
        begin.id,
        tuple(walk.prunings),
        left,
        tuple(unchecked),
    )


def _unexplained(walk: _Walk) -> BrokenLink | None:
    if walk.blank is not None:
        return BrokenLink(walk.blank, "it does not say what was pruned")
    gone = walk.gone - walk.explained
    return BrokenLink(min(gone), UNEXPLAINED) if gone else None


def _unpruned(tx: Reading, walk: _Walk, seam: Head) -> BrokenLink | None:
    """Where the beginning that is gone is not exactly what was pruned on record."""
    before: Pruning | None = None
    for one in walk.prunings:
        if before is not None and one.first != before.last + 1:
            return BrokenLink(one.id, f"it says that events from {one.first} went, after {before.last}")
        before = one
    if before is None:
        return None
    if seam.id > before.last:
        return BrokenLink(before.last + 1, "it is missing and no pruning of it is on record")
    if seam.id < before.last:
        record = events.by_id(tx, before.last)
        hash = record.hash if record is not None else ""
    else:
        hash = seam.hash
    if hash != before.last_hash:
        return BrokenLink(before.last, f"it is not the one whose pruning is on record in event {before.id}")
    return None


def _misses(anchor: Anchor, seen: dict[str, int]) -> bool:
    found = seen.get(anchor.hash)
    return found is None or (anchor.id not in (0, found))


def _missed(anchor: Anchor, last: int) -> str:
    if anchor.id > last:
        return f"the chain ends at event {last}, and event {anchor.id} was anchored: its end was cut off"
    if anchor.id:
        return f"event {anchor.id} is not the one that was anchored: the chain was written anew"
    return f"no event has the hash `{anchor.hash}`: the chain was cut off or written anew"


def join_fault(tx: Reading, export: Span) -> str:
    """Why an export of earlier events and the stored chain are not one chain; empty when they are."""
    seam, head = events.seam(tx), events.head(tx)
    if export.last < seam.id:
        return f"the export ends at event {export.last}, and the record begins after event {seam.id}"
    if export.last > head.id:
        return (
            f"the export goes to event {export.last}, and the record ends at {head.id}: its end was cut off"
        )
    record = events.by_id(tx, export.last)
    hash = seam.hash if export.last == seam.id else record.hash if record is not None else ""
    if hash != export.head:
        return f"event {export.last} of the export is not the one of the record: one was written anew"
    return ""


def export_lines(tx: Reading) -> Iterator[str]:
    """Every event as one line of JSON, first to last, without line ends; see `export_line`."""
    return map(export_line, events.export(tx))
