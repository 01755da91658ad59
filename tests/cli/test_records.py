"""Tools, runs, sessions and the audit chain, as people and programs read them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

READ = ("call", "workspace:read_file", '{"path": "README.md"}')


@pytest.fixture
def used(workspace: Path, packhost: Callable[..., Any]) -> str:
    """The run of one direct call."""
    return str(packhost(*READ, "--json").json["run_id"])


def test_tools_are_listed_for_people_and_programs(workspace: Path, packhost: Callable[..., Any]) -> None:
    names = {tool["tool"] for tool in packhost("tools", "list", "--json").json["tools"]}
    assert {"workspace:read_file", "agent-runtime:execute-turn"} <= names
    assert "workspace:read_file" in packhost("tools", "list").out


def test_a_withheld_tool_is_listed_with_the_layer_that_took_it(
    workspace: Path, packhost: Callable[..., Any]
) -> None:
    file = workspace / "packhost.yaml"
    file.write_text(file.read_text().replace("  - path read **\n", "").replace("  - path write src/**\n", ""))
    held = {one["tool"]: one for one in packhost("tools", "list", "--all", "--json").json["withheld"]}
    assert "bound" in held["workspace:read_file"]["layer"]
    assert "workspace:read_file" in packhost("tools", "list", "--all").out


def test_a_tool_is_shown_whole(workspace: Path, packhost: Callable[..., Any]) -> None:
    shown = packhost("tools", "show", "workspace:write_file", "--json").json
    assert shown["input_schema"]["properties"]["path"]["x-path"] == "write"
    assert [layer["name"] for layer in shown["layers"]]
    people = packhost("tools", "show", "workspace_write_file").out
    assert "path write **" in people
    assert "\x1b" not in people


def test_a_direct_call_is_listed_when_all_runs_are_asked_for(used: str, packhost: Callable[..., Any]) -> None:
    assert packhost("runs", "list", "--json").json["runs"] == []
    assert [run["id"] for run in packhost("runs", "list", "--all", "--json").json["runs"]] == [used]


def test_a_run_is_shown_with_its_calls_and_events(used: str, packhost: Callable[..., Any]) -> None:
    assert [call["tool"] for call in packhost("runs", "show", used, "--json").json["calls"]] == [
        "workspace:read_file"
    ]
    assert "workspace:read_file" in packhost("runs", "show", used).out
    found = packhost("runs", "events", used, "--json").json
    assert [event["type"] for event in found["events"]] == ["call.started", "call.ok"]
    assert "call.ok" in packhost("runs", "events", used, "--after", str(found["events"][0]["id"])).out


@pytest.mark.parametrize("verb", ["pause", "resume", "abort"])
def test_steering_a_run_that_does_not_exist_is_an_error(
    verb: str, workspace: Path, packhost: Callable[..., Any]
) -> None:
    ran = packhost("runs", verb, "run_none", "--json")
    assert (ran.status, ran.json["error"]["code"]) == (2, "NOT_FOUND")


def test_a_session_is_raised_for_a_time_and_lowered(used: str, packhost: Callable[..., Any]) -> None:
    session = packhost("sessions", "list", "--json").json["sessions"][0]["id"]
    raised = packhost("sessions", "raise", session, "autonomous", "--expires-in", "30m", "--json").json
    assert raised["level"] == "autonomous"
    assert raised["level_expires_at"] > raised["updated_at"] + 1_700
    assert packhost("sessions", "lower", session, "observe", "--json").json["level"] == "observe"
    assert "observe" in packhost("sessions", "show", session).out


@pytest.mark.parametrize(
    "words",
    [
        ("raise", "{}", "observe"),
        ("lower", "{}", "autonomous"),
        ("raise", "{}", "autonomous", "--expires-in", "soon"),
        ("raise", "{}", "autonomous", "--expires-in", "-1s"),
        ("raise", "{}", "limitless"),
    ],
)
def test_a_level_that_does_not_fit_is_a_usage_error(
    words: tuple[str, ...], used: str, packhost: Callable[..., Any]
) -> None:
    session = packhost("sessions", "list", "--json").json["sessions"][0]["id"]
    assert packhost("sessions", *(word.format(session) for word in words)).status == 2


def test_an_agents_shell_raises_nothing(
    used: str, packhost: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = packhost("sessions", "list", "--json").json["sessions"][0]["id"]
    monkeypatch.setenv("CLAUDECODE", "1")
    assert packhost("sessions", "raise", session, "autonomous").status == 3
    assert packhost("sessions", "lower", session, "observe").status == 0


def test_an_agents_shell_resumes_nothing_that_a_person_may_have_paused(
    used: str, packhost: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CURSOR_AGENT", "1")
    assert packhost("runs", "resume", used).status == 3


def test_the_chain_is_verified_and_exported_as_lines(used: str, packhost: Callable[..., Any]) -> None:
    verified = packhost("audit", "verify", "--json").json
    exported = [json.loads(line) for line in packhost("audit", "export").out.splitlines()]
    assert verified["ok"] is True
    assert (len(exported), exported[-1]["hash"]) == (verified["events"], verified["head"])
    started = next(event for event in exported if event["type"] == "call.started")
    assert started["data"]["arguments"] == {"path": "README.md"}


def test_an_export_is_paged_by_the_number_of_the_last_event(used: str, packhost: Callable[..., Any]) -> None:
    whole = packhost("audit", "export").out.splitlines()
    assert packhost("audit", "export", "--limit", "2").out.splitlines() == whole[:2]
    assert packhost("audit", "export", "--after", "2").out.splitlines() == whole[2:]


def test_a_bad_link_is_named_and_fails_the_command(
    used: str, tmp_path: Path, packhost: Callable[..., Any]
) -> None:
    (store,) = (tmp_path / "state").glob("packhost/*/store.db")
    with sqlite3.connect(store) as forged:
        triggers = forged.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for (name,) in triggers:
            forged.execute(f'DROP TRIGGER "{name}"')
        forged.execute("UPDATE events SET actor = 'somebody else' WHERE id = 2")
    forged.close()
    ran = packhost("audit", "verify", "--json")
    assert (ran.status, ran.json["first_bad"]) == (1, 2)
    assert "event 2" in packhost("audit", "verify").out
