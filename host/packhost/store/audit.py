"""Proof and export of the audit chain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from packhost.journal import BrokenLink, canonical, verify
from packhost.store.base import Reading
from packhost.store.ops import events


@dataclass(frozen=True, slots=True)
class ChainReport:
    """What a walk over the chain found.

    `count` and `head_hash` are of the stored chain; `broken` is the first link that does not
    hold, `None` when all do.
    """

    count: int
    head_hash: str
    broken: BrokenLink | None

    @property
    def ok(self) -> bool:
        """The whole chain holds."""
        return self.broken is None


def verify_chain(tx: Reading) -> ChainReport:
    """Verify every link of the stored chain."""
    found = verify(events.export(tx))
    if isinstance(found, BrokenLink):
        count = tx.execute("SELECT COUNT(*) FROM events").fetchone()[0]
        return ChainReport(count, events.head(tx).hash, found)
    return ChainReport(found.count, found.head, None)


def export_lines(tx: Reading) -> Iterator[str]:
    """Every event as one line of JSON, first to last, without line ends.

    `data` stands as it was hashed: `data_sha` is the SHA-256 of its canonical text; `null` when
    it was redacted. A call's `data.arguments` are in their display form.
    """
    for record in events.export(tx):
        yield (
            f'{{"id":{record.id},"ts":{canonical(record.ts)},"type":{canonical(record.type)},'
            f'"workspace":{canonical(record.workspace)},"execution_id":{canonical(record.execution_id)},'
            f'"call_id":{canonical(record.call_id)},"actor":{canonical(record.actor)},'
            f'"data":{record.data or "null"},"data_sha":"{record.data_sha}",'
            f'"prev":"{record.prev}","hash":"{record.hash}"}}'
        )
