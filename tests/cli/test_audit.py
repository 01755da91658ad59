"""The record proved against what is kept elsewhere, signed, and a payload taken out of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

KEY = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def used(workspace: Path, packhost: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace with a call on record, and a key in the environment."""
    monkeypatch.setenv("AUDIT_KEY", KEY)
    assert packhost("call", "workspace:read_file", '{"path": "README.md"}').status == 0
    return workspace


@pytest.fixture
def anchored(used: Path, packhost: Callable[..., Any], tmp_path: Path) -> Path:
    """A file with two signed anchors."""
    file = tmp_path / "anchors.jsonl"
    for _ in range(2):
        assert packhost("audit", "anchor", str(file), "--hmac-key", "env:AUDIT_KEY").status == 0
        packhost("call", "workspace:read_file", '{"path": "README.md"}')
    return file


def test_the_head_is_shown_with_its_time_and_count(used: Path, packhost: Callable[..., Any]) -> None:
    head = packhost("audit", "head", "--json").json
    verified = packhost("audit", "verify", "--json").json
    assert (head["hash"], head["count"], head["id"]) == (
        verified["head"],
        verified["events"],
        verified["events"],
    )
    assert head["time"] > 0
    assert head["hash"] in packhost("audit", "head").out


def test_a_chain_goes_through_the_heads_that_were_kept(anchored: Path, packhost: Callable[..., Any]) -> None:
    first = json.loads(anchored.read_text().splitlines()[0])
    words = (
        "audit",
        "verify",
        "--anchor",
        str(anchored),
        "--hmac-key",
        "env:AUDIT_KEY",
        "--head",
        first["hash"],
    )
    ran = packhost(*words)
    assert (ran.status, "goes through 3 of 3 heads" in ran.out) == (0, True)
    ran = packhost("audit", "verify", "--head", "f" * 64)
    assert (ran.status, "was cut off" in ran.out) == (1, True)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"id":', '"id":9', "HMAC"),
        ('"mac":"', '"mac":"0', "HMAC"),
        ("{", "[", "is no anchor"),
        (None, "", "holds no anchor"),
    ],
)
def test_an_anchor_that_was_changed_is_refused(
    old: str | None, new: str, said: str, anchored: Path, packhost: Callable[..., Any]
) -> None:
    text = anchored.read_text()
    anchored.write_text(text.replace(old, new, 1) if old else new)
    ran = packhost("audit", "verify", "--anchor", str(anchored), "--hmac-key", "env:AUDIT_KEY")
    assert (ran.status, said in ran.err) == (2, True)


def test_an_anchor_without_an_hmac_does_not_pass_where_a_key_is_given(
    used: Path, packhost: Callable[..., Any], tmp_path: Path
) -> None:
    file = str(tmp_path / "plain.jsonl")
    packhost("audit", "anchor", file)
    assert packhost("audit", "verify", "--anchor", file).status == 0
    assert packhost("audit", "verify", "--anchor", file, "--hmac-key", "env:AUDIT_KEY").status == 2


def test_an_export_is_signed_in_its_last_line(
    used: Path, packhost: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "key").write_text(KEY)
    text = packhost("audit", "export", "--hmac-key", f"file:{tmp_path}/key").out
    assert "signature" in json.loads(text.splitlines()[-1])
    file = tmp_path / "record.jsonl"
    file.write_text(text)
    words = ("audit", "verify", "--export", str(file), "--json", "--hmac-key", "env:AUDIT_KEY")
    assert packhost(*words).json["signed"] is True
    file.write_text(text.replace("README.md", "OTHER.md", 1))
    ran = packhost(*words)
    assert (ran.status, ran.json["signed"], "data was changed" in ran.json["broken"]) == (1, False, True)


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        (KEY, "never given itself"),
        ("cmd:echo key", "never given itself"),
        ("env:NONE", "NONE"),
        ("env:SHORT", "shorter than"),
    ],
)
def test_a_key_is_named_and_never_given(
    reference: str, said: str, used: Path, packhost: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHORT", "short")
    ran = packhost("audit", "export", "--hmac-key", reference)
    assert (ran.status, said in ran.err, ran.out) == (2, True, "")


def test_a_person_takes_a_payload_out_and_the_chain_stays_whole(
    used: Path, packhost: Callable[..., Any], person: Callable[..., Any]
) -> None:
    someone = person(("Remove it? [y/N]", "y\n"))
    ran = packhost("audit", "redact", "--event", "2", "--reason", "a key was in it", "--json")
    assert ran.json["redacted"] == [2, 3]
    assert "README.md" in someone.seen
    lines = [json.loads(line) for line in packhost("audit", "export").out.splitlines()]
    assert (lines[1]["data"], lines[2]["data"]) == (None, None)
    assert lines[-1]["data"]["reason"] == "a key was in it"
    ran = packhost("audit", "verify")
    assert (ran.status, "2 payloads redacted on record" in ran.out) == (0, True)


@pytest.mark.parametrize("typed", ["n\n", "\n"])
def test_nothing_is_taken_out_without_a_yes(
    typed: str, used: Path, packhost: Callable[..., Any], person: Callable[..., Any]
) -> None:
    person(("Remove it? [y/N]", typed))
    assert packhost("audit", "redact", "--event", "2", "--reason", "x").status == 3
    assert packhost("audit", "verify", "--json").json["redacted"] == 0


def test_an_agents_shell_takes_nothing_out(
    used: Path, packhost: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDECODE", "1")
    assert packhost("audit", "redact", "--event", "2", "--reason", "x").status == 3
