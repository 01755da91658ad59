"""`packhost tokens`: bearer tokens for the HTTP API, made by a person and shown once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from packhost.cli.host import request
from packhost.cli.options import GROUP_EPILOG, examples, json_option, workspace_option
from packhost.cli.output import moment, print_facts, print_json, print_table
from packhost.cli.signing import take_pen
from packhost.cli.terminal import Terminal, refuse_agents
from packhost.cli.times import DurationType, span
from packhost.gate.display import label
from packhost.rules.identities import RIGHTS, ROLES

MONTH = 30 * 86_400.0


@click.group("tokens", short_help="Bearer tokens for the HTTP API.", epilog=GROUP_EPILOG)
def command() -> None:
    """Bearer tokens for the HTTP API.

    A token stands for a principal in a role. `caller` runs turns for a program, `end-user` for a person who
    uses one, `operator` decides and steers, `auditor` looks at everything and changes nothing.
    """


@command.command(
    "new",
    epilog=examples(
        "packhost tokens new --role operator",
        "packhost tokens new --role caller --principal ci --name 'nightly job' --expires 90d --json",
        "packhost tokens new --role auditor --scope audit:read",
    ),
)
@click.option("--role", type=click.Choice(ROLES), required=True, help="What it is for.")
@click.option("--name", default="", metavar="TEXT", help="What you call it, for the list of tokens.")
@click.option("--principal", metavar="NAME", help="Whom it stands for; left out, you.")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(RIGHTS),
    help="What it may do, again and again; left out, all of its role but secrets:read.",
)
@click.option(
    "--expires",
    "expires_in",
    type=DurationType(),
    default=MONTH,
    metavar="TIME",
    show_default="30d",
    help="After which it counts no more: 12h, 90d.",
)
@workspace_option
@json_option
def new(
    role: str,
    name: str,
    principal: str | None,
    scopes: tuple[str, ...],
    expires_in: float,
    workspace: Path | None,
    as_json: bool,
) -> None:
    """Make a token and print it: it is shown this once.

    Where an operator is set up, the passphrase is asked for.
    """
    refuse_agents("packhost tokens new")
    given: dict[str, Any] = {"role": role, "name": name, "principal": principal, "expires_in": expires_in}
    if scopes:
        given["scopes"] = list(scopes)
    operator, signed = request(workspace, "operator.show"), None
    if operator["state"] != "none":
        plan = request(workspace, "tokens.plan", **given)
        with Terminal("making a token") as terminal:
            terminal.write(f"{_described(plan)}\n")
            pen = take_pen(terminal, operator)
        signed = pen.token(plan) if pen is not None else None
    made = request(workspace, "tokens.new", **given, signed=signed)
    if as_json:
        print_json(made)
        return
    click.echo(made["token"])
    click.echo(f"{made['id']}: {_described({**made, 'expires_in': expires_in})}", err=True)
    click.echo("Keep it now: it is not shown again, and nothing here knows it.", err=True)


def _described(plan: dict[str, Any]) -> str:
    until = f"for {span(plan['expires_in'])}" if plan["expires_in"] is not None else "without an end"
    return f"A token for {label(plan['principal'])} as {plan['role']}, {until}: {', '.join(plan['scopes'])}"


@command.command("list", epilog=examples("packhost tokens list", "packhost tokens list --all --json"))
@click.option("--all", "everything", is_flag=True, help="Also those that expired or were revoked.")
@workspace_option
@json_option
def listing(everything: bool, workspace: Path | None, as_json: bool) -> None:
    """List tokens, newest first; what makes one is nowhere to be had."""
    found = request(workspace, "tokens.list", all=everything)
    if as_json:
        print_json(found)
        return
    print_table(
        ("ID", "State", "Role", "For", "Name", "Until", "Last used"),
        (
            (
                one["id"],
                one["state"],
                one["role"],
                one["principal"],
                one["name"],
                moment(one["expires_at"]),
                moment(one["last_used_at"]),
            )
            for one in found["tokens"]
        ),
        empty="no tokens; make one with `packhost tokens new --role caller`",
    )


@command.command("revoke", epilog=examples("packhost tokens revoke tok_01…"))
@click.argument("id")
@workspace_option
@json_option
def revoke(id: str, workspace: Path | None, as_json: bool) -> None:
    """Take token ID back: from now on it is refused."""
    found = request(workspace, "tokens.revoke", id=id)
    if as_json:
        print_json(found)
        return
    print_facts(
        [("Token", found["id"]), ("State", found["state"]), ("Revoked at", moment(found["revoked_at"]))]
    )
