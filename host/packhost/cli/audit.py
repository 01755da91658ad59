"""`packhost audit`: prove that the record is whole, and print it."""

from __future__ import annotations

import json
from pathlib import Path

import click

from packhost.cli.host import request, with_control
from packhost.cli.options import examples, json_option, workspace_option
from packhost.cli.output import print_json
from packhost.cli.run import FAILED, OK
from packhost.control.base import Control

_PAGE = 500


@click.group("audit", short_help="Prove and print the record.")
def command() -> None:
    """Prove and print the record: a chain of events, each bound to the one before by its hash."""


@command.command("verify", epilog=examples("packhost audit verify", "packhost audit verify --json"))
@workspace_option
@json_option
@click.pass_context
def verify(ctx: click.Context, workspace: Path | None, as_json: bool) -> None:
    """Walk the whole chain; the exit code is 1 when a link does not hold.

    A chain cannot show that its end was cut off: keep the head that this prints elsewhere to prove that.
    """
    found = request(workspace, "audit.verify")
    if as_json:
        print_json(found)
    elif found["ok"]:
        click.echo(f"{click.style('✓', fg='green')} {found['events']} events, every link holds")
        click.echo(f"  head {found['head']}")
    else:
        click.echo(
            f"{click.style('✗', fg='red')} the first bad link is event {found['first_bad']} "
            f"of {found['events']}: {found['reason']}"
        )
    ctx.exit(OK if found["ok"] else FAILED)


@command.command("export", epilog=examples("packhost audit export > record.jsonl"))
@click.option("--after", type=click.IntRange(0), default=0, help="Only events after this one's number.")
@click.option("--limit", type=click.IntRange(1), help="At most so many; left out, all of them.")
@click.option("--json", "as_json", is_flag=True, hidden=True, help="The lines are JSON already.")
@workspace_option
def export(after: int, limit: int | None, as_json: bool, workspace: Path | None) -> None:
    """Print the record as JSON lines, first to last."""
    with_control(workspace, lambda control: _export(control, after, limit))


async def _export(control: Control, after: int, limit: int | None) -> None:
    left = limit
    cursor: int | None = after
    while cursor is not None and left != 0:
        page = _PAGE if left is None else min(_PAGE, left)
        found = await control.request("audit.export", {"after": cursor, "limit": page})
        for line in found["lines"]:
            click.echo(json.dumps(line, ensure_ascii=False, separators=(",", ":")))
        left = None if left is None else left - len(found["lines"])
        cursor = found["next"]
