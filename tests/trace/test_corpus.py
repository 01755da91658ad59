"""Every file of the corpus gives exactly the codes that it names; every code has a file."""

from __future__ import annotations

import json
from pathlib import Path

from packhost.trace import CODES, check_text


def test_a_fixture_gives_exactly_the_codes_that_it_names(fixture_file: Path) -> None:
    data = fixture_file.read_bytes()
    assert check_text(data).codes == json.loads(data)["expect"]


def test_a_fixture_says_what_it_shows(fixture_file: Path) -> None:
    assert json.loads(fixture_file.read_bytes())["about"].endswith(".")


def test_every_issue_names_a_place_in_its_trace(fixture_file: Path) -> None:
    trace = json.loads(fixture_file.read_bytes())
    for issue in check_text(fixture_file.read_bytes()).issues:
        value = trace
        for step in issue.path.partition("#")[0].split("/")[1:]:
            value = value[int(step)] if isinstance(value, list) else value[step]
        assert issue.detail


def test_every_code_has_a_fixture(corpus: list[Path]) -> None:
    shown = {code for file in corpus for code in json.loads(file.read_bytes())["expect"]}
    assert shown == CODES.keys()


def test_a_code_that_messages_alone_can_show_has_one_in_both_protocols(corpus: list[Path]) -> None:
    shown: dict[str, set[str]] = {}
    for file in corpus:
        trace = json.loads(file.read_bytes())
        for code in trace["expect"]:
            shown.setdefault(code, set()).add(trace["protocol"])
    one_sided = {code for code, protocols in shown.items() if len(protocols) == 1}
    assert one_sided == {
        "BLOCK_NOT_STOPPED",  # blocks, callers, server tools, the eager flag and paused turns are of Messages
        "CUSTOM_CALL_UNSUPPORTED",  # custom calls and unmerged reasoning are of Chat Completions
        "DELTA_TYPE_MISMATCH",
        "EAGER_FLAG_NOT_BOOLEAN",
        "PAUSE_TURN_UNHANDLED",
        "PROGRAMMATIC_CALLER",
        "REASONING_UNMERGED",
        "RESULT_FOR_SERVER_TOOL",
        "RESULT_NOT_LEADING",  # a result of Chat Completions is a message of its own
    }


def test_severities_decide_whether_a_trace_passes(fixture_file: Path) -> None:
    report = check_text(fixture_file.read_bytes())
    assert report.passed == all(issue.severity == "warning" for issue in report.issues)
