"""`packhost serve`: the host of a workspace, on stdio or over HTTP. Imports as little as it can."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import anyio
import click

from packhost.app import serve
from packhost.cli.options import examples, workspace_option
from packhost.cli.times import DurationType

Form = Literal["text", "json"]


def _long_enough(_: click.Context, parameter: click.Parameter, given: float | None) -> float | None:
    if given is not None and given < 1:
        raise click.BadParameter("a lease lasts one second at least", param=parameter)
    return given


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
    callback=_long_enough,
    help="Where hosts share a store: out of touch for so long, others take over what this one runs "
    "(default: 15s).",
)
@click.option(
    "--log-format",
    "form",
    type=click.Choice(["text", "json"]),
    help="Log a line an event on stderr, so written.",
)
@click.option(
    "--log-level",
    "level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    help="From which level on.",
)
@workspace_option
@click.pass_context
def command(
    ctx: click.Context,
    http: str | None,
    grace: float,
    lease: float | None,
    form: Form | None,
    level: str | None,
    workspace: Path | None,
) -> None:
    """Serve this workspace's tools over MCP: on standard input and output, or over HTTP.

    A client starts this by itself; `packhost connect` prints what to tell it. With one of the options of logs
    a line is written to stderr for what happens to calls, runs and approvals, without what was in them.
    """
    if form is None and level is None:
        ctx.exit(anyio.run(serve, workspace, http, grace, lease))
    from packhost.telemetry.logs import logged_lines  # a client that reads no logs starts faster without

    with logged_lines(form or "text", level or "info"):
        ctx.exit(anyio.run(serve, workspace, http, grace, lease))
