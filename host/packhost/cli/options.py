"""Options that many commands take."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])
GROUP_EPILOG = "The help of each of these commands has examples."


def _workspace(ctx: click.Context, _: click.Parameter, given: Path | None) -> Path | None:
    return given if given is not None else ctx.obj


workspace_option = click.option(
    "-w",
    "--workspace",
    type=click.Path(path_type=Path),
    metavar="DIR",
    callback=_workspace,
    help="The workspace; left out, the nearest folder upward with packhost.yaml, else this one.",
)
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document, errors too, for programs."
)


def examples(*lines: str) -> str:
    """An epilogue of examples that click leaves as it stands."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)
