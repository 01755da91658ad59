"""`packhost serve`: the host of a workspace, on stdio or over HTTP. Imports as little as it can."""

from __future__ import annotations

from pathlib import Path

import anyio
import click

from packhost.app import serve
from packhost.cli.options import examples, workspace_option
from packhost.cli.times import DurationType


@click.command(
    "serve",
    short_help="Serve this workspace's tools over MCP.",
    epilog=examples("packhost serve", "packhost serve -w ~/project --http 127.0.0.1:8765"),
)
@click.option(
    "--http", metavar="HOST:PORT", help="Over HTTP: streamable HTTP at /mcp, SSE at /sse, /healthz."
)
@click.option(
    "--grace",
    type=DurationType(),
    default="10s",
    show_default=True,
    help="Told to stop, wait so long for what is under way.",
)
@click.option(
    "--lease",
    type=DurationType(),
    help="Where hosts share a store: out of touch for so long, others take over what this one runs "
    "(default: 15s).",
)
@workspace_option
@click.pass_context
def command(
    ctx: click.Context, http: str | None, grace: float, lease: float | None, workspace: Path | None
) -> None:
    """Serve this workspace's tools over MCP: on standard input and output, or over HTTP.

    A client starts this by itself; `packhost connect` prints what to tell it.
    """
    ctx.exit(anyio.run(serve, workspace, http, grace, lease))
