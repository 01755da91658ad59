"""`packhost sessions`: how much each session may do by itself; raising and lowering is a person's own act."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from packhost.cli.host import request
from packhost.cli.options import GROUP_EPILOG, examples, json_option, workspace_option
from packhost.cli.output import moment, print_facts, print_json, print_table
from packhost.cli.terminal import refuse_agents
from packhost.cli.times import DurationType
from packhost.rules.autonomy import LEVELS


@click.group("sessions", short_help="Sessions and their autonomy.", epilog=GROUP_EPILOG)
def command() -> None:
    """Sessions and their autonomy.

    Levels: observe (reads only) < supervised (every write asks) < guarded (asks where a rule or manifest
    says so) < autonomous (rules marked relaxable no longer ask).
    """


@command.command("list", epilog=examples("packhost sessions list"))
@click.option(
    "--limit", type=click.IntRange(1, 1_000), default=100, show_default=True, help="At most so many."
)
@workspace_option
@json_option
def list_sessions(limit: int, workspace: Path | None, as_json: bool) -> None:
    """List sessions, the last used first."""
    found = request(workspace, "sessions.list", limit=limit)
    if as_json:
        print_json(found)
        return
    rows = [
        (one["id"], one["level"], one["client"], one["parent"] or "", moment(one["updated_at"]))
        for one in found["sessions"]
    ]
    print_table(("ID", "LEVEL", "CLIENT", "OPENED FROM", "LAST USED"), rows, empty="no session yet")


@command.command("show", epilog=examples("packhost sessions show my-session"))
@click.argument("id")
@workspace_option
@json_option
def show(id: str, workspace: Path | None, as_json: bool) -> None:
    """Show session ID."""
    _say(request(workspace, "sessions.show", id=id), as_json)


@command.command("raise", epilog=examples("packhost sessions raise my-session autonomous --expires-in 30m"))
@click.argument("id")
@click.argument("level", type=click.Choice(LEVELS))
@click.option("--reason", default="", help="Why; it is recorded.")
@click.option("--expires-in", type=DurationType(), metavar="TIME", help="When it ends: 90s, 30m, 2h.")
@workspace_option
@json_option
def raise_level(
    id: str, level: str, reason: str, expires_in: float | None, workspace: Path | None, as_json: bool
) -> None:
    """Give session ID more autonomy, up to LEVEL, never past the workspace's maximum."""
    refuse_agents("packhost sessions raise")
    _say(
        request(workspace, "sessions.raise", id=id, level=level, reason=reason, expires_in=expires_in),
        as_json,
    )


@command.command("lower", epilog=examples("packhost sessions lower my-session observe"))
@click.argument("id")
@click.argument("level", type=click.Choice(LEVELS))
@click.option("--reason", default="", help="Why; it is recorded.")
@workspace_option
@json_option
def lower_level(id: str, level: str, reason: str, workspace: Path | None, as_json: bool) -> None:
    """Take autonomy back from session ID, down to LEVEL, at once, also from sessions opened from it."""
    _say(request(workspace, "sessions.lower", id=id, level=level, reason=reason), as_json)


def _say(session: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(session)
        return
    print_facts(
        [
            ("Session", session["id"]),
            ("Level", session["level"]),
            ("Until", moment(session["level_expires_at"])),
            ("Client", session["client"]),
            ("Principal", session["principal"]),
            ("Opened from", session["parent"]),
            ("Messages", session.get("messages")),
            ("Last used", moment(session["updated_at"])),
        ]
    )
