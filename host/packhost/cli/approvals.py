"""`packhost approvals`: questions that wait for a person, and the person's answers.

Approving always reads its answer from `/dev/tty`, so that a process without a terminal, an agent's
among them, approves nothing. Denying can do no harm and asks nobody.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from packhost.cli.grants import expires_option, offer_lines, only_of, only_option, uses_option
from packhost.cli.host import request
from packhost.cli.options import GROUP_EPILOG, examples, json_option, workspace_option
from packhost.cli.output import pretty, print_facts, print_json, print_table
from packhost.cli.run import OK, REFUSED
from packhost.cli.signing import take_pen
from packhost.cli.terminal import Terminal, refuse_agents
from packhost.cli.times import left
from packhost.cli.watching import watch
from packhost.errors import InvalidInput
from packhost.gate.display import whole_lines

_STATUSES = ("pending", "approved", "denied", "expired", "cancelled")


@click.group("approvals", short_help="Questions that wait for a person.", epilog=GROUP_EPILOG)
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
    ends = f"in {left(row['expires_at'] - time.time())}"
    return row["id"], row["status"], row["tool"], row["client"], ends if row["status"] == "pending" else ""


@command.command(
    "show", epilog=examples("packhost approvals show ap_01k…", "packhost approvals show ap_01k… --full")
)
@click.argument("id")
@click.option("--full", is_flag=True, help="Every argument whole, however long.")
@workspace_option
@json_option
def show(id: str, full: bool, workspace: Path | None, as_json: bool) -> None:
    """Show approval ID: exactly what will run."""
    found = request(workspace, "approvals.show", id=id)
    if as_json:
        print_json(found)
        return
    click.echo(found["prompt"])
    if full:
        click.echo("Arguments, whole:")
        click.echo("\n".join(whole_lines(found["arguments"])))
    _say_proposal(found)
    people = [f"{each['by']} ({each['verdict']}, {each['assurance']})" for each in found["answers"]]
    print_facts(
        [
            ("Status", found["status"]),
            ("Approvals", ", ".join(found["names"])),
            ("Answers", ", ".join(people)),
            ("Session", found["session_id"]),
            ("Run", found["run_id"]),
            ("Decided by", found["decided_by"]),
            ("Channel", found["decided_channel"]),
            ("Reason", found["reason"]),
            ("Used by", found["consumed_by"]),
        ]
    )


def _say_proposal(found: dict[str, Any]) -> None:
    proposal = found["proposal"]
    if proposal is not None:
        click.echo(_proposal_line(proposal))


def _proposal_line(proposal: dict[str, Any]) -> str:
    return (
        f"People approved {proposal['approvals']} such calls lately: `packhost grants propose` shows a grant "
        f"for them ({proposal['id']})."
    )


@command.command(
    "approve",
    epilog=examples(
        "packhost approvals approve ap_01k…",
        "packhost approvals approve ap_01k… --always --expires 30d --only 'path=src/**' --any content",
    ),
)
@click.argument("id")
@click.option("--reason", default="", help="Why; it is recorded.")
@click.option("--always", is_flag=True, help="Allow such calls for good; exactly this one, unless widened.")
@expires_option
@uses_option
@only_option
@click.option("--any", "anything", multiple=True, metavar="NAME", help="With any value of this argument.")
@workspace_option
@json_option
@click.pass_context
def approve(
    ctx: click.Context,
    id: str,
    reason: str,
    always: bool,
    expires_in: float | None,
    uses: int | None,
    only: tuple[str, ...],
    anything: tuple[str, ...],
    workspace: Path | None,
    as_json: bool,
) -> None:
    """Approve the call that approval ID asks for: shows it, and asks you at your terminal.

    Without a terminal nothing is approved. Once approved, the identical call, made again, runs once. With
    `--always` calls like it are allowed from then on: all arguments exactly as in this one, except paths
    below `--only` and what `--any` leaves open; you see the pattern before you answer.
    """
    refuse_agents("packhost approvals approve")
    if not always and (expires_in is not None or uses is not None or only or anything):
        raise InvalidInput(
            "`--expires`, `--uses`, `--only` and `--any` say what is allowed for good", hint="add `--always`"
        )
    found = request(workspace, "approvals.show", id=id)
    if found["status"] == "pending":
        wish = Wish(expires_in, uses, only_of(only), list(anything)) if always else None
        decided = _ask(workspace, found, reason, wish)
        if decided is None:
            click.echo("left open", err=True)
            ctx.exit(REFUSED)
        found = decided
    elif always:
        raise InvalidInput(
            f"`{id}` is {found['status']} already, so nothing was allowed for good",
            hint="add `--always` when such a call asks again",
        )
    _say(found, as_json)
    ctx.exit(OK if found["status"] == "approved" else REFUSED)


@dataclass(frozen=True, slots=True)
class Wish:
    """What `--always` is to grant."""

    expires_in: float | None
    uses: int | None
    only: dict[str, str]
    anything: list[str]


def _ask(
    workspace: Path | None, found: dict[str, Any], reason: str, wish: Wish | None
) -> dict[str, Any] | None:
    """Show the question, take the person's answer and record it; `None` when it is left open."""
    operator = request(workspace, "operator.show")
    prompt, pattern = found["prompt"], {}
    if found["proposal"] is not None:
        prompt += f"\n{_proposal_line(found['proposal'])}"
    if wish is not None:
        pattern = {"only": wish.only, "any": wish.anything}
        offer = request(workspace, "grants.offer", id=found["id"], **pattern)
        prompt = "\n".join([prompt, *offer_lines(offer, wish.expires_in, wish.uses)])
    more: dict[str, Any] = {}
    with Terminal("approving") as terminal:
        verdict = terminal.decide(prompt)
        if verdict is None:
            return None
        pen = take_pen(terminal, operator) if verdict == "approve" else None
    if pen is not None:
        more["signed"] = pen.decision(found, verdict, reason)
    if wish is not None and verdict == "approve":
        always: dict[str, Any] = {**pattern, "expires_in": wish.expires_in, "uses": wish.uses}
        if pen is not None:
            always["signed"] = pen.grant(offer, wish.expires_in, wish.uses)
        more["always"] = always
    return _decide(workspace, found["id"], verdict, reason, **more)


@command.command(
    "watch",
    epilog=examples(
        "packhost approvals watch",
        "packhost approvals watch --once",
        "packhost approvals watch --json",
    ),
)
@click.option("--once", is_flag=True, help="Show what waits now, and end.")
@click.option("--bell/--no-bell", default=True, show_default=True, help="Ring when one comes.")
@workspace_option
@json_option
def watch_approvals(once: bool, bell: bool, workspace: Path | None, as_json: bool) -> None:
    """Watch what waits for a person, as it comes.

    At a terminal it is an inbox: select with the arrow keys, read what would run, allow it once, always or
    deny it; `?` shows the keys. Anywhere else it prints a line for each approval that comes and for what
    becomes of it, with `--json` the whole approval in a line.
    """
    watch(workspace, once=once, as_json=as_json, bell=bell)


@command.command("deny", epilog=examples("packhost approvals deny ap_01k… --reason 'not on a Friday'"))
@click.argument("id")
@click.option("--reason", default="", help="Why; the agent reads it.")
@workspace_option
@json_option
def deny(id: str, reason: str, workspace: Path | None, as_json: bool) -> None:
    """Deny the call that approval ID asks for."""
    _say(_decide(workspace, id, "deny", reason), as_json)


def _decide(workspace: Path | None, id: str, verdict: str, reason: str, **more: Any) -> dict[str, Any]:
    decided: dict[str, Any] = request(
        workspace, "approvals.decide", id=id, verdict=verdict, reason=reason, channel="cli", **more
    )
    return decided


def _say(approval: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(approval)
        return
    by = f" by {approval['decided_by']}" if approval["decided_by"] else ""
    click.echo(f"{approval['id']} is {approval['status']}{by}: {pretty(approval['tool'])}")
    if approval["status"] == "pending":
        given = sum(each["verdict"] == "approve" for each in approval["answers"])
        needed = approval["approvers_needed"]
        click.echo(f"{given} of {needed} people approved it; another person must, under a name of their own")
    if approval.get("grant"):
        click.echo(f"calls like it are allowed from now on: packhost grants show {approval['grant']}")
