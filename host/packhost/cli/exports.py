"""Exports of the record as files: what they prove together, in the order of their events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from packhost.errors import InvalidInput
from packhost.store.seals import Anchor, ExportReport, Span, check_export, join_spans


@dataclass(frozen=True, slots=True)
class Proof:
    """What one or several exports prove; `fault` is why they do not, `missed` which anchors they lack."""

    count: int
    span: Span | None
    fault: str
    signed: bool | None
    seen: Mapping[str, int] = field(default_factory=dict)
    missed: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """They are one chain, signed where a key was given, and hold what was anchored of them."""
        return not self.fault and self.signed is not False and not self.missed

    @property
    def first(self) -> int:
        """Their first event; 0 when there is none."""
        return self.span.first if self.span is not None else 0

    @property
    def head(self) -> str:
        """The hash of their last event; empty when there is none."""
        return self.span.head if self.span is not None else ""

    def reaches(self, anchor: Anchor) -> bool:
        """The anchor is one of their events."""
        found = self.seen.get(anchor.hash)
        return found is not None and anchor.id in (0, found)

    def as_json(self) -> dict[str, Any]:
        """The proof as a program reads it."""
        return {
            "count": self.count,
            "first": self.first,
            "export_head": self.head,
            "broken": self.fault,
            "signed": self.signed,
            "export_missed": list(self.missed),
        }


def check_files(files: Sequence[Path], key: bytes | None, anchors: Sequence[Anchor]) -> Proof:
    """Hold each file to itself, then all of them to one another. Raises `InvalidInput` for one unreadable."""
    reports = [(file, _checked(file, key, anchors)) for file in files]
    several = len(files) > 1
    broken = [f"{file}: {one.broken}" if several else one.broken for file, one in reports if one.broken]
    whole, gap = join_spans([one.span for _, one in reports if one.span is not None])
    seen = {hash: id for _, one in reports for hash, id in one.seen.items()}
    signed = None if key is None else all(one.signed for _, one in reports)
    count = sum(one.count for _, one in reports)
    proof = Proof(count, whole, broken[0] if broken else gap, signed, seen)
    inside = [one for one in anchors if whole is not None and whole.first <= one.id <= whole.last]
    missed = [one.id for one in inside if not proof.reaches(one)]
    return replace(proof, missed=tuple(f"event {id} is not the one that was anchored" for id in missed))


def _checked(file: Path, key: bytes | None, anchors: Sequence[Anchor]) -> ExportReport:
    try:
        return check_export(file.read_text(encoding="utf-8").splitlines(), key, anchors)
    except (OSError, ValueError) as error:
        raise InvalidInput(f"`{file}` cannot be read: {error}", hint="check its path and mode") from None
