"""`packhost doctor`: is this installation sound, and this workspace?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import click

from packhost.cli import checks
from packhost.cli.checks import Check
from packhost.cli.conditions import conditions
from packhost.cli.examined import examined
from packhost.cli.holds import what_holds
from packhost.cli.host import request
from packhost.cli.options import examples, json_option, workspace_option
from packhost.cli.output import print_json
from packhost.cli.run import FAILED, OK
from packhost.cli.storing import store_checks
from packhost.clients.reading import PATIENCE
from packhost.errors import PackhostError
from packhost.gate.display import visible
from packhost.workspace.root import Root, find_root

_MARKS = {"ok": ("✓", "green"), "note": ("·", "yellow"), "broken": ("✗", "red")}


@click.command(
    "doctor",
    short_help="Check this installation and workspace.",
    epilog=examples("packhost doctor", "packhost doctor --json", "packhost doctor notes --run 'list={}'"),
)
@click.argument("upstream", required=False)
@click.option("--run", "runs", multiple=True, metavar="TOOL=JSON", help="Call this tool of UPSTREAM as well.")
@click.option(
    "--timeout", type=click.FloatRange(1, 3600), default=PATIENCE, help="Seconds that UPSTREAM may take."
)
@click.option("--yes", is_flag=True, help="Start an UPSTREAM of a client's file without asking.")
@workspace_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    upstream: str | None,
    runs: tuple[str, ...],
    timeout: float,
    yes: bool,
    workspace: Path | None,
    as_json: bool,
) -> None:
    """Check this installation and workspace; the exit code is 1 when something is broken.

    Below the checks stands what of packhost's promises holds here; docs/threat-model.md explains each.

    With UPSTREAM, an enabled pack, a server of a client's file here or a URL, that MCP server is started and
    looked at instead. None of its tools is run but those that `--run` names. What would be run of a client's
    file is shown, and you are asked first.
    """
    if upstream is not None:
        checked = list(examined(workspace, upstream, runs, timeout, agreed=yes))
        _end(ctx, checked, [], as_json)
    if runs:
        raise click.UsageError("`--run` goes with UPSTREAM")
    found = list(_examine(workspace))
    elsewhere = any(check.name == "store" and check.text.startswith("PostgreSQL") for check in found)
    _end(ctx, found, list(_promises(workspace, on_disk=not elsewhere)), as_json)


def _end(ctx: click.Context, found: Sequence[Check], holds: Sequence[Check], as_json: bool) -> NoReturn:
    broken = [check for check in (*found, *holds) if check.state == "broken"]
    if as_json:
        checked = [check.as_json() for check in found]
        print_json({"ok": not broken, "checks": checked, "holds": [check.as_json() for check in holds]})
    else:
        _tell(found)
        if holds:
            click.echo("\nWhat holds here:")
            _tell(holds)
    ctx.exit(FAILED if broken else OK)


def _tell(found: Sequence[Check]) -> None:
    width = max(len(check.name) for check in found)
    for check in found:
        mark, colour = _MARKS[check.state]
        click.echo(f"{click.style(mark, fg=colour)} {check.name.ljust(width)}  {visible(check.text)}")


def _promises(workspace: Path | None, *, on_disk: bool) -> Iterator[Check]:
    with suppress(PackhostError), Root(find_root(workspace or Path.cwd())) as root:
        yield from what_holds(root.path, root.state, on_disk=on_disk)


def _examine(workspace: Path | None) -> Iterator[Check]:
    yield from checks.installation()
    yield from checks.machine()
    try:
        with Root(find_root(workspace or Path.cwd())) as root:
            yield from checks.state_folder(root)
            yield from conditions(root.state)
            path = root.path
    except PackhostError as error:
        yield _broken("workspace", error)
        return
    try:
        yield from checks.configuration(request(path, "status"))
    except PackhostError as error:
        yield _broken("host", error)
    try:
        yield from checks.authorization(request(path, "auth.examine"))
    except PackhostError as error:
        yield _broken("auth", error)
    try:
        yield from store_checks(request(path, "store.info"))
    except PackhostError as error:
        yield _broken("store", error)
    yield from checks.clients(path, checks.home_folder())


def _broken(name: str, error: PackhostError) -> Check:
    return Check(name, "broken", f"{error.code}: {error}{f' ({error.hint})' if error.hint else ''}")
