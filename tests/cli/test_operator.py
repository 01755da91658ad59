"""The operator at the command line: a passphrase at the terminal, and nothing else, answers for them."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from packhost.app.host import open_host, workspace_root
from packhost.cli.host import request
from packhost.errors import PackhostError
from packhost.store.lock import HostLock
from packhost.workspace import operator as operators
from packhost.workspace.operator import record_of, unseal

WRITE = ("call", "workspace:write_file", '{"path": "src/a.txt", "content": "hello\\n"}')
PASSPHRASE = "correct horse"
ASKED, AGAIN, OLD = "A passphrase", "once more", "present passphrase"
Packhost = Callable[..., Any]
Seat = Callable[..., Any]


@pytest.fixture(autouse=True)
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that is stretched quickly."""
    monkeypatch.setattr(operators, "COST", 2**12)


@pytest.fixture
def state(tmp_path: Path) -> Callable[[], Path]:
    """The state folder of the workspace."""
    return lambda: next((tmp_path / "state" / "packhost").iterdir())


@pytest.fixture
def operator(workspace: Path, packhost: Packhost, person: Seat) -> str:
    """An operator with `PASSPHRASE`; the fingerprint."""
    person((ASKED, f"{PASSPHRASE}\n"), (AGAIN, f"{PASSPHRASE}\n"))
    ran = packhost("operator", "set", "--json")
    assert ran.status == 0, ran.err
    return str(ran.json["fingerprint"])


def wanting(packhost: Packhost) -> str:
    return str(packhost(*WRITE, "--json").json["refusal"]["approval_id"])


def unseated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("packhost.cli.terminal.DEVICE", str(tmp_path / "no-terminal"))


def test_the_private_key_lies_sealed_and_private(operator: str, state: Callable[[], Path]) -> None:
    path = state() / "operator.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    record = record_of(json.loads(path.read_text()))
    assert record.fingerprint == operator
    assert PASSPHRASE not in path.read_text()
    assert unseal(record, PASSPHRASE) is not None
    assert unseal(record, PASSPHRASE + " ") is None


def test_the_passphrase_is_never_shown(workspace: Path, packhost: Packhost, person: Seat) -> None:
    someone = person((ASKED, f"{PASSPHRASE}\n"), (AGAIN, f"{PASSPHRASE}\n"))
    assert packhost("operator", "set").status == 0
    assert PASSPHRASE not in someone.seen


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        (((ASKED, "short\n"),), "too short"),
        (((ASKED, f"{PASSPHRASE}\n"), (AGAIN, "correct house\n")), "differ"),
    ],
)
def test_a_passphrase_that_is_short_or_mistyped_sets_nothing(
    answers: Any, said: str, workspace: Path, packhost: Packhost, person: Seat
) -> None:
    person(*answers)
    ran = packhost("operator", "set")
    assert ran.status == 2
    assert said in ran.err
    assert packhost("operator", "show", "--json").json["state"] == "none"


def test_an_approval_at_the_terminal_then_takes_the_passphrase(
    operator: str, workspace: Path, packhost: Packhost, person: Seat, monkeypatch: Any, tmp_path: Path
) -> None:
    unseated(monkeypatch, tmp_path)
    approval = wanting(packhost)
    person(("Approve?", "yes\n"), ("passphrase", f"{PASSPHRASE}\n"))
    found = packhost("approvals", "approve", approval, "--json")
    assert found.status == 0
    assert [each["assurance"] for each in found.json["answers"]] == ["operator"]
    unseated(monkeypatch, tmp_path)
    assert packhost(*WRITE).status == 0
    assert packhost(*WRITE).status == 4


def test_a_wrong_passphrase_approves_nothing(
    operator: str, packhost: Packhost, person: Seat, monkeypatch: Any, tmp_path: Path
) -> None:
    unseated(monkeypatch, tmp_path)
    approval = wanting(packhost)
    person(
        ("Approve?", "yes\n"),
        ("passphrase", "wrong\n"),
        ("passphrase", "wronger\n"),
        ("passphrase", "wrongest\n"),
    )
    ran = packhost("approvals", "approve", approval)
    assert ran.status == 3
    assert "no right passphrase" in ran.err
    assert packhost("approvals", "show", approval, "--json").json["status"] == "pending"


def test_a_call_at_the_terminal_asks_for_the_passphrase_too(
    operator: str, workspace: Path, packhost: Packhost, person: Seat
) -> None:
    person(("Approve?", "yes\n"), ("passphrase", f"{PASSPHRASE}\n"))
    assert packhost(*WRITE).status == 0
    assert (workspace / "src/a.txt").read_text() == "hello\n"


def test_denying_takes_no_passphrase(
    operator: str, packhost: Packhost, monkeypatch: Any, tmp_path: Path
) -> None:
    unseated(monkeypatch, tmp_path)
    assert packhost("approvals", "deny", wanting(packhost)).status == 0


def test_consent_is_signed_and_an_edited_record_counts_for_nothing(
    operator: str, workspace: Path, packhost: Packhost, person: Seat, state: Callable[[], Path]
) -> None:
    assert packhost("doctor", "--json").json
    config = workspace / "packhost.yaml"
    config.write_text(config.read_text().replace("path write src/**", "path write docs/**"))
    person(("Accept this?", "y\n"), ("passphrase", f"{PASSPHRASE}\n"))
    assert packhost("accept").status == 0
    record = state() / "accepted.json"
    kept = json.loads(record.read_text())
    assert kept["signature"]

    kept["file"] = kept["file"].replace("path write docs/**", "path write **")
    kept["sha256"] = hashlib.sha256(kept["file"].encode()).hexdigest()
    record.write_text(json.dumps(kept))
    found = packhost("operator", "show", "--json")
    assert found.status == 0
    told = packhost("doctor", "--json").out
    assert "not signed by the operator" in told


def test_accepting_for_scripts_takes_the_passphrase_as_well(
    operator: str, workspace: Path, packhost: Packhost, monkeypatch: Any, tmp_path: Path
) -> None:
    unseated(monkeypatch, tmp_path)
    config = workspace / "packhost.yaml"
    config.write_text(config.read_text() + "limits: {max_argument_bytes: 2MiB}\n")
    assert packhost("accept", "--yes").status == 2


def test_what_was_accepted_before_still_holds_after(operator: str, packhost: Packhost) -> None:
    assert packhost("accept", "--json").json["changes"] == []
    assert "not signed" not in packhost("doctor").out


def test_replacing_the_operator_takes_the_old_passphrase(
    operator: str, packhost: Packhost, person: Seat
) -> None:
    person(
        (OLD, "wrong\n"),
        (OLD, "wrong\n"),
        (OLD, "wrong\n"),
        (ASKED, "another one\n"),
        (AGAIN, "another one\n"),
    )
    assert packhost("operator", "set").status == 3
    assert packhost("operator", "show", "--json").json["fingerprint"] == operator
    person((OLD, f"{PASSPHRASE}\n"), (ASKED, "another one\n"), (AGAIN, "another one\n"))
    ran = packhost("operator", "set", "--json")
    assert ran.status == 0, ran.err
    assert ran.json["fingerprint"] != operator
    assert "not signed" not in packhost("doctor").out


def test_removing_the_operator_takes_the_passphrase(operator: str, packhost: Packhost, person: Seat) -> None:
    person(("passphrase", f"{PASSPHRASE}\n"))
    assert packhost("operator", "remove").status == 0
    assert packhost("operator", "show", "--json").json["state"] == "none"
    assert "not signed" not in packhost("doctor").out


@pytest.mark.parametrize("loss", ["removed", "damaged", "swapped", "open"])
def test_a_lost_operator_approves_nothing_and_says_what_to_do(
    loss: str,
    operator: str,
    packhost: Packhost,
    person: Seat,
    monkeypatch: Any,
    tmp_path: Path,
    state: Callable[[], Path],
) -> None:
    unseated(monkeypatch, tmp_path)
    approval = wanting(packhost)
    path = state() / "operator.json"
    if loss == "removed":
        path.unlink()
    elif loss == "damaged":
        path.write_text(path.read_text()[:-20])
    elif loss == "swapped":
        record, _ = operators.make_record("mallory's own", by="mallory", at=0.0)
        path.write_text(json.dumps(record.as_json()))
    else:
        path.chmod(0o644)
    person(("Approve?", "yes\n"), ("passphrase", "mallory's own\n"))
    ran = packhost("approvals", "approve", approval)
    assert ran.status == 3, ran.err
    assert packhost("approvals", "show", approval, "--json").json["status"] == "pending"
    assert packhost("operator", "show", "--json").json["state"] == "lost"
    person((OLD, "mallory's own\n"), (ASKED, "mallory's own\n"), (AGAIN, "mallory's own\n"))
    again = packhost("operator", "set")
    assert again.status == 3
    assert "passphrase" in again.err or "state folder" in again.err or "chmod" in again.err


def test_a_row_that_is_gone_makes_no_unsigned_answer_count_and_the_passphrase_brings_it_back(
    operator: str,
    packhost: Packhost,
    person: Seat,
    monkeypatch: Any,
    tmp_path: Path,
    state: Callable[[], Path],
) -> None:
    unseated(monkeypatch, tmp_path)
    approval = wanting(packhost)
    with sqlite3.connect(state() / "store.db") as database:
        database.execute("DELETE FROM operators")
    database.close()
    person(("Approve?", "yes\n"), ("passphrase", f"{PASSPHRASE}\n"))
    assert packhost("approvals", "approve", approval).status == 3
    person((OLD, f"{PASSPHRASE}\n"), (ASKED, f"{PASSPHRASE}\n"), (AGAIN, f"{PASSPHRASE}\n"))
    assert packhost("operator", "set").status == 0
    person(("Approve?", "yes\n"), ("passphrase", f"{PASSPHRASE}\n"))
    assert packhost("approvals", "approve", approval).status == 0


def test_an_agents_shell_sets_no_operator(workspace: Path, packhost: Packhost, monkeypatch: Any) -> None:
    monkeypatch.setenv("CLAUDECODE", "1")
    assert packhost("operator", "set").status == 3
    assert packhost("operator", "remove").status == 3


def test_a_dialog_accepts_no_change_where_there_is_an_operator(
    operator: str, workspace: Path, packhost: Packhost
) -> None:
    config = workspace / "packhost.yaml"
    config.write_text(config.read_text().replace("path write src/**", "path write docs/**"))

    async def accept() -> str:
        with workspace_root(workspace) as root, HostLock(root.state) as lock:
            assert lock.acquire()
            async with open_host(root) as host:
                await anyio.lowlevel.checkpoint()  # what the host began begins before it ends
                consent = host.consent()
                assert consent is not None
                assert consent.by_hand
                try:
                    await host.accept(consent.digest, by="ann", channel="client")
                except PackhostError as error:
                    return error.code
        return "accepted"

    assert anyio.run(accept) == "APPROVAL_MODE_UNSUPPORTED"


def test_doctor_tells_how_the_operator_stands(
    operator: str, packhost: Packhost, state: Callable[[], Path]
) -> None:
    assert "take the passphrase" in packhost("doctor").out
    (state() / "operator.json").unlink()
    assert "whatever needs an operator is refused" in packhost("doctor").out


def test_a_grant_is_signed_where_there_is_an_operator(
    operator: str, packhost: Packhost, person: Seat, monkeypatch: Any, tmp_path: Path
) -> None:
    unseated(monkeypatch, tmp_path)
    approval = wanting(packhost)
    person(("Approve?", "yes\n"), ("passphrase", f"{PASSPHRASE}\n"))
    found = packhost("approvals", "approve", approval, "--always", "--uses", "1", "--json")
    assert found.status == 0, found.err
    assert found.json["grant"]
    unseated(monkeypatch, tmp_path)
    assert [packhost(*WRITE).status for _ in range(3)] == [0, 0, 4]
    with pytest.raises(PackhostError) as caught:
        request(None, "approvals.decide", id=wanting(packhost), verdict="approve", always={})
    assert caught.value.code == "APPROVAL_MODE_UNSUPPORTED"
