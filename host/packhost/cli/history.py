"""The recorded calls of a workspace, for the commands that look back at them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from pydantic_core import PydanticCustomError

from packhost.cli.host import with_control
from packhost.control.base import Control
from packhost.manifest.values import parse_duration
from packhost.store.ops.history import RecordedCall

Command = TypeVar("Command", bound=Callable[..., Any])
_PAGE = 500


class _Ago(click.ParamType[float]):
    """A duration before now, as seconds since the epoch."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        try:
            return time.time() - parse_duration(value)
        except PydanticCustomError as error:
            said = (error.context or {}).get("message", "this is not a duration")
            self.fail(f"{said}: write `30d`, `12h` or `90m`", param, ctx)


def since_option(default: str) -> Callable[[Command], Command]:
    """`--since 30d`: how far back to look."""
    return click.option(
        "--since",
        type=_Ago(),
        default=default,
        show_default=True,
        metavar="DURATION",
        help="How far back to look: `30d`, `12h`.",
    )


def read_history(workspace: Path | None, since: float, run: str | None) -> list[RecordedCall]:
    """Every recorded call since a moment, first to last; raises `PackhostError`."""

    async def read(control: Control) -> list[RecordedCall]:
        found: list[RecordedCall] = []
        after: int | None = 0
        while after is not None:
            params = {"since": since, "after": after, "limit": _PAGE, **({"run": run} if run else {})}
            page = await control.request("calls.recorded", params)
            found += [RecordedCall(**call) for call in page["calls"]]
            after = page["next"]
        return found

    return with_control(workspace, read)
