"""The operator's record: sealed, private, replaced without a gap, and worth nothing once it was touched."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from packhost.errors import ConfigInvalid
from packhost.workspace.operator import (
    NEXT_FILE,
    OPERATOR_FILE,
    OperatorFile,
    OperatorRecord,
    Signer,
    make_record,
    record_of,
    signed_by,
    unseal,
)

CHEAP = 2**12


@pytest.fixture(scope="module")
def made() -> tuple[OperatorRecord, Signer]:
    """An operator with the passphrase `correct horse`."""
    return make_record("correct horse", by="ann", at=1.5, cost=CHEAP)


def test_the_passphrase_alone_brings_the_key_back(made: Any) -> None:
    record, signer = made
    again = unseal(record, "correct horse")
    assert again is not None
    assert again.sign(b"x") == signer.sign(b"x")
    for wrong in ("", "correct hors", "correct horse ", "Correct horse"):
        assert unseal(record, wrong) is None


def test_a_signature_is_for_one_statement_by_one_key(made: Any) -> None:
    record, signer = made
    other, _ = make_record("another one", by="ann", at=1.5, cost=CHEAP)
    signature = signer.sign(b"yes")
    assert signed_by(record.public_key, b"yes", signature)
    assert not signed_by(record.public_key, b"no", signature)
    assert not signed_by(other.public_key, b"yes", signature)
    for broken in ("", "00", "zz", signature[:-2], signature + "00"):
        assert not signed_by(record.public_key, b"yes", broken)
    assert not signed_by("zz", b"yes", signature)


@pytest.mark.parametrize(
    "change",
    [
        {"public_key": "00" * 32},
        {"created_by": "mallory"},
        {"cost": CHEAP * 2},
        {"salt": "00" * 16},
        {"nonce": "00" * 12},
        {"sealed": "00" * 48},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_record_that_was_touched_unseals_nothing(change: Any, made: Any) -> None:
    record, _ = made
    assert unseal(replace(record, **change), "correct horse") is None


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"public_key": "00"},
        {"public_key": "xyz"},
        {"cost": 2**30},
        {"cost": 1},
        {"cost": "much"},
        {"created_at": "now"},
        {"nonce": None},
    ],
)
def test_a_record_that_makes_no_sense_is_refused(change: Any, made: Any) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        record_of({**made[0].as_json(), **change})
    assert "operator.json" in caught.value.hint


def test_a_record_is_private_and_read_back_whole(made: Any, tmp_path: Path) -> None:
    file = OperatorFile(tmp_path)
    assert file.read() is None
    file.prepare(made[0])
    file.promote()
    assert file.read() == made[0]
    assert stat.S_IMODE((tmp_path / OPERATOR_FILE).stat().st_mode) == 0o600
    file.remove()
    assert file.read() is None


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"version": 1}', "\x00" * 100])
def test_a_damaged_file_is_an_error_and_not_nobody(content: str, tmp_path: Path) -> None:
    path = tmp_path / OPERATOR_FILE
    path.touch(0o600)
    path.write_text(content)
    with pytest.raises(ConfigInvalid, match="damaged"):
        OperatorFile(tmp_path).read()


def test_a_link_is_not_followed(made: Any, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.json"
    elsewhere.write_text(json.dumps(made[0].as_json()))
    (tmp_path / OPERATOR_FILE).symlink_to(elsewhere)
    with pytest.raises(ConfigInvalid):
        OperatorFile(tmp_path).read()


@pytest.mark.parametrize("first", [True, False], ids=["replaced", "first"])
def test_a_crash_between_the_store_and_the_file_loses_nobody(first: bool, made: Any, tmp_path: Path) -> None:
    old, _ = made
    new, _ = make_record("another one", by="ann", at=2.5, cost=CHEAP)
    file = OperatorFile(tmp_path)
    if first:
        file.prepare(old)
        file.promote()
    file.prepare(new)
    # the store still names the old one: nothing has happened
    assert file.current(old.fingerprint if first else None) == (old if first else None)
    # the store names the new one: it takes over
    assert file.current(new.fingerprint) == new
    assert not (tmp_path / NEXT_FILE).exists()
    assert file.read() == new
