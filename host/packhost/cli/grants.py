"""`packhost grants`: what is always allowed, and what the host proposes to allow for good.

Only a person's command gives a grant: `approvals approve --always` for a question that waits, and
`grants accept` for a proposal.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from packhost.cli.host import request
from packhost.cli.options import GROUP_EPILOG, examples, json_option, workspace_option
from packhost.cli.output import moment, pretty, print_facts, print_json, print_table
from packhost.cli.run import REFUSED
from packhost.cli.signing import take_pen
from packhost.cli.terminal import Terminal, refuse_agents
from packhost.cli.times import DurationType, span
from packhost.errors import InvalidInput
from packhost.gate.display import label

expires_option = click.option(
    "--expires", "expires_in", type=DurationType(), metavar="TIME", help="When it ends: 2h, 30d."
)
uses_option = click.option("--uses", type=click.IntRange(1), metavar="N", help="For so many calls.")
only_option = click.option(
    "--only",
    multiple=True,
    metavar="NAME=GLOB",
    help="For paths that match, such as 'path=src/**'; may be given again.",
)


@click.group("grants", short_help="What is always allowed, and what could be.", epilog=GROUP_EPILOG)
def command() -> None:
    """What is always allowed, and what could be.

    A grant is for one principal, one tool in one version, and a pattern of its arguments.
    """


@command.command("list", epilog=examples("packhost grants list", "packhost grants list --all --json"))
@click.option("--all", "everything", is_flag=True, help="Also those that cover nothing any more.")
@click.option(
    "--limit", type=click.IntRange(1, 1_000), default=100, show_default=True, help="At most so many."
)
@workspace_option
@json_option
def list_grants(everything: bool, limit: int, workspace: Path | None, as_json: bool) -> None:
    """List grants, the newest first."""
    found = request(workspace, "grants.list", all=everything, limit=limit)
    if as_json:
        print_json(found)
        return
    print_table(
        ("ID", "STATE", "TOOL", "FOR", "ARGUMENTS", "USES", "UNTIL"),
        [_row(grant) for grant in found["grants"]],
        empty="nothing is allowed for good" if not everything else "there is none",
    )


def _row(grant: dict[str, Any]) -> tuple[str, ...]:
    uses = f"{grant['uses']}/{grant['max_uses']}" if grant["max_uses"] else str(grant["uses"])
    words = label("; ".join(grant["words"]), 60)
    until = moment(grant["expires_at"]) or "revoked"
    return grant["id"], grant["state"], grant["tool"], grant["principal"] or "anyone", words, uses, until


@command.command("show", epilog=examples("packhost grants show gr_01k…"))
@click.argument("id")
@workspace_option
@json_option
def show(id: str, workspace: Path | None, as_json: bool) -> None:
    """Show grant ID: what it covers, and why it may no longer."""
    _say(request(workspace, "grants.show", id=id), as_json)


@command.command("revoke", epilog=examples("packhost grants revoke gr_01k…"))
@click.argument("id")
@workspace_option
@json_option
def revoke(id: str, workspace: Path | None, as_json: bool) -> None:
    """Take grant ID back, at once; asks nobody."""
    found = request(workspace, "grants.revoke", id=id)
    if as_json:
        print_json(found)
    else:
        click.echo(f"{found['id']} is revoked")


days_option = click.option(
    "--days", type=click.IntRange(1, 3_650), default=30, show_default=True, help="So far back."
)


@command.command("propose", epilog=examples("packhost grants propose", "packhost grants propose --days 7"))
@days_option
@workspace_option
@json_option
def propose(days: int, workspace: Path | None, as_json: bool) -> None:
    """Propose grants for what people approved three times or more, the narrowest that would have done.

    Nothing is granted: `packhost grants accept` does that.
    """
    found = request(workspace, "grants.propose", days=days)
    if as_json:
        print_json(found)
        return
    if not found["proposals"]:
        click.echo(f"nothing was approved often enough in {days} days")
    for proposal in found["proposals"]:
        click.echo("\n".join(proposal_lines(proposal, days)))


def proposal_lines(proposal: dict[str, Any], days: int) -> list[str]:
    """A proposal for people, with what else it would allow."""
    lines = [f"{proposal['id']}: always allow {proposal['tool']} for {label(proposal['principal'])}"]
    lines += [f"  {label(words)}" for words in proposal["words"]]
    lines.append(f"  would have spared {proposal['approvals']} approvals")
    also = proposal["also"]
    if also["count"]:
        lines.append(f"  would also have let through {also['count']} other recorded calls of {days} days:")
        lines += [f"    {call['id']} ({call['status']}) {_brief(call)}" for call in also["calls"]]
    else:
        lines.append(f"  no other recorded call of {days} days fits it")
    lines.append(f"  accept it: packhost grants accept {proposal['id']} --expires 30d")
    return lines


def _brief(call: dict[str, Any]) -> str:
    return label(pretty(call["arguments"]).replace("\n", " "), 80)


@command.command(
    "accept", epilog=examples("packhost grants accept gp_3f… --expires 30d --only 'path=src/**'")
)
@click.argument("id")
@expires_option
@uses_option
@only_option
@days_option
@workspace_option
@json_option
@click.pass_context
def accept(
    ctx: click.Context,
    id: str,
    expires_in: float | None,
    uses: int | None,
    only: tuple[str, ...],
    days: int,
    workspace: Path | None,
    as_json: bool,
) -> None:
    """Grant what proposal ID proposes: shows it, and asks you at your terminal."""
    refuse_agents("packhost grants accept")
    params: dict[str, Any] = {"id": id, "days": days, "only": only_of(only)}
    offer = request(workspace, "grants.accept", **params, dry=True)
    operator = request(workspace, "operator.show")
    with Terminal("granting") as terminal:
        terminal.write("\n".join(offer_lines(offer, expires_in, uses)) + "\n")
        if not terminal.confirm("Always allow this?"):
            click.echo("nothing was granted", err=True)
            ctx.exit(REFUSED)
        pen = take_pen(terminal, operator)
    signed = pen.grant(offer, expires_in, uses) if pen is not None else None
    _say(
        request(workspace, "grants.accept", **params, expires_in=expires_in, uses=uses, signed=signed),
        as_json,
    )


def offer_lines(offer: dict[str, Any], expires_in: float | None, uses: int | None) -> list[str]:
    """What would be granted, for the person who decides."""
    lines = [f"Always allow: {offer['tool']} {offer['tool_version']} for {label(offer['principal'])}, where"]
    lines += [f"  {label(words, 300)}" for words in offer["words"]]
    lines += [f"Mind: {label(wide)}" for wide in offer["wide"]]
    until = f"for {span(expires_in)}" if expires_in is not None else "until it is revoked"
    often = f", at most {uses} times" if uses is not None else ""
    lines.append(f"It holds {until}{often}; a changed tool voids it; `packhost grants revoke` ends it.")
    return lines


def only_of(given: tuple[str, ...]) -> dict[str, str]:
    """`NAME=GLOB` as a mapping; raises `InvalidInput` for something else."""
    found: dict[str, str] = {}
    for each in given:
        name, equals, glob = each.partition("=")
        if not name or not equals or not glob:
            raise InvalidInput(f"`{each}` is no pattern", hint="write `NAME=GLOB`, such as 'path=src/**'")
        found[name] = glob
    return found


def _say(grant: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(grant)
        return
    state = f"{grant['state']}: {grant['why']}" if grant["why"] else grant["state"]
    print_facts(
        [
            ("Grant", grant["id"]),
            ("State", state),
            ("Tool", f"{grant['tool']} {grant['tool_version']}"),
            ("For", grant["principal"] or "anyone"),
            ("Arguments", "\n".join(label(words, 300) for words in grant["words"])),
            ("Uses", f"{grant['uses']} of {grant['max_uses']}" if grant["max_uses"] else grant["uses"]),
            ("Until", moment(grant["expires_at"])),
            ("Given by", grant["created_by"]),
            ("Given at", moment(grant["created_at"])),
            ("Revoked at", moment(grant["revoked_at"])),
        ]
    )
