"""The command that opens the console: whose ticket it makes, and what it prints."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from packhost.cli.console import opening_ticket
from packhost.cli.host import request, with_control
from packhost.errors import PackhostError
from packhost.workspace import operator as operators

PASSPHRASE = "correct horse"
ASKED, AGAIN, PRESENT = "A passphrase", "once more", "The operator's passphrase"
Seat = Callable[..., Any]


@pytest.fixture
def operator(
    workspace: Path, packhost: Callable[..., Any], person: Seat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator with `PASSPHRASE`."""
    monkeypatch.setattr(operators, "COST", 2**12)
    person((ASKED, f"{PASSPHRASE}\n"), (AGAIN, f"{PASSPHRASE}\n"))
    assert packhost("operator", "set").status == 0


def test_without_an_operator_a_ticket_asks_nobody(workspace: Path) -> None:
    assert len(with_control(workspace, opening_ticket)) == 43


def test_where_there_is_an_operator_a_ticket_takes_the_passphrase(
    operator: None, workspace: Path, person: Seat
) -> None:
    someone = person((PRESENT, "wrong\n"), (PRESENT, f"{PASSPHRASE}\n"))
    assert len(with_control(workspace, opening_ticket)) == 43
    assert PASSPHRASE not in someone.seen


def test_without_the_passphrase_there_is_no_ticket(operator: None, workspace: Path, person: Seat) -> None:
    person(*((PRESENT, "wrong\n"),) * 3)
    with pytest.raises(PackhostError, match="no right passphrase"):
        with_control(workspace, opening_ticket)
    with pytest.raises(PackhostError, match="needs an operator"):
        request(workspace, "console.ticket")
