"""Spans of time on the command line."""

from __future__ import annotations

from typing import Any

import click
from pydantic import TypeAdapter, ValidationError

from packhost.manifest.values import Duration

_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"))


def span(seconds: float) -> str:
    """A span of time in the largest unit that says it exactly: `30 days`, `90 minutes`, `1 second`."""
    for size, name in (*_UNITS, (1, "second")):
        count = seconds / size
        if count >= 1 and count == int(count):
            return f"{int(count)} {name}{'s' if count > 1 else ''}"
    return f"{seconds:g} seconds"


def left(seconds: float) -> str:
    """What is left of a time, in its two largest units: `9 minutes 58 seconds`, `2 hours`."""
    whole, said = max(0, round(seconds)), []
    for size, name in (*_UNITS, (1, "second")):
        count, whole = divmod(whole, size)
        if count:
            said.append(f"{count} {name}{'s' if count > 1 else ''}")
    return " ".join(said[:2]) or "0 seconds"


class DurationType(click.ParamType[float]):
    """Seconds, written `90s`, `30m`, `2h`, `30d`."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The seconds; fails with the right way to write it."""
        try:
            return float(TypeAdapter(Duration).validate_python(value))
        except ValidationError as error:
            self.fail(error.errors()[0]["msg"], param, ctx)
