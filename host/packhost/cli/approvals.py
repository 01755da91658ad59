"""`packhost approvals`: questions that wait for a person, and the person's answers.

Approving always reads its answer from `/dev/tty`, so that a process without a terminal, an agent's
among them, approves nothing. Denying can do no harm and asks nobody.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from packhost.cli.host import request
from packhost.cli.options import examples, json_option, workspace_option
from packhost.cli.output import pretty, print_facts, print_json, print_table
from packhost.cli.run import OK, REFUSED
from packhost.cli.terminal import Terminal, refuse_agents

_STATUSES = ("pending", "approved", "denied", "expired", "cancelled")


@click.group("approvals", short_help="Questions that wait for a person.")
def command() -> None:
    """Questions that wait for a person."""


@command.command("list", epilog=examples("packhost approvals list", "packhost approvals list --all --json"))
@click.option(
    "--status", type=click.Choice(_STATUSES), help="Those of one status; left out, the pending ones."
)
@click.option("--all", "everything", is_flag=True, help="Those of every status.")
@click.option(
    "--limit", type=click.IntRange(1, 1_000), default=100, show_default=True, help="At most so many."
)
@workspace_option
@json_option
def list_approvals(
    status: str | None, everything: bool, limit: int, workspace: Path | None, as_json: bool
) -> None:
    """List approvals, the newest first."""
    wanted = None if everything else status or "pending"
    found = request(workspace, "approvals.list", status=wanted, limit=limit)
    if as_json:
        print_json(found)
        return
    print_table(
        ("ID", "STATUS", "TOOL", "ASKED BY", "ENDS"),
        [_row(row) for row in found["approvals"]],
        empty="nothing waits for a person" if wanted == "pending" else "there is none",
    )


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    left = round(row["expires_at"] - time.time())
    ends = f"in {max(0, left)} s" if row["status"] == "pending" else ""
    return row["id"], row["status"], row["tool"], row["client"], ends


@command.command("show", epilog=examples("packhost approvals show ap_01k…"))
@click.argument("id")
@workspace_option
@json_option
def show(id: str, workspace: Path | None, as_json: bool) -> None:
    """Show approval ID: exactly what will run."""
    found = request(workspace, "approvals.show", id=id)
    if as_json:
        print_json(found)
        return
    click.echo(found["prompt"])
    print_facts(
        [
            ("Status", found["status"]),
            ("Approvals", ", ".join(found["names"])),
            ("Session", found["session_id"]),
            ("Run", found["run_id"]),
            ("Decided by", found["decided_by"]),
            ("Channel", found["decided_channel"]),
            ("Reason", found["reason"]),
            ("Used by", found["consumed_by"]),
        ]
    )


@command.command("approve", epilog=examples("packhost approvals approve ap_01k…"))
@click.argument("id")
@click.option("--reason", default="", help="Why; it is recorded.")
@workspace_option
@json_option
@click.pass_context
def approve(ctx: click.Context, id: str, reason: str, workspace: Path | None, as_json: bool) -> None:
    """Approve the call that approval ID asks for: shows it, and asks you at your terminal.

    Without a terminal nothing is approved. Once approved, the identical call, made again, runs once.
    """
    refuse_agents("packhost approvals approve")
    found = request(workspace, "approvals.show", id=id)
    if found["status"] == "pending":
        with Terminal("approving") as terminal:
            verdict = terminal.decide(found["prompt"])
        if verdict is None:
            click.echo("left open", err=True)
            ctx.exit(REFUSED)
        found = _decide(workspace, id, verdict, reason)
    _say(found, as_json)
    ctx.exit(OK if found["status"] == "approved" else REFUSED)


@command.command("deny", epilog=examples("packhost approvals deny ap_01k… --reason 'not on a Friday'"))
@click.argument("id")
@click.option("--reason", default="", help="Why; the agent reads it.")
@workspace_option
@json_option
def deny(id: str, reason: str, workspace: Path | None, as_json: bool) -> None:
    """Deny the call that approval ID asks for."""
    _say(_decide(workspace, id, "deny", reason), as_json)


def _decide(workspace: Path | None, id: str, verdict: str, reason: str) -> dict[str, Any]:
    decided: dict[str, Any] = request(
        workspace, "approvals.decide", id=id, verdict=verdict, reason=reason, channel="cli"
    )
    return decided


def _say(approval: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(approval)
        return
    by = f" by {approval['decided_by']}" if approval["decided_by"] else ""
    click.echo(f"{approval['id']} is {approval['status']}{by}: {pretty(approval['tool'])}")
