"""A first packhost.yaml: never over another, accepted at once, and no wider than was offered."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def test_without_a_terminal_it_takes_the_offer_and_what_it_wrote_is_accepted(
    empty: Path, packhost: Callable[..., Any]
) -> None:
    ran = packhost("init", "--json")
    assert ran.json == {"path": str(empty / "packhost.yaml"), "writes": "src/**", "accepted": True}
    status = packhost("accept", "--json")
    assert status.json["changes"] == []
    assert (
        packhost("explain", "workspace:write_file", '{"path": "src/a", "content": ""}', "--json").json[
            "verdict"
        ]
        == "ask"
    )


@pytest.mark.parametrize(
    ("typed", "writes"),
    [("\n", "src/**"), ("docs\n", "docs/**"), ("./a/b/\n", "a/b/**"), ("-\n", None), ("\x04", None)],
)
def test_a_person_chooses_the_folder(
    typed: str, writes: str | None, packhost: Callable[..., Any], person: Callable[..., Any]
) -> None:
    person(("Folder that agents may write in", typed))
    assert packhost("init", "--json").json["writes"] == writes


def test_what_agents_may_not_write_stays_refused(packhost: Callable[..., Any]) -> None:
    packhost("init", "--write", "docs")
    trace = packhost("explain", "workspace:write_file", '{"path": "src/a", "content": ""}', "--json").json
    assert trace["refusal"]["code"] == "SCOPE_DENIED"


def test_reading_only_leaves_the_writing_tools_out(packhost: Callable[..., Any]) -> None:
    assert packhost("init", "--no-write").status == 0
    tools = packhost("tools", "list", "--all", "--json").json
    offered = {tool["tool"] for tool in tools["tools"]}
    assert "workspace:read_file" in offered
    assert (
        packhost("explain", "workspace:write_file", '{"path": "src/a", "content": ""}', "--json").json[
            "verdict"
        ]
        == "refuse"
    )


@pytest.mark.parametrize("existing", ["", "packhost: 1\n", "not: [sound"])
def test_a_file_that_is_there_is_never_touched(
    existing: str, empty: Path, packhost: Callable[..., Any]
) -> None:
    (empty / "packhost.yaml").write_text(existing)
    ran = packhost("init")
    assert ran.status == 2
    assert (empty / "packhost.yaml").read_text() == existing


def test_neither_is_what_a_link_of_that_name_points_to(empty: Path, packhost: Callable[..., Any]) -> None:
    (empty / "packhost.yaml").symlink_to(empty / "elsewhere.yaml")
    assert packhost("init").status == 2
    assert not (empty / "elsewhere.yaml").exists()


@pytest.mark.parametrize("folder", ["/etc", "../up", "a/../../b", "a*", "a\nb", "{a,b}"])
def test_a_folder_that_is_not_plainly_inside_is_refused_and_nothing_is_written(
    folder: str, empty: Path, packhost: Callable[..., Any]
) -> None:
    assert packhost("init", "--write", folder).status == 2
    assert not (empty / "packhost.yaml").exists()


def test_a_home_folder_gets_no_file(tmp_path: Path, packhost: Callable[..., Any]) -> None:
    (tmp_path / "home").mkdir()
    assert packhost("init", "-w", str(tmp_path / "home")).status == 2
    assert not (tmp_path / "home/packhost.yaml").exists()


def test_both_options_at_once_are_a_usage_error(packhost: Callable[..., Any]) -> None:
    assert packhost("init", "--write", "a", "--no-write").status == 2
