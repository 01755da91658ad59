"""`packhost connect`: what to tell a client so that it starts this host for this workspace."""

from __future__ import annotations

import json
from pathlib import Path

import click

from packhost.cli.options import GROUP_EPILOG, examples, json_option, workspace_option
from packhost.cli.output import print_json
from packhost.clients import claude_code, cursor
from packhost.clients.launch import Launch, launch
from packhost.workspace.root import find_root


@click.group("connect", short_help="Print what connects a client to this workspace.", epilog=GROUP_EPILOG)
def command() -> None:
    """Print what connects a client to this workspace; no client's file is touched."""


print_option = click.option(
    "--print", "printing", is_flag=True, help="Print it; needed, since packhost changes no client's files."
)


def _launch(workspace: Path | None, printing: bool) -> Launch:
    if not printing:
        raise click.UsageError("packhost changes no client's files: add `--print` and paste what it prints")
    return launch(find_root(workspace or Path.cwd()))


@command.command("claude-code", epilog=examples("packhost connect claude-code --print"))
@print_option
@workspace_option
@json_option
def for_claude_code(printing: bool, workspace: Path | None, as_json: bool) -> None:
    """Print the line or the block that connects Claude Code."""
    found = _launch(workspace, printing)
    block = claude_code.block(found)
    if as_json:
        print_json({"command": claude_code.add_command(found), "file": claude_code.FILE, "config": block})
        return
    click.echo("For yourself, in the workspace's folder:\n")
    click.echo(f"  {claude_code.add_command(found)}\n")
    click.echo(f"Or for everyone who has the project, in its {claude_code.FILE}:\n")
    click.echo(json.dumps(block, indent=2))
    _say_variables(found)
    click.echo("\nThen `/mcp` in Claude Code shows packhost and its tools.")


@command.command("cursor", epilog=examples("packhost connect cursor --print"))
@print_option
@workspace_option
@json_option
def for_cursor(printing: bool, workspace: Path | None, as_json: bool) -> None:
    """Print the block or the link that connects Cursor."""
    found = _launch(workspace, printing)
    block = cursor.block(found)
    if as_json:
        print_json({"link": cursor.deeplink(found), "file": str(cursor.FILE), "config": block})
        return
    click.echo(f"In the project's {cursor.FILE}:\n")
    click.echo(json.dumps(block, indent=2))
    click.echo(f"\nOr open this link:\n\n  {cursor.deeplink(found)}")
    _say_variables(found)


def _say_variables(found: Launch) -> None:
    if found.variables:
        names = ", ".join(found.variables)
        click.echo(f"\nKeys stay where they are: start the client with {names} in its environment.")
