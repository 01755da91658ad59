"""The audit chain as values."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packhost.errors import InvalidInput
from packhost.journal import GENESIS, BrokenLink, Record, Verified, canonical, chain_hash, digest, verify

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def chain(*payloads: object) -> list[Record]:
    records: list[Record] = []
    prev = GENESIS
    for id, payload in enumerate(payloads, 1):
        data = canonical(payload)
        open_record = Record(
            id, "ws", f"run_{id}", None, "call.ok", "me", data, digest(data), id / 7, prev, ""
        )
        prev = chain_hash(prev, open_record)
        records.append(dataclasses.replace(open_record, hash=prev))
    return records


@given(JSON)
def test_canonical_text_read_back_gives_the_same_text(value: object) -> None:
    assert canonical(json.loads(canonical(value))) == canonical(value)


def test_canonical_text_does_not_depend_on_the_order_of_keys() -> None:
    assert canonical({"b": 1, "a": [1, {"d": 2, "c": 3}]}) == canonical({"a": [1, {"c": 3, "d": 2}], "b": 1})


def test_canonical_text_holds_a_lone_surrogate() -> None:
    assert canonical("\ud800").encode() == b'"\\ud800"'


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, object(), b"bytes"])
def test_what_is_no_json_is_refused_with_a_hint(value: object) -> None:
    with pytest.raises(InvalidInput) as caught:
        canonical({"value": value})
    assert caught.value.hint


def test_a_value_that_contains_itself_is_refused() -> None:
    value: list[object] = []
    value.append(value)
    with pytest.raises(InvalidInput):
        canonical(value)


def test_the_hash_of_a_known_record_never_changes() -> None:
    record = Record(1, "ws", None, None, "run.queued", "me", "{}", digest("{}"), 1.5, GENESIS, "")
    body = (
        f'{{"actor":"me","call_id":null,"data_sha":"{digest("{}")}","execution_id":null,"id":1,'
        '"ts":1.5,"type":"run.queued","workspace":"ws"}'
    )
    assert chain_hash(GENESIS, record) == digest(GENESIS + body)


def test_an_empty_chain_verifies() -> None:
    assert verify([]) == Verified(0, GENESIS)


@given(st.lists(JSON, max_size=5))
def test_an_untouched_chain_verifies_up_to_its_head(payloads: list[object]) -> None:
    records = chain(*payloads)
    assert verify(records) == Verified(len(records), records[-1].hash if records else GENESIS)


def test_a_redacted_payload_does_not_break_the_chain() -> None:
    records = chain({"secret": 1}, {"secret": 2})
    records[0] = dataclasses.replace(records[0], data=None)
    assert verify(records) == Verified(2, records[1].hash)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"data": '{"n":9}'}, "its data was changed"),
        ({"data": '{"n":9}', "data_sha": digest('{"n":9}')}, "its fields do not match its hash"),
        ({"actor": "somebody"}, "its fields do not match its hash"),
        ({"type": "call.error"}, "its fields do not match its hash"),
        ({"execution_id": None}, "its fields do not match its hash"),
        ({"call_id": "call_1"}, "its fields do not match its hash"),
        ({"workspace": "other"}, "its fields do not match its hash"),
        ({"ts": 0.25}, "its fields do not match its hash"),
        ({"hash": "0" * 64}, "its fields do not match its hash"),
        ({"prev": GENESIS}, "it does not name the hash of the record before it"),
        ({"id": 7}, "record 2 is missing"),
    ],
)
def test_a_changed_field_is_named_with_its_record(change: dict[str, object], reason: str) -> None:
    records = chain({"n": 1}, {"n": 2}, {"n": 3})
    records[1] = dataclasses.replace(records[1], **change)
    assert verify(records) == BrokenLink(records[1].id, reason)


def test_a_removed_record_is_named_by_the_one_after_it() -> None:
    records = chain(1, 2, 3)
    del records[1]
    assert verify(records) == BrokenLink(3, "record 2 is missing")


def test_a_forged_record_breaks_at_the_next_link() -> None:
    records = chain(1, 2, 3)
    forged = dataclasses.replace(records[1], data="9", data_sha=digest("9"))
    records[1] = dataclasses.replace(forged, hash=chain_hash(forged.prev, forged))
    assert verify(records) == BrokenLink(3, "it does not name the hash of the record before it")
