"""Lines of a log: what stands in one, what never does, and where they go."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from packhost.journal import GENESIS, Record, canonical, digest
from packhost.telemetry.logs import EventSink, LineFormatter, LineHandler, LogObserver, logged_lines
from packhost.workspace.redaction import Redactor, redacted_logging

CANARY = "canary-of-somebody"


@pytest.fixture
def heard() -> Iterator[io.StringIO]:
    """What is logged meanwhile, as JSON lines."""
    stream = io.StringIO()
    with logged_lines("json", "debug"):
        handler = next(one for one in logging.getLogger().handlers if isinstance(one, LineHandler))
        handler.setStream(stream)
        yield stream


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def event(type: str, data: dict[str, Any], **ids: str) -> Record:
    text = canonical(data)
    known = {"execution_id": "run_1", "call_id": None, **ids}
    return Record(
        7, "ws", known["execution_id"], known["call_id"], type, "me", text, digest(text), 1.5, GENESIS, "h"
    )


def test_an_event_of_the_record_is_a_line_with_its_ids_and_without_what_was_in_it(heard: io.StringIO) -> None:
    data = {
        "tool": "pack:tool",
        "arguments": {"a": CANARY},
        "message": CANARY,
        "reason": CANARY,
        "code": None,
    }
    EventSink()(event("call.started", {**data, "session_id": "s-1"}, call_id="call_1"))
    (line,) = lines(heard)
    assert CANARY not in heard.getvalue()
    assert (
        line["event"],
        line["run_id"],
        line["call_id"],
        line["session_id"],
        line["tool"],
        line["number"],
    ) == (
        "call.started",
        "run_1",
        "call_1",
        "s-1",
        "pack:tool",
        7,
    )
    assert line["time"].endswith("Z")
    assert line["level"] == "debug"


@pytest.mark.parametrize(
    ("type", "level"),
    [
        ("run.state", "debug"),
        ("run.running", "info"),
        ("call.refused", "info"),
        ("run.interrupted", "warning"),
        ("call.unknown", "warning"),
        ("audit.pruned", "warning"),
    ],
)
def test_what_somebody_should_look_at_is_louder(heard: io.StringIO, type: str, level: str) -> None:
    EventSink()(event(type, {"tool": "pack:tool"}))
    assert [line["level"] for line in lines(heard)] == [level]


def test_below_the_level_nothing_is_written() -> None:
    with logged_lines("json", "warning"):
        stream = io.StringIO()
        next(one for one in logging.getLogger().handlers if isinstance(one, LineHandler)).setStream(stream)
        EventSink()(event("run.running", {}))
        logging.getLogger("packhost.x").info("hello")
        logging.getLogger("packhost.x").warning("listen")
    assert [line["message"] for line in lines(stream)] == ["listen"]


def test_the_end_of_a_call_names_the_session_that_it_began_in() -> None:
    with logged_lines("json", "info"):
        stream = io.StringIO()
        next(one for one in logging.getLogger().handlers if isinstance(one, LineHandler)).setStream(stream)
        sink = EventSink()
        sink(event("call.started", {"session_id": "s-9", "tool": "pack:tool"}))
        sink(event("call.ok", {"tool": "pack:tool"}))
    assert [(line["event"], line["session_id"]) for line in lines(stream)] == [("call.ok", "s-9")]


def test_the_name_of_a_tool_that_there_is_not_is_somebodys_word(heard: io.StringIO) -> None:
    EventSink()(event("call.refused", {"tool": f"tell {CANARY}", "code": "TOOL_NOT_FOUND"}))
    (line,) = lines(heard)
    assert (line["code"], "tool" in line) == ("TOOL_NOT_FOUND", False)


def test_a_redacted_event_is_a_line_all_the_same(heard: io.StringIO) -> None:
    record = event("call.started", {})
    EventSink()(Record(**{**{name: getattr(record, name) for name in Record.__slots__}, "data": None}))
    assert [line["event"] for line in lines(heard)] == ["call.started"]


def test_whatever_else_is_logged_is_redacted_and_names_its_call(heard: io.StringIO) -> None:
    class Caller:
        session_id, run_id = "s-2", "run_2"

    class Request:
        caller = Caller()

    redactor = Redactor()
    redactor.add(CANARY)
    request: Any = Request()
    with redacted_logging(redactor), LogObserver().call(request, False):
        try:
            raise ValueError(CANARY)
        except ValueError:
            logging.getLogger("packhost.gate").exception("%s raised %s", "pack:tool", CANARY)
    (line,) = lines(heard)
    assert CANARY not in heard.getvalue()
    assert (line["level"], line["event"], line["session_id"], line["run_id"]) == (
        "error",
        "packhost.gate",
        "s-2",
        "run_2",
    )
    assert "ValueError" in line["trouble"]


@pytest.mark.parametrize("text", ["two\nlines", "a\x1b[31mred", 'a "quote"', "ü" + "x" * 10])
def test_one_record_is_one_line_whatever_is_in_it(text: str) -> None:
    made = logging.LogRecord("packhost", logging.INFO, "f", 1, "%s", (text,), None)
    made.about = {"session_id": text}
    for form in ("text", "json"):
        shown = LineFormatter(form).format(made)  # type: ignore[arg-type]
        assert len(shown.splitlines()) == 1
        assert "\x1b" not in shown
    assert json.loads(LineFormatter("json").format(made))["message"] == text


def test_lines_end_with_the_block_and_leave_the_log_as_it_was() -> None:
    before = (logging.getLogger().level, list(logging.getLogger().handlers))
    with logged_lines("text", "debug"):
        pass
    assert (logging.getLogger().level, list(logging.getLogger().handlers)) == before


@pytest.mark.slow
@pytest.mark.parametrize("form", ["json", "text"])
def test_a_stdio_server_logs_on_stderr_alone(tmp_path: Path, form: str) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "README.md").write_text(CANARY)
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "XDG_STATE_HOME": str(tmp_path / "state")}
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    asked = {"name": "workspace_read_file", "arguments": {"path": "README.md"}, "_meta": meta}
    message = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": asked})
    process = subprocess.Popen(
        [sys.executable, "-m", "packhost", "serve", "--log-format", form, "-w", str(project)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{message}\n")
    process.stdin.flush()
    answer = json.loads(process.stdout.readline())
    rest, errors = process.communicate(timeout=30)
    assert CANARY in json.dumps(answer)
    assert rest == ""
    assert CANARY not in errors
    found = [line for line in errors.splitlines() if "call.ok" in line]
    assert len(found) == 1
    if form == "json":
        assert all(json.loads(line)["time"] for line in errors.splitlines())
        assert json.loads(found[0])["tool"] == "workspace:read_file"
