"""The narrowest packhost.yaml for what really happened."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def used(workspace: Path, packhost: Callable[..., Any], person: Callable[..., Any]) -> Path:
    """A workspace where three sources and a page were read, one was written and one write was refused."""
    (workspace / "docs").mkdir()
    for name in ("src/a.py", "src/b.py", "src/c.py", "docs/page.md"):
        (workspace / name).write_text("x\n")
        assert packhost("call", "workspace:read_file", f'{{"path": "{name}"}}').status == 0
    person(("Approve?", "yes\n"))
    assert packhost("call", "workspace:write_file", '{"path": "src/new.py", "content": "y"}').status == 0
    assert packhost("call", "workspace:write_file", '{"path": "docs/new.md", "content": "y"}').status == 3
    return workspace


def test_the_proposal_covers_what_ran_and_little_else(used: Path, packhost: Callable[..., Any]) -> None:
    told = packhost("learn", "--json").json
    assert told["bound"] == ["path read docs/page.md", "path read src/**", "path write src/new.py"]
    assert told["used"] == ["workspace:read_file", "workspace:write_file"]
    assert "workspace:delete_path" in told["unused_tools"]
    assert told["unused_packs"] == ["agent-runtime"]
    assert (told["calls"], told["would_change"], told["written"]) == (5, [], False)


def test_the_proposal_is_a_diff_and_nothing_is_written(used: Path, packhost: Callable[..., Any]) -> None:
    before = (used / "packhost.yaml").read_text()
    out = packhost("learn").out
    assert "-  - path read **\n" in out
    assert "+  - path read src/**\n" in out
    assert '+  - {match: {tool: "workspace:delete_path"}, decide: deny, reason: never called' in out
    assert "the pack `agent-runtime` was never used" in out
    assert "nothing was written" in out
    assert (used / "packhost.yaml").read_text() == before


def test_what_is_written_narrows_at_once(used: Path, packhost: Callable[..., Any]) -> None:
    ran = packhost("learn", "--write")
    assert (ran.status, "waits" in ran.out) == (0, False)
    assert packhost("policy", "check").status == 0
    assert packhost("call", "workspace:read_file", '{"path": "src/a.py"}').status == 0
    assert packhost("call", "workspace:read_file", '{"path": "README.md"}').status == 3
    explained = packhost("explain", "workspace:list_directory", '{"path": "src"}', "--json").json
    assert explained["refusal"]["code"] == "POLICY_DENIED"


def test_what_was_learned_twice_is_the_same(used: Path, packhost: Callable[..., Any]) -> None:
    packhost("learn", "--write")
    assert packhost("learn", "--json").json["diff"] == ""


def test_a_search_of_a_folder_takes_it_whole(workspace: Path, packhost: Callable[..., Any]) -> None:
    assert packhost("call", "workspace:find_files", '{"pattern": "*.py", "path": "src"}').status == 0
    assert packhost("learn", "--json").json["bound"] == ["path read src/**"]
    assert packhost("call", "workspace:list_directory", "{}").status == 0
    assert packhost("learn", "--json").json["bound"] == ["path read **"]


def test_where_nothing_ran_nothing_is_proposed(workspace: Path, packhost: Callable[..., Any]) -> None:
    assert "nothing to learn from" in packhost("learn").out
    packhost("call", "workspace:read_file", '{"path": "README.md"}')
    assert "nothing to learn from" in packhost("learn", "--since", "1ms").out


def test_one_run_alone_can_be_learned_from(used: Path, packhost: Callable[..., Any]) -> None:
    run = packhost("call", "workspace:read_file", '{"path": "README.md"}', "--json").json["run_id"]
    assert packhost("learn", "--run", run, "--json").json["bound"] == ["path read README.md"]


def test_a_proposal_that_widens_waits_for_a_person(used: Path, packhost: Callable[..., Any]) -> None:
    file = used / "packhost.yaml"
    file.write_text(file.read_text().replace("path read **", "path read docs/**\n  - path write x/**"))
    assert packhost("accept", "--yes").status == 0
    ran = packhost("learn", "--write")
    assert (ran.status, "waits for `packhost accept`" in ran.out) == (0, True)
    assert (
        packhost("explain", "workspace:read_file", '{"path": "src/a.py"}', "--json").json["verdict"]
        == "refuse"
    )


def test_an_agents_shell_writes_no_proposal(
    used: Path, packhost: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDECODE", "1")
    assert packhost("learn", "--write").status == 3


def test_a_folder_that_was_written_often_is_taken_whole_though_other_tools_only_read(
    used: Path, packhost: Callable[..., Any], person: Callable[..., Any]
) -> None:
    for name in ("new2.py", "new3.py"):
        person(("Approve?", "yes\n"))
        written = packhost("call", "workspace:write_file", f'{{"path": "src/{name}", "content": "y"}}')
        assert written.status == 0
    assert "path write src/**" in packhost("learn", "--json").json["bound"]
