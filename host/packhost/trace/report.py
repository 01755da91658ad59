"""Files to reports, for people or as JSON; the exit code is the worst that was found."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from packhost.trace.check import Report, check_text
from packhost.trace.findings import Issue, shown
from packhost.trace.model import TraceUnreadable
from packhost.trace.read import MAX_FILE

PASSED, FOUND, UNREADABLE = 0, 1, 2


def check_files(files: Sequence[str], say: Callable[[str], None], *, as_json: bool = False) -> int:
    """Check files, say what was found, return the exit code.

    0: nothing, or warnings alone; 1: an error or a gap; 2: a file that cannot be read, above all.
    """
    entries: list[dict[str, Any]] = []
    status = PASSED
    for name in files:
        try:
            report = check_text(_read(name))
        except TraceUnreadable as bad:
            entries.append({"file": name, "unreadable": str(bad)})
            status = UNREADABLE
            if not as_json:
                say(f"{name}: unreadable: {bad}")
            continue
        status = max(status, PASSED if report.passed else FOUND)
        entries.append({"file": name, **report.as_json()})
        if not as_json:
            for line in _lines(name, report):
                say(line)
    if as_json:
        say(json.dumps({"passed": status == PASSED, "files": entries}, indent=2))
    return status


def _read(name: str) -> bytes:
    try:
        with Path(name).open("rb") as file:
            return file.read(MAX_FILE + 1)
    except OSError as error:
        raise TraceUnreadable((error.strerror or "it cannot be opened").lower()) from None


def _lines(name: str, report: Report) -> list[str]:
    counted = f"{report.errors} errors, {report.gaps} gaps, {report.warnings} warnings"
    if not report.issues:
        return [f"{name}: clean"]
    rows = [("SEVERITY", "CODE", "TURN", "CALL", "PATH", "WHAT"), *map(_row, report.issues)]
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    table = ["  ".join([*(c.ljust(w) for c, w in zip(row, widths, strict=False)), row[5]]) for row in rows]
    more = report.errors + report.gaps + report.warnings - len(report.issues)
    rest = [f"… and {more} more"] if more else []
    return [f"{name}: {counted}", *table, *rest]


def _row(issue: Issue) -> tuple[str, str, str, str, str, str]:
    return (
        issue.severity,
        issue.code,
        str(issue.turn),
        issue.tool_use_id or "",
        shown(issue.path),
        issue.detail,
    )
