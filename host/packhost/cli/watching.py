"""`packhost approvals watch`: what waits for a person, as it comes; at a terminal with keys to answer it."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any, Final

import anyio
import click

from packhost.cli.reaching import Pending, WhicheverHost
from packhost.cli.run import innermost
from packhost.cli.terminal import person_at_hand
from packhost.cli.times import left
from packhost.gate.display import label

_REASON: Final = 1_000
"""Characters of a reason that are shown."""


def watch(workspace: Path | None, *, once: bool, as_json: bool, bell: bool) -> None:
    """Show what waits until it is interrupted; `once`: as it stands now.

    At a terminal it is an inbox with keys, else a line an approval.
    """
    looking = sys.stdin.isatty() and sys.stdout.isatty() and not (once or as_json)

    async def inside() -> None:
        pending = Pending(WhicheverHost(workspace))
        if looking:
            from packhost.cli.inbox import show  # rich's live display, for people alone

            await show(pending, bell=bell, asks=person_at_hand())
            return
        async for changed in pending.follow():
            for row in changed:
                _say(row, as_json)
            if once:
                if not changed and not as_json:
                    click.echo("nothing waits for a person")
                return

    try:
        anyio.run(inside)
    except BaseExceptionGroup as group:
        raise innermost(group) from None


def _say(row: dict[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(row, ensure_ascii=False, separators=(",", ":")))
    else:
        click.echo(line_of(row))
    sys.stdout.flush()


def line_of(row: dict[str, Any]) -> str:
    """An approval in a line."""
    when = time.strftime("%H:%M:%S", time.localtime(row["decided_at"] or row["created_at"]))
    if row["status"] == "pending":
        headline = row["prompt"].partition("\n")[0]
        return f"{when} {row['id']} waits {left(row['expires_at'] - time.time())}: {headline}"
    by = f" by {label(row['decided_by'])}" if row["decided_by"] else ""
    reason = f": {label(row['reason'], _REASON)}" if row["reason"] else ""
    return f"{when} {row['id']} {row['status']}{by}{reason}"
