"""Consent: shown first, answered at a terminal, refused in an agent's shell."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

WIDER = "  - path write docs/**\n"


def widen(workspace: Path) -> None:
    file = workspace / "packhost.yaml"
    file.write_text(file.read_text().replace("bound:\n", f"bound:\n{WIDER}"))


def verdict(packhost: Callable[..., Any]) -> str:
    arguments = '{"path": "docs/a", "content": ""}'
    return str(packhost("explain", "workspace:write_file", arguments, "--json").json["verdict"])


def test_a_person_sees_what_becomes_possible_and_accepts_it(
    workspace: Path, packhost: Callable[..., Any], person: Callable[..., Any]
) -> None:
    widen(workspace)
    assert verdict(packhost) == "refuse"
    someone = person(("Accept this? [y/N]", "y\n"))
    ran = packhost("accept", "--json")
    assert ran.json["accepted"] is True
    assert "path write docs/**" in someone.seen
    assert verdict(packhost) == "ask"


@pytest.mark.parametrize("typed", ["n\n", "\n", "yess\n", "\x04"])
def test_anything_but_a_yes_accepts_nothing(
    typed: str, workspace: Path, packhost: Callable[..., Any], person: Callable[..., Any]
) -> None:
    widen(workspace)
    person(("Accept this? [y/N]", typed))
    ran = packhost("accept", "--json")
    assert (ran.status, ran.json["accepted"]) == (3, False)
    assert verdict(packhost) == "refuse"


def test_without_a_terminal_nothing_is_accepted(workspace: Path, packhost: Callable[..., Any]) -> None:
    widen(workspace)
    assert packhost("accept").status == 2
    assert verdict(packhost) == "refuse"


@pytest.mark.parametrize("name", ["CLAUDECODE", "CURSOR_AGENT"])
def test_an_agents_shell_accepts_nothing_and_is_told_that_this_is_no_lock(
    name: str, workspace: Path, packhost: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    widen(workspace)
    monkeypatch.setenv(name, "1")
    ran = packhost("accept", "--yes")
    assert ran.status == 3
    assert "speed bump" in ran.err
    assert "--yes" not in ran.err
    assert verdict(packhost) == "refuse"


def test_the_option_for_scripts_is_named_in_no_help(packhost: Callable[..., Any]) -> None:
    assert "--yes" not in packhost("accept", "--help").out


def test_where_nothing_waits_nobody_is_asked(workspace: Path, packhost: Callable[..., Any]) -> None:
    ran = packhost("accept")
    assert ran.status == 0
    assert "nothing waits" in ran.out


def test_a_change_that_brings_code_is_marked_so(
    workspace: Path, packhost: Callable[..., Any], person: Callable[..., Any]
) -> None:
    file = workspace / "packhost.yaml"
    file.write_text(file.read_text() + "secrets: {KEY: 'cmd:print-key'}\n")
    someone = person(("Accept this? [y/N]", "n\n"))
    packhost("accept")
    assert "CODE  the secret `KEY`" in someone.seen


def test_a_changed_pack_is_shown_as_a_diff(
    workspace: Path, packhost: Callable[..., Any], person: Callable[..., Any]
) -> None:
    pack = workspace / "mine"
    pack.mkdir()
    (pack / "pack.yaml").write_text("packhost: 1\nid: mine\nversion: '1'\ntitle: Mine\ntools: []\n")
    (pack / "code.py").write_text("x = 1\n")
    file = workspace / "packhost.yaml"
    file.write_text(file.read_text().replace("packs: [", "packs: [{path: ./mine}, "))
    assert packhost("accept", "--yes").status == 0
    (pack / "code.py").write_text("x = 1\ny = '\u202eevil'\n")
    (pack / "blob.bin").write_bytes(b"\0")
    someone = person(("Accept this? [y/N]", "n\n"))
    ran = packhost("accept", "--json")
    assert "\x1b[32m+y = '\\u202eevil'" in someone.seen
    assert "new: blob.bin (binary, 1 bytes)" in someone.seen
    assert [one["name"] for one in ran.json["sources"]["./mine"]] == ["blob.bin", "code.py"]


def test_nobody_is_asked_about_a_pack_whose_manifest_cannot_be_loaded(
    workspace: Path, packhost: Callable[..., Any], person: Callable[..., Any]
) -> None:
    pack = workspace / "mine"
    pack.mkdir()
    (pack / "pack.yaml").write_text("packhost: 1\nid: mine\nversion: 1.0\ntitle: Mine\ntools: []\n")
    file = workspace / "packhost.yaml"
    file.write_text(file.read_text().replace("packs: [", "packs: [{path: ./mine}, "))
    someone = person(("Accept this? [y/N]", "y\n"))
    ran = packhost("accept", "--json")
    assert (ran.status, ran.json["error"]["code"]) == (2, "MANIFEST_INVALID")
    assert "./mine/pack.yaml:3:10" in ran.out
    assert "Accept this?" not in someone.seen
    assert "./mine/pack.yaml:3:10" in packhost("doctor").out


def test_a_broken_file_is_not_said_to_be_as_it_was_accepted(
    workspace: Path, packhost: Callable[..., Any]
) -> None:
    file = workspace / "packhost.yaml"
    file.write_text(file.read_text().replace("policy:", "policie:"))
    ran = packhost("accept", "--json")
    assert (ran.status, ran.json["error"]["code"]) == (2, "CONFIG_INVALID")
    assert "did you mean `policy`?" in ran.json["error"]["next"]
