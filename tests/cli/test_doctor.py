"""`packhost doctor`: what stands, what is worth knowing, and what is broken."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from packhost.cli.checks import sqlite_check
from packhost.sandbox import landlock


def states(ran: Any) -> dict[str, str]:
    return {check["check"]: check["state"] for check in ran.json["checks"]}


def test_a_sound_workspace_has_nothing_broken(workspace: Path, packhost: Callable[..., Any]) -> None:
    ran = packhost("doctor", "--json")
    assert (ran.status, ran.json["ok"]) == (0, True)
    assert states(ran)["consent"] == "ok"
    assert "✓ consent" in packhost("doctor").out


def test_a_workspace_without_a_file_is_sound_too(empty: Path, packhost: Callable[..., Any]) -> None:
    assert packhost("doctor").status == 0


def test_a_broken_file_is_found_and_named(workspace: Path, packhost: Callable[..., Any]) -> None:
    (workspace / "packhost.yaml").write_text("packhost: 1\nbund: []\n")
    ran = packhost("doctor")
    assert ran.status == 1
    assert "packhost.yaml:2" in ran.out


def test_a_waiting_change_is_a_note(workspace: Path, packhost: Callable[..., Any]) -> None:
    file = workspace / "packhost.yaml"
    file.write_text(file.read_text().replace("bound:\n", "bound:\n  - path write docs/**\n"))
    ran = packhost("doctor", "--json")
    assert (ran.status, states(ran)["consent"]) == (0, "note")


def test_a_withheld_tool_is_named_with_its_layer(workspace: Path, packhost: Callable[..., Any]) -> None:
    file = workspace / "packhost.yaml"
    file.write_text(file.read_text().replace("  - path read **\n", "").replace("  - path write src/**\n", ""))
    shown = packhost("doctor").out
    assert "workspace:read_file by" in shown
    assert "bound" in shown


def test_a_state_that_others_may_read_is_broken(
    workspace: Path, tmp_path: Path, packhost: Callable[..., Any]
) -> None:
    (store,) = (tmp_path / "state").glob("packhost/*/store.db")
    store.chmod(0o644)
    ran = packhost("doctor", "--json")
    assert (ran.status, states(ran)["state"]) == (1, "broken")


def test_a_root_that_cannot_be_one_is_broken(tmp_path: Path, packhost: Callable[..., Any]) -> None:
    (tmp_path / "home").mkdir()
    ran = packhost("doctor", "-w", str(tmp_path / "home"), "--json")
    assert (ran.status, states(ran)["workspace"]) == (1, "broken")


def test_a_store_of_a_newer_packhost_is_broken_and_the_other_checks_are_made(
    workspace: Path, tmp_path: Path, packhost: Callable[..., Any]
) -> None:
    (store,) = (tmp_path / "state").glob("packhost/*/store.db")
    store.write_bytes(b"not a database at all" * 100)
    ran = packhost("doctor", "--json")
    assert ran.status == 1
    assert "cursor" in states(ran)


def test_a_connected_client_is_found(workspace: Path, packhost: Callable[..., Any]) -> None:
    (workspace / ".mcp.json").write_text(json.dumps({"mcpServers": {"packhost": {}}}))
    assert states(packhost("doctor", "--json"))["claude code"] == "ok"


@pytest.mark.parametrize(
    ("version", "state"),
    [
        ((3, 40, 1), "note"),
        ((3, 44, 5), "note"),
        ((3, 44, 6), "ok"),
        ((3, 45, 0), "note"),
        ((3, 50, 6), "note"),
        ((3, 50, 7), "ok"),
        ((3, 51, 2), "note"),
        ((3, 51, 3), "ok"),
        ((3, 52, 0), "ok"),
    ],
)
def test_a_sqlite_with_the_reset_bug_is_noted(version: tuple[int, int, int], state: str) -> None:
    assert sqlite_check(version).state == state


def test_the_level_for_packs_from_elsewhere_is_proved_and_said(packhost):
    texts = {check["check"]: check["text"] for check in packhost("doctor", "--json").json["checks"]}
    level = texts["enforcement"].partition(":")[0]
    assert level in ("kernel", "partial", "advisory")
    assert (level == "kernel") is (landlock.detect() >= landlock.SCOPES)


def test_a_broken_file_is_not_said_to_be_as_it_was_accepted(
    workspace: Path, packhost: Callable[..., Any]
) -> None:
    file = workspace / "packhost.yaml"
    file.write_text(file.read_text().replace("policy:", "policie:"))
    ran = packhost("doctor", "--json")
    assert (ran.status, states(ran)["consent"]) == (1, "note")
