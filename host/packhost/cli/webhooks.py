"""`packhost webhooks`: the endpoints that are told of what happens, and how they fare."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

import anyio
import click

from packhost.cli.host import request, with_control
from packhost.cli.options import GROUP_EPILOG, examples, json_option, workspace_option
from packhost.cli.output import print_json, print_table
from packhost.cli.run import FAILED, OK
from packhost.cli.times import left
from packhost.control.base import Control
from packhost.errors import InvalidInput

_SECONDS: Final = 20.0
_LOOK: Final = 0.2


@click.group("webhooks", short_help="Endpoints that are told of what happens.", epilog=GROUP_EPILOG)
def command() -> None:
    """Endpoints that are told of what happens.

    They stand under `webhooks` in packhost.yaml, and are told once that was accepted, by a host that serves.
    """


@command.command("list", epilog=examples("packhost webhooks list", "packhost webhooks list --limit 50"))
@click.option(
    "--limit",
    type=click.IntRange(1, 1_000),
    default=5,
    show_default=True,
    help="So many deliveries each: first those that were given up.",
)
@workspace_option
@json_option
def list_webhooks(limit: int, workspace: Path | None, as_json: bool) -> None:
    """List webhooks, how each fares, and what it was told last."""
    found = request(workspace, "webhooks.list", limit=limit)
    if as_json:
        print_json(found)
        return
    print_table(
        ("NAME", "WAITING", "DELIVERED", "GIVEN UP", "URL"),
        [
            (hook["name"], hook["waiting"], hook["delivered"], hook["dead"], hook["url"])
            for hook in found["webhooks"]
        ],
        empty="nobody is told of anything: `webhooks` in packhost.yaml says whom to tell",
    )
    told = [one for hook in found["webhooks"] for one in hook["deliveries"]]
    if told:
        click.echo("")
        print_table(
            ("DELIVERY", "WEBHOOK", "STATUS", "EVENT", "TRIES", "LAST"), [_row(one) for one in told], empty=""
        )


def _row(one: dict[str, Any]) -> tuple[object, ...]:
    said = one["error"] or (f"it answered {one['answered']}" if one["answered"] else "")
    if one["next_at"] is not None and one["attempts"]:
        said = f"{said}; again in {left(one['next_at'] - time.time())}"
    status = "given up" if one["status"] == "dead" else one["status"]
    return one["id"], one["webhook"], status, one["type"], one["attempts"], said


@command.command("test", epilog=examples("packhost webhooks test team"))
@click.argument("name")
@workspace_option
@json_option
@click.pass_context
def test(ctx: click.Context, name: str, workspace: Path | None, as_json: bool) -> None:
    """Have webhook NAME told of nothing but that it is told, and wait for its answer."""

    async def told(control: Control) -> dict[str, Any]:
        found: dict[str, Any] = await control.request("webhooks.test", {"name": name})
        with anyio.move_on_after(_SECONDS):
            while found["status"] == "waiting" and not found["attempts"]:
                await anyio.sleep(_LOOK)
                found = await control.request("webhooks.show", {"id": found["id"]})
        return found

    found = with_control(workspace, told)
    if as_json:
        print_json(found)
    elif found["status"] == "delivered":
        click.echo(f"{found['id']} was taken: {name} answered {found['answered']}")
    elif found["attempts"]:
        click.echo(f"{found['id']} was not taken: {found['error']}; it is tried again")
    else:
        click.echo(f"{found['id']} waits: a host that serves sends it, `packhost serve`")
    ctx.exit(OK if found["status"] == "delivered" else FAILED)


@command.command("retry", epilog=examples("packhost webhooks retry team", "packhost webhooks retry msg_01k…"))
@click.argument("what", metavar="NAME|ID")
@workspace_option
@json_option
def retry(what: str, workspace: Path | None, as_json: bool) -> None:
    """Try anew what was given up: a delivery by its ID, or all of webhook NAME."""
    if not what.strip():
        raise InvalidInput("nothing is named", hint="give a webhook's name or a delivery's id")
    named = {"id": what} if what.startswith("msg_") else {"name": what}
    found = request(workspace, "webhooks.retry", **named)
    if as_json:
        print_json(found)
        return
    count = found["again"]
    click.echo(f"{count} {'delivery is' if count == 1 else 'deliveries are'} tried again")
