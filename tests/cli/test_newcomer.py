"""What somebody meets on the first day: what is left of scopes, what is missing, what is only a notice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

MINE = """
packhost: 1
id: mine
version: "1"
title: Mine
tools:
  - name: post
    description: Posts.
    kind: python
    target: mine:post
    permission: write
    required_scopes: [network example.org:443]
    input_schema:
      type: object
      properties: {a: {type: integer}, b: {type: integer}, c: {type: integer}}
      required: [d, e]
"""


@pytest.fixture
def mine(workspace: Path, packhost: Callable[..., Any]) -> Path:
    """The workspace with a pack by path, whose one tool needs more than the bound has."""
    (workspace / "mine").mkdir()
    (workspace / "mine/pack.yaml").write_text(MINE)
    (workspace / "mine/mine.py").write_text("def post(context, arguments): return {}\n")
    file = workspace / "packhost.yaml"
    file.write_text(file.read_text().replace("packs: [", "packs: [{path: ./mine}, "))
    return workspace


def test_the_list_of_tools_shows_what_the_bound_leaves(workspace: Path, packhost: Callable[..., Any]) -> None:
    listed = packhost("tools", "list").out
    assert "path write src/**" in listed
    assert "path write **" not in listed
    shown = packhost("tools", "show", "workspace:write_file").out
    assert "path write **" in shown
    assert "Left of them" in shown


def test_accepting_names_what_stays_withheld_and_the_line_to_add(
    mine: Path, packhost: Callable[..., Any]
) -> None:
    ran = packhost("accept", "--yes")
    assert ran.status == 0
    assert "mine:post: to allow it, add `- network example.org:443` to `bound`" in ran.out
    file = mine / "packhost.yaml"
    file.write_text(file.read_text().replace("bound:\n", "bound:\n  - network example.org:443\n"))
    assert "Still withheld" not in packhost("accept", "--yes").out


def test_an_edited_pack_is_a_notice_and_no_fault(mine: Path, packhost: Callable[..., Any]) -> None:
    packhost("accept", "--yes")
    (mine / "mine/mine.py").write_text("def post(context, arguments): return {1: 1}\n")
    ran = packhost("doctor", "--json")
    (found,) = [one for one in ran.json["checks"] if one["check"] == "problem"]
    assert (ran.status, found["state"], "accepted copy runs on" in found["text"]) == (0, "note", True)


def test_every_fault_of_the_arguments_is_named_at_once_and_tools_by_their_names(
    workspace: Path, packhost: Callable[..., Any]
) -> None:
    ran = packhost("call", "workspace:write_file", '{"path": 1, "wrong": 2}')
    assert ran.status == 2
    for part in ("`/path`", "wrong", "content", "see the input schema of `workspace:write_file`"):
        assert part in ran.err
    refusal = packhost("call", "workspace:write_file", '{"path": 1, "wrong": 2}', "--json").json["refusal"]
    assert [fault["path"] for fault in refusal["faults"]].count("/path") == 1
    assert len(refusal["faults"]) == 3


def test_a_chain_that_misses_a_head_says_that_first(workspace: Path, packhost: Callable[..., Any]) -> None:
    packhost("call", "workspace:read_file", '{"path": "README.md"}')
    ran = packhost("audit", "verify", "--head", "f" * 64)
    assert ran.status == 1
    assert ran.out.startswith("✗")
    assert "✓" not in ran.out


def test_what_waits_says_how_long_it_still_does(workspace: Path, packhost: Callable[..., Any]) -> None:
    packhost("call", "workspace:write_file", '{"path": "src/a", "content": ""}')
    listed = packhost("approvals", "list").out
    assert "in 10 minutes" in listed or "in 9 minutes" in listed
