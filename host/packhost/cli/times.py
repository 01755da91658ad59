"""Spans of time on the command line."""

from __future__ import annotations

from typing import Any

import click
from pydantic import TypeAdapter, ValidationError

from packhost.manifest.values import Duration


class DurationType(click.ParamType[float]):
    """Seconds, written `90s`, `30m`, `2h`, `30d`."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The seconds; fails with the right way to write it."""
        try:
            return float(TypeAdapter(Duration).validate_python(value))
        except ValidationError as error:
            self.fail(error.errors()[0]["msg"], param, ctx)
