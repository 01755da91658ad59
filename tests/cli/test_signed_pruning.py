"""Where there is an operator, nothing is pruned without their signature, and a forged pruning shows."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from packhost.cli.host import request
from packhost.errors import PackhostError
from packhost.store.ops import events, pruning
from packhost.store.sqlite import SqliteTx
from packhost.workspace import operator as operators

PASSPHRASE = "correct horse"
PRUNE = ("store", "prune", "--older-than", "1d", "--without-export", "--yes")


@pytest.fixture
def operated(
    aged: Path, packhost: Callable[..., Any], person: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A workspace with old events and an operator."""
    monkeypatch.setattr(operators, "COST", 2**12)
    person(("A passphrase", f"{PASSPHRASE}\n"), ("once more", f"{PASSPHRASE}\n"))
    assert packhost("operator", "set").status == 0
    return aged


def test_a_pruning_that_the_operator_signed_says_so(
    operated: Path, packhost: Callable[..., Any], person: Callable[..., Any]
) -> None:
    someone = person(("passphrase", f"{PASSPHRASE}\n"))
    ran = packhost(*PRUNE)
    assert (ran.status, PASSPHRASE in someone.seen) == (0, False)
    ran = packhost("audit", "verify")
    assert (ran.status, "signed by the operator" in ran.out, "not signed" in ran.out) == (0, True, False)
    assert packhost("audit", "verify", "--json").json["prunings"][0]["signed"] is True


def test_without_the_passphrase_nothing_goes(
    operated: Path, packhost: Callable[..., Any], person: Callable[..., Any]
) -> None:
    person(*[("passphrase", "wrong horse\n")] * 3)
    assert packhost(*PRUNE).status == 3
    assert packhost("audit", "verify", "--json").json["pruned"] == 0
    plan = packhost("store", "prune", "--older-than", "1d", "--dry-run", "--json").json["plan"]
    asked = {"events": 86_400.0, "runs": 86_400.0, "last": plan["events"]["last"], "without_export": True}
    for signed in (None, {"at": 1.0, "signature": "00" * 64}):
        with pytest.raises(PackhostError) as caught:
            request(operated, "store.prune", **asked, signed=signed)
        assert caught.value.code == "APPROVAL_MODE_UNSUPPORTED"


def test_a_forged_pruning_is_shown_as_not_signed(operated: Path, packhost: Callable[..., Any]) -> None:
    (state,) = (operated.parent / "state" / "packhost").iterdir()
    connection = sqlite3.connect(state / "store.db", isolation_level=None)
    tx = SqliteTx(connection, state.name)
    tx.begin()
    record = events.by_id(tx, 3)
    assert record is not None
    plan = pruning.EventsPlan(1, 3, record.hash)
    event = pruning.announce(tx, plan, 0.0, "ann", "", None, (1.0, "00" * 64))
    pruning.drop_events(tx, event, 10)
    tx.commit()
    connection.close()
    ran = packhost("audit", "verify")
    assert (ran.status, "not signed by the operator" in ran.out) == (0, True)


def test_where_there_is_no_operator_nothing_is_said_of_signatures(
    aged: Path, packhost: Callable[..., Any]
) -> None:
    assert packhost(*PRUNE).status == 0
    ran = packhost("audit", "verify")
    assert (ran.status, "signed" in ran.out) == (0, False)
