"""What a run's record proves, for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from packhost.cli.output import print_table


def show_evidence(evidence: Mapping[str, Any]) -> None:
    """Every call with its result, intent, approval and outcome, budgets, broken rules and gaps."""
    if evidence["correlation"]:
        click.echo()
        rows = [
            (
                "/".join(filter(None, (line.get("node", ""), line["tool_use_id"]))),
                line["tool"],
                line["result"] or "none",
                line["intent"] or "none",
                line["approval"] or "",
                line["outcome"],
            )
            for line in evidence["correlation"]
        ]
        print_table(("CALL", "TOOL", "RESULT", "INTENT", "APPROVAL", "OUTCOME"), rows, empty="")
    if evidence["budgets"]:
        click.echo()
        used = [
            (name, f"{one['used']:g}", "" if one["limit"] is None else f"{one['limit']:g}")
            for name, one in evidence["budgets"].items()
        ]
        print_table(("BUDGET", "USED", "LIMIT"), used, empty="")
    click.echo()
    found = [("coverage_gap", *_issue(one)) for one in evidence["coverage_gaps"]]
    found += [(one["severity"], *_issue(one)) for one in evidence["issues"]]
    print_table(("SEVERITY", "ISSUE", "TURN", "WHAT"), found, empty="The record holds, with no coverage gap.")


def _issue(one: Mapping[str, Any]) -> tuple[str, str, str]:
    return one["code"], str(one["turn"]), one["detail"]
