"""`packhost upstream`: the servers that packs have upstream."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click

from packhost.characters import visible
from packhost.cli.host import request
from packhost.cli.options import GROUP_EPILOG, examples, json_option, workspace_option
from packhost.cli.output import print_json, print_table
from packhost.cli.terminal import refuse_agents


@click.group("upstream", short_help="MCP servers that packs go to.", epilog=GROUP_EPILOG)
def command() -> None:
    """MCP servers that packs of this workspace go to."""


@command.command("list", epilog=examples("packhost upstream list"))
@workspace_option
@json_option
def list_upstreams(workspace: Path | None, as_json: bool) -> None:
    """List the servers: whether each runs, and how it failed."""
    found = request(workspace, "upstreams.list")
    if as_json:
        print_json(found)
        return
    rows = [_row(one) for one in found["upstreams"]]
    print_table(("PACK", "STATE", "PROTOCOL", "CALLS", "WHY"), rows, empty="no pack has a server upstream")


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    why = one["why"] if one["state"] != "running" else ""
    return one["pack"], one["state"], one.get("protocol", ""), str(one.get("calls", "")), why


@command.command("logs", epilog=examples("packhost upstream logs files"))
@click.argument("pack")
@workspace_option
@json_option
def logs(pack: str, workspace: Path | None, as_json: bool) -> None:
    """Print what the server of PACK printed, the latest of it."""
    found = request(workspace, "upstreams.logs", pack=pack)
    if as_json:
        print_json(found)
        return
    click.echo(visible(found["text"]), nl=False)


@command.command("login", epilog=examples("packhost upstream login issues"))
@click.argument("pack")
@workspace_option
def login(pack: str, workspace: Path | None) -> None:
    """Sign in to the server of PACK in your browser; packhost keeps what it needs to call it."""
    refuse_agents("packhost upstream login")
    from packhost.app.signing import sign_in  # brings what only this command needs

    def show(url: str) -> None:
        click.echo(f"Open this address in your browser and sign in:\n\n  {url}\n", err=True)
        click.launch(url)

    name = asyncio.run(sign_in(workspace, pack, show))
    click.echo(f"signed in to {visible(name)}")
