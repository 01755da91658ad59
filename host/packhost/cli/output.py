"""What commands print: one JSON document for programs, tables for people."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from packhost.gate.display import visible

_WIDE = 200
"""Columns where nobody looks: piped output is not wrapped to a screen that is not there."""


def print_json(value: Any) -> None:
    """One document, on stdout."""
    click.echo(json.dumps(value, ensure_ascii=False, indent=2))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str) -> None:
    """A table, or the sentence `empty` when there are no rows."""
    made = [[Text(visible(str(cell))) for cell in row] for row in rows]
    if not made:
        click.echo(empty)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, column in enumerate(columns):
        # What is pasted into the next command stands in the first column and stays whole.
        table.add_column(column, overflow="fold", no_wrap=index == 0)
    for row in made:
        table.add_row(*row)
    # Made anew each time: what stdout is may have changed, and rich remembers it.
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else _WIDE, highlight=False)
    with console.capture() as shown:
        console.print(table)
    click.echo("\n".join(line.rstrip() for line in shown.get().splitlines()))


def print_facts(facts: Iterable[tuple[str, object]]) -> None:
    """A line a fact, the names in one column; a fact that is `None` or empty is left out."""
    shown = [(name, visible(str(value))) for name, value in facts if value not in (None, "", [])]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        head, *rest = value.split("\n")
        click.echo(f"{click.style(name.ljust(width), bold=True)}  {head}")
        for line in rest:
            click.echo(f"{' ' * width}  {line}")


def pretty(value: Any) -> str:
    """A value for people: text as it is, anything else as indented JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)


def moment(seconds: float | None) -> str:
    """A time in the local zone; empty for none."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds)) if seconds is not None else ""
