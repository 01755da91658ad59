"""`packhost trace`: hold recorded traces of agent turns to the rules, without a workspace or a host."""

from __future__ import annotations

import click

from packhost.cli.options import examples, json_option
from packhost.trace.report import check_files


@click.group("trace", short_help="Check traces of agent turns.")
def command() -> None:
    """Check traces of agent turns."""


@command.command(
    "check", epilog=examples("packhost trace check run.json", "packhost trace check *.json --json")
)
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@json_option
def check(files: tuple[str, ...], as_json: bool) -> int:
    """Check trace FILEs, of this host or any other.

    Exit code 0: nothing was found, or warnings alone; 1: an error or a gap in what could be checked;
    2: a file is no trace. The shape of a trace and the issue codes are in docs/agent-runtime/trace.md.
    """
    return check_files(files, click.echo, as_json=as_json)
