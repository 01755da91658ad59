"""Bearer tokens at the command line: shown once, hashed at rest, made by a person."""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from packhost.cli import tokens
from packhost.workspace import operator as operators

Packhost = Callable[..., Any]
Seat = Callable[..., Any]
PASSPHRASE = "correct horse"


@pytest.fixture
def operator(
    workspace: Path, packhost: Packhost, person: Seat, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An operator with `PASSPHRASE`, and nobody at the terminal any more."""
    monkeypatch.setattr(operators, "COST", 2**12)
    person(("A passphrase", f"{PASSPHRASE}\n"), ("once more", f"{PASSPHRASE}\n"))
    assert packhost("operator", "set").status == 0
    monkeypatch.setattr("packhost.cli.terminal.DEVICE", str(tmp_path / "no-terminal"))


def test_a_token_is_shown_once_and_only_its_digest_is_kept(
    workspace: Path, packhost: Packhost, tmp_path: Path
) -> None:
    made = packhost("tokens", "new", "--role", "caller", "--name", "nightly", "--json").json
    token = made.pop("token")
    assert token.startswith("pkh_")
    assert len(token) > 43
    listed = packhost("tokens", "list", "--json")
    assert listed.json == {"tokens": [made]}
    state = next((tmp_path / "state" / "packhost").iterdir())
    with sqlite3.connect(f"file:{state / 'store.db'}?mode=ro", uri=True) as store:
        (kept,) = store.execute("SELECT token_sha FROM tokens").fetchone()
    store.close()
    assert kept == hashlib.sha256(token.encode()).hexdigest()
    assert all(token.encode() not in path.read_bytes() for path in state.rglob("*") if path.is_file())


def test_plain_output_is_the_token_alone_so_that_it_can_be_piped(workspace: Path, packhost: Packhost) -> None:
    ran = packhost("tokens", "new", "--role", "auditor")
    assert ran.out.startswith("pkh_")
    assert ran.out.count("\n") == 1
    assert "not shown again" in ran.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--role", "boss"), "boss"),
        (("--role", "auditor", "--scope", "runs:write"), "cannot have `runs:write`"),
        (("--role", "end-user", "--scope", "secrets:read"), "cannot have `secrets:read`"),
        (("--role", "caller", "--principal", " "), "`principal`"),
        (("--role", "caller", "--expires", "11000d"), "out of range"),
    ],
)
def test_what_no_token_can_be_is_refused(workspace: Path, packhost: Packhost, words, said) -> None:
    ran = packhost("tokens", "new", *words)
    assert ran.status == 2
    assert said in ran.err
    assert packhost("tokens", "list", "--all", "--json").json == {"tokens": []}


def test_a_token_reads_secrets_only_when_that_was_asked_for(workspace: Path, packhost: Packhost) -> None:
    usual = packhost("tokens", "new", "--role", "caller", "--json").json
    asked = packhost("tokens", "new", "--role", "caller", "--scope", "secrets:read", "--json").json
    assert "secrets:read" not in usual["scopes"]
    assert asked["scopes"] == ["secrets:read"]


def test_it_expires_after_thirty_days_unless_told_otherwise(workspace: Path, packhost: Packhost) -> None:
    usual = packhost("tokens", "new", "--role", "caller", "--json").json
    short = packhost("tokens", "new", "--role", "caller", "--expires", "2h", "--json").json
    assert usual["expires_at"] - time.time() == pytest.approx(30 * 86_400, abs=60)
    assert short["expires_at"] - time.time() == pytest.approx(7_200, abs=60)


def test_a_revoked_token_is_listed_only_among_all(workspace: Path, packhost: Packhost) -> None:
    made = packhost("tokens", "new", "--role", "caller", "--json").json
    assert packhost("tokens", "revoke", made["id"], "--json").json["state"] == "revoked"
    assert packhost("tokens", "list", "--json").json == {"tokens": []}
    assert packhost("tokens", "list", "--all", "--json").json["tokens"][0]["state"] == "revoked"
    again = packhost("tokens", "revoke", made["id"])
    assert "revoked already" in again.err
    lines = packhost("audit", "export").out
    assert '"token.added"' in lines
    assert '"token.revoked"' in lines


def test_an_agents_shell_makes_none(
    workspace: Path, packhost: Packhost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDECODE", "1")
    ran = packhost("tokens", "new", "--role", "operator")
    assert ran.status == 3
    assert "pkh_" not in ran.out + ran.err


def test_with_an_operator_only_the_passphrase_makes_one(
    operator: None, workspace: Path, packhost: Packhost, person: Seat
) -> None:
    assert packhost("tokens", "new", "--role", "caller").status != 0
    person(("passphrase", "wrong\n"), ("passphrase", f"{PASSPHRASE}\n"))
    ran = packhost("tokens", "new", "--role", "caller", "--json")
    assert ran.status == 0, ran.err
    assert ran.json["role"] == "caller"


def test_a_signature_for_one_token_makes_no_other(
    operator: None, workspace: Path, packhost: Packhost, person: Seat, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other(start: Path | None, op: str, **params: Any) -> Any:
        return request(start, op, **{**params, "role": "operator"} if op == "tokens.new" else params)

    request = tokens.request
    monkeypatch.setattr(tokens, "request", other)
    person(("passphrase", f"{PASSPHRASE}\n"))
    ran = packhost("tokens", "new", "--role", "caller")
    assert ran.status != 0
    assert "not the operator's for exactly this" in ran.err
