"""Proof of the record that is kept elsewhere: anchors of its head, and signatures of exports.

A chain cannot show that its end was cut off. An anchor is a line of JSON with the head at some time; with a
key kept elsewhere it carries an HMAC-SHA256, as does the last line of a signed export.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from packhost.errors import InvalidInput, Place
from packhost.journal import BrokenLink, Record, Verified, canonical, chain_hash, digest, verify

ALGORITHM: Final = "HMAC-SHA256"
_FIELDS = ("id", "workspace", "execution_id", "call_id", "type", "actor", "data_sha", "ts", "prev", "hash")
_DATA = ',"data":'


@dataclass(frozen=True, slots=True)
class Anchor:
    """A head that the chain must still go through; `id` is 0 when only the hash is known."""

    hash: str
    id: int = 0


def anchor_line(head: Mapping[str, Any], key: bytes | None) -> str:
    """A line for an anchor file: id, hash, time and count of the head, and with a key their HMAC."""
    body = {name: head[name] for name in ("id", "hash", "time", "count")}
    return canonical({**body, "mac": _mac(key, canonical(body).encode())} if key else body)


def read_anchors(text: str, name: str, key: bytes | None) -> tuple[Anchor, ...]:
    """The anchors in a file; with a key each must carry its HMAC.

    :raises InvalidInput: a line is no anchor, or its HMAC does not fit; the error carries the place.
    """
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            body = json.loads(line)
            mac = body.pop("mac", None)
            anchor = Anchor(str(body["hash"]), int(body["id"]))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise InvalidInput(
                "this line is no anchor",
                place=Place(name, number),
                hint="`packhost audit anchor` writes them",
            ) from None
        if key is not None and not hmac.compare_digest(str(mac), _mac(key, canonical(body).encode())):
            raise InvalidInput(
                "the anchor's HMAC does not fit the key",
                place=Place(name, number),
                hint="it was not made with it",
            )
        found.append(anchor)
    return tuple(found)


def _mac(key: bytes, data: bytes) -> str:
    return hmac.new(key, data, hashlib.sha256).hexdigest()


class ExportSeal:
    """Signs an export while it is written: every line and its end."""

    def __init__(self, key: bytes) -> None:
        self._mac = hmac.new(key, digestmod=hashlib.sha256)
        self._lines = 0

    def add(self, line: str) -> None:
        """One line of the export, without its end."""
        self._mac.update(f"{line}\n".encode())
        self._lines += 1

    @property
    def mac(self) -> str:
        """The HMAC of all lines so far."""
        return self._mac.hexdigest()

    def line(self) -> str:
        """The last line of the export."""
        signature = {"algorithm": ALGORITHM, "lines": self._lines, "mac": self.mac}
        return canonical({"signature": signature})


def export_line(record: Record) -> str:
    """An event as one line of JSON; `data` stands as it was hashed, `null` when it was redacted."""
    return (
        f'{{"id":{record.id},"ts":{canonical(record.ts)},"type":{canonical(record.type)},'
        f'"workspace":{canonical(record.workspace)},"execution_id":{canonical(record.execution_id)},'
        f'"call_id":{canonical(record.call_id)},"actor":{canonical(record.actor)}'
        f'{_DATA}{record.data or "null"},"data_sha":"{record.data_sha}",'
        f'"prev":"{record.prev}","hash":"{record.hash}"}}'
    )


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a chain: its first and last event, the hash before it and the hash that it ends with."""

    first: int
    last: int
    prev: str
    head: str


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What a file of exported events proves.

    `signed` is `None` when there was no key to check with; `seen` has the events of the file by the hashes
    that were asked for; `span` is `None` for a file without events.
    """

    count: int
    first: int
    head: str
    broken: str
    signed: bool | None
    span: Span | None = None
    seen: Mapping[str, int] = field(default_factory=dict)


def check_export(lines: Iterable[str], key: bytes | None, anchors: Sequence[Anchor] = ()) -> ExportReport:
    """Hold an export to its own chain and, with a key, to its signature; look for the anchors in it.

    One that does not begin with the first event is held from its own beginning on.
    """
    seal = ExportSeal(key) if key else None
    signed: bool | None = False if key else None
    records: list[Record] = []
    broken = ""
    for number, line in enumerate(lines, 1):
        if line.startswith('{"signature":'):
            signed = _fits(line, seal) if seal else None
            continue
        if signed:
            signed = False  # a line after the signature is not covered by it
        if seal:
            seal.add(line)
        try:
            records.append(_record(line))
        except (ValueError, KeyError, TypeError):
            broken = broken or f"line {number} is no event"
    broken = broken or _fault(records)
    if not records:
        return ExportReport(0, 0, "", broken, signed)
    first, last = records[0], records[-1]
    wanted = {anchor.hash for anchor in anchors}
    seen = {record.hash: record.id for record in records if record.hash in wanted}
    span = Span(first.id, last.id, first.prev, last.hash)
    return ExportReport(len(records), first.id, last.hash, broken, signed, span, seen)


def join_spans(spans: Sequence[Span]) -> tuple[Span | None, str]:
    """The one part that several parts make in their order, and why they do not when they do not."""
    whole: Span | None = None
    for span in sorted(spans, key=lambda one: one.first):
        if whole is None:
            whole = span
        elif span.first != whole.last + 1:
            return whole, f"after event {whole.last} follows the export of event {span.first}"
        elif span.prev != whole.head:
            return whole, f"event {span.first} does not follow the export that ends before it"
        else:
            whole = Span(whole.first, span.last, whole.prev, span.head)
    return whole, ""


def _fits(line: str, seal: ExportSeal) -> bool:
    try:
        return hmac.compare_digest(str(json.loads(line)["signature"]["mac"]), seal.mac)
    except (ValueError, KeyError, TypeError):
        return False


def _record(line: str) -> Record:
    value = json.loads(line)
    start = line.index(_DATA) + len(_DATA)
    _, end = json.JSONDecoder().raw_decode(line, start)
    data = line[start:end]
    return Record(data=None if data == "null" else data, **{name: value[name] for name in _FIELDS})


def _fault(records: list[Record]) -> str:
    if not records or records[0].id == 1:
        found: Verified | BrokenLink = verify(records)
        return f"event {found.id}: {found.reason}" if isinstance(found, BrokenLink) else ""
    return next(_faults(records), "")


def _faults(records: list[Record]) -> Iterator[str]:
    before: Record | None = None
    for record in records:
        if before is not None and (record.prev != before.hash or record.id != before.id + 1):
            yield f"event {record.id}: it does not follow the one before it"
        if record.data is not None and digest(record.data) != record.data_sha:
            yield f"event {record.id}: its data was changed"
        if chain_hash(record.prev, record) != record.hash:
            yield f"event {record.id}: its fields do not match its hash"
        before = record
