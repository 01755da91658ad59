"""A run at the command line: what its record proves, and the run as a trace that passes its own check."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

TURN = ("call", "agent-runtime:execute-turn", '{"messages": [{"role": "user", "content": "go"}]}')


@pytest.fixture
def run_id(workspace: Path, packhost: Callable[..., Any]) -> str:
    """A run that ended with a request for a call."""
    return str(packhost(*TURN, "--json").json["value"]["run_id"])


def test_a_run_is_exported_and_passes_its_own_check(
    workspace: Path, packhost: Callable[..., Any], run_id: str
) -> None:
    assert packhost("runs", "export", run_id, "--out", "run.json").out == "wrote run.json\n"
    assert packhost("trace", "check", "run.json").out == "run.json: clean\n"
    trace = json.loads((workspace / "run.json").read_bytes())
    assert trace == packhost("runs", "export", run_id).json
    assert trace["events"][-1]["outcome"] == "tool_request"


def test_a_file_that_cannot_be_written_says_so(packhost: Callable[..., Any], run_id: str) -> None:
    ran = packhost("runs", "export", run_id, "--out", "nowhere/run.json", "--json")
    assert (ran.status, ran.json["error"]["code"]) == (2, "NOT_FOUND")
    assert packhost("runs", "export", run_id, "--node", "x").status == 2


def test_people_see_every_call_the_budgets_and_that_nothing_is_left_unproved(
    packhost: Callable[..., Any], run_id: str
) -> None:
    shown = packhost("runs", "show", run_id).out
    rows = [line.split() for line in shown.splitlines()]
    assert ["CALL", "TOOL", "RESULT", "INTENT", "APPROVAL", "OUTCOME"] in rows
    assert ["c1", "workspace_write_file", "none", "none", "not", "run"] in rows
    assert ["turns", "1", "20"] in rows
    assert "The record holds, with no coverage gap." in shown


def test_programs_see_the_same_as_evidence(packhost: Callable[..., Any], run_id: str) -> None:
    evidence = packhost("runs", "show", run_id, "--json").json["evidence"]
    assert [line["tool_use_id"] for line in evidence["correlation"]] == ["c1"]
    assert evidence["budgets"]["tool_calls"] == {"used": 0, "limit": 100}
    assert (evidence["issues"], evidence["coverage_gaps"]) == ([], [])
