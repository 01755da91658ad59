"""The audit chain: frozen event records, each bound to the one before it by a hash.

A record's hash is `sha256(prev + canonical({id, workspace, execution_id, call_id, type, actor,
data_sha, ts}))`. Only the digest of the payload is in it, so that a payload can be redacted later
(`data` becomes `None`) without breaking the chain. Ids count from 1 without a gap.

A chain cannot show that its tail was cut off: keep the head's hash elsewhere to prove that.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from packhost.errors import InvalidInput

GENESIS = "0" * 64
"""What the first record names as the hash before it."""

_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode


@dataclass(frozen=True, slots=True)
class Record:
    """One event of the chain.

    `data` is canonical JSON text, `None` when it was redacted; `data_sha` is its SHA-256 either
    way. `ts` is in seconds since the epoch. `hash` binds all of it to `prev`.
    """

    id: int
    workspace: str
    execution_id: str | None
    call_id: str | None
    type: str
    actor: str
    data: str | None
    data_sha: str
    ts: float
    prev: str
    hash: str


@dataclass(frozen=True, slots=True)
class Verified:
    """Every link holds; `head` is the last record's hash, `GENESIS` for an empty chain."""

    count: int
    head: str


@dataclass(frozen=True, slots=True)
class BrokenLink:
    """The first record that does not fit, and why."""

    id: int
    reason: str


def canonical(value: Any) -> str:
    """The one JSON text of a value: sorted keys, no spaces, ASCII, no NaN.

    ASCII, since a lone surrogate is legal in JSON and cannot be written as UTF-8.
    Raises `InvalidInput` for what JSON cannot hold.
    """
    try:
        return _encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(
            f"a value cannot be recorded as JSON: {error}",
            hint="use only objects, arrays, strings, finite numbers, booleans and null",
        ) from error


def digest(text: str) -> str:
    """SHA-256 of a text, as 64 hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()


def chain_hash(prev: str, record: Record) -> str:
    """The hash that binds `record` (its own `prev` and `hash` aside) to the hash before it."""
    return link(
        prev,
        record.id,
        record.workspace,
        record.execution_id,
        record.call_id,
        record.type,
        record.actor,
        record.data_sha,
        record.ts,
    )


def link(
    prev: str,
    id: int,
    workspace: str,
    execution_id: str | None,
    call_id: str | None,
    type: str,
    actor: str,
    data_sha: str,
    ts: float,
) -> str:
    """`chain_hash` for the writer, which has no record yet."""
    body = _encode(
        {
            "actor": actor,
            "call_id": call_id,
            "data_sha": data_sha,
            "execution_id": execution_id,
            "id": id,
            "ts": ts,
            "type": type,
            "workspace": workspace,
        }
    )
    return hashlib.sha256((prev + body).encode()).hexdigest()


def verify(records: Iterable[Record], after: int = 0, prev: str = GENESIS) -> Verified | BrokenLink:
    """Walk a chain in order; the first link that does not hold, or what was verified.

    `after` and `prev` are the id and the hash of the record before the first, where the chain does not
    begin with its own first record.
    """
    count = 0
    for record in records:
        reason = _fault(record, prev, after + count + 1)
        if reason:
            return BrokenLink(record.id, reason)
        prev, count = record.hash, count + 1
    return Verified(count, prev)


def _fault(record: Record, prev: str, expected: int) -> str:
    if record.id != expected:
        return f"record {expected} is missing"
    if record.prev != prev:
        return "it does not name the hash of the record before it"
    if record.data is not None and digest(record.data) != record.data_sha:
        return "its data was changed"
    if chain_hash(prev, record) != record.hash:
        return "its fields do not match its hash"
    return ""
