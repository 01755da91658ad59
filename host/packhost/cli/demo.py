"""`packhost demo`: a real host, a real client and a scripted model in a temporary workspace."""

from __future__ import annotations

import tempfile
from pathlib import Path

import anyio
import click

from packhost.cli.demonstration import DemoFailed, Demonstration
from packhost.cli.options import examples
from packhost.cli.run import FAILED, OK

_PATIENCE = 120.0
"""Seconds for all of it; it takes a few."""


@click.command(
    "demo",
    short_help="Watch packhost govern an agent, in a few seconds.",
    epilog=examples("packhost demo"),
)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Watch packhost govern an agent: a refusal, an approval, a whole turn, and the record of it.

    Starts the real host as a subprocess in a temporary workspace and connects to it as an MCP client. It
    needs no network and no key, and leaves nothing behind. The exit code is 0 only if every step held.
    """
    with tempfile.TemporaryDirectory(prefix="packhost-demo-", ignore_cleanup_errors=True) as folder:
        ctx.exit(anyio.run(_play, Path(folder).resolve()))


async def _play(folder: Path) -> int:
    try:
        with anyio.fail_after(_PATIENCE):
            await Demonstration(folder).play()
    except (DemoFailed, TimeoutError) as error:
        click.echo(f"\n{click.style('✗', fg='red')} {error or 'it took too long'}", err=True)
        return FAILED
    return OK
