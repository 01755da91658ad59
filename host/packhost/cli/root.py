"""The command `packhost`: its subcommands are imported when they are run, never for a listing of them."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path

import click

from packhost.names import nearest

EPILOG = """\b
Exit codes: 0 ok · 1 the tool failed · 2 usage or configuration · 3 refused · 4 approval required
"""

COMMANDS: Mapping[str, tuple[str, str]] = {
    "init": ("init", "Write a first packhost.yaml here, and accept it."),
    "accept": ("accept", "Look at what packhost.yaml asks for, and accept it."),
    "adopt": ("adopt", "Put the MCP servers that a client has behind packhost."),
    "serve": ("serve", "Serve this workspace's tools over MCP."),
    "demo": ("demo", "Watch packhost govern an agent, in a few seconds."),
    "tools": ("tools", "What tools there are, and which are withheld."),
    "call": ("call", "Call one tool through the gate."),
    "explain": ("explain", "Say what would happen to a call; nothing runs."),
    "console": ("console", "Open the console in a browser."),
    "approvals": ("approvals", "Questions that wait for a person."),
    "questions": ("questions", "What tools ask of a person."),
    "grants": ("grants", "What is always allowed, and what could be."),
    "operator": ("operator", "Who proves by a passphrase that an answer is theirs."),
    "tokens": ("tokens", "Bearer tokens for the HTTP API."),
    "upstream": ("upstream", "MCP servers that packs go to."),
    "runs": ("runs", "Follow and steer what runs."),
    "webhooks": ("webhooks", "Endpoints that are told of what happens."),
    "sessions": ("sessions", "Sessions and their autonomy."),
    "trace": ("trace", "Check traces of agent turns."),
    "policy": ("policy", "Test, check and replay the rules."),
    "learn": ("learn", "Propose the narrowest packhost.yaml for what really happened."),
    "audit": ("audit", "Prove and print the record."),
    "store": ("store", "Look after the store: backups, migrations, pruning."),
    "docs": ("docs", "Reference pages of packs."),
    "connect": ("connect", "Connect a client to this workspace."),
    "doctor": ("doctor", "Check this installation and workspace."),
    "completion": ("completion", "Print a shell's completion script."),
}
"""A command's module in this package and its line in the help."""


class LazyGroup(click.Group):
    """A group that knows its commands' names and lines, and imports a command when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command itself, imported now; each module names it `command`."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"packhost.cli.{COMMANDS[cmd_name][0]}")
        found: click.Command = module.command
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is meant; an unknown word names the nearest one."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            near = nearest(args[0], COMMANDS, 1)
            meant = f"; did you mean `{near[0]}`?" if near else ""
            ctx.fail(f"there is no command `{args[0]}`{meant}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands of the help, from their lines alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="packhost", prog_name="packhost", message="%(prog)s %(version)s")
@click.option(
    "-w",
    "--workspace",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The workspace, for the command that follows.",
)
@click.pass_context
def packhost(ctx: click.Context, workspace: Path | None) -> None:
    """One MCP server in front of every tool that an agent may use.

    A workspace's packhost.yaml says what each tool may touch; a person is asked where it says so;
    everything is on record. `packhost demo` shows it.
    """
    ctx.obj = workspace
