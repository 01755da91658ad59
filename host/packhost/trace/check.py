"""A trace to a report: every check, in order, on any JSON whatever."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from packhost.trace.budgets import check_budgets
from packhost.trace.calls import check_calls
from packhost.trace.conduct import check_conduct
from packhost.trace.correlation import check_correlation
from packhost.trace.findings import Findings, Issue
from packhost.trace.read import load, read_trace
from packhost.trace.stops import check_stops
from packhost.trace.streams import check_streams
from packhost.trace.trust import check_trust, survey


@dataclass(frozen=True, slots=True)
class Report:
    """What a trace breaks; further issues than are listed are counted all the same."""

    issues: Sequence[Issue]
    errors: int
    warnings: int
    gaps: int

    @property
    def passed(self) -> bool:
        """Whether nothing but warnings was found."""
        return not self.errors and not self.gaps

    @property
    def codes(self) -> list[str]:
        """The codes that were found, each once, sorted."""
        return sorted({issue.code for issue in self.issues})

    def as_json(self) -> dict[str, Any]:
        """The report as a program reads it."""
        return {
            "passed": self.passed,
            "errors": self.errors,
            "warnings": self.warnings,
            "gaps": self.gaps,
            "truncated": len(self.issues) < self.errors + self.warnings + self.gaps,
            "issues": [issue.as_json() for issue in self.issues],
        }


def check(raw: Any) -> Report:
    """Check a trace that is JSON data. Raises `TraceUnreadable` for what is no trace."""
    findings = Findings()
    survey(raw, findings)
    trace = read_trace(raw, findings)
    check_correlation(trace, findings)
    check_calls(trace, findings)
    check_stops(trace, findings)
    check_streams(trace, findings)
    check_budgets(trace, findings)
    check_conduct(trace, findings)
    check_trust(trace, findings)
    counts = findings.counts
    issues = sorted(findings.issues, key=lambda issue: issue.turn)
    return Report(issues, counts["error"], counts["warning"], counts["gap"])


def check_text(data: bytes) -> Report:
    """Check a trace that is a file's content. Raises `TraceUnreadable` for what is no trace."""
    return check(load(data))
