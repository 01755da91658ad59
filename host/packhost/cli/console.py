"""`packhost console`: the console in a browser, opened by a person."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import anyio
import click

from packhost.cli.options import examples, json_option, workspace_option
from packhost.cli.output import print_json
from packhost.cli.run import innermost
from packhost.cli.signing import take_pen
from packhost.cli.terminal import Terminal, refuse_agents
from packhost.control.base import Control


@click.command(
    "console",
    short_help="Open the console in a browser.",
    epilog=examples(
        "packhost console",
        "packhost console --no-browser",
        "packhost console -w ~/project --port 8790 --json",
    ),
)
@click.option("--port", type=click.IntRange(0, 65535), help="Serve one of its own here; 0 takes a free port.")
@click.option("--no-browser", is_flag=True, help="Print the address, and open no browser.")
@workspace_option
@json_option
def command(port: int | None, no_browser: bool, workspace: Path | None, as_json: bool) -> None:
    """Open the console: approvals, runs, tools, grants and the record in a browser, on this machine alone.

    A host that serves over HTTP has a console, and its page is opened. Beside any other this command serves
    one, until Ctrl-C. The address holds a ticket that lets one person in, once, within two minutes. Where an
    operator is set up, the passphrase is asked for.
    """
    refuse_agents("packhost console")
    from packhost.app.consoles import open_console  # brings a web server

    async def opened(control: Control, url: str) -> None:
        ticket = await opening_ticket(control)
        address = f"{url}/console/login#{ticket}"
        if as_json:
            print_json({"url": f"{url}/console/", "open": address})
        elif no_browser or not _opens(address):
            click.echo(f"Open this in a browser within two minutes:\n\n  {address}\n")
        else:
            click.echo(f"The console is open in your browser: {url}/console/")
        if not as_json and port is None:
            click.echo(f"It is also at http://127.0.0.1:{url.rpartition(':')[2]}/console/", err=True)
        sys.stdout.flush()

    try:
        anyio.run(open_console, workspace, port, opened)
    except BaseExceptionGroup as group:
        raise innermost(group) from None


async def opening_ticket(control: Control) -> str:
    """A ticket for whoever runs this; where an operator is set up, for whoever gives the passphrase."""
    operator = await control.request("operator.show", {})
    params: dict[str, Any] = {}
    if operator["state"] != "none":
        with Terminal("opening the console") as terminal:
            pen = await anyio.to_thread.run_sync(take_pen, terminal, operator)
        if pen is not None:
            nonce = (await control.request("console.nonce", {}))["nonce"]
            params = {"nonce": nonce, "signed": pen.entry(nonce)}
    made = await control.request("console.ticket", params)
    return str(made["ticket"])


def _opens(address: str) -> bool:
    """Whether a browser with a window could be started."""
    if sys.platform == "linux" and not any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    ):
        return False
    import webbrowser  # looks for browsers when it is imported

    return webbrowser.open(address)
