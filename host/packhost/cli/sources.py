"""How a pack by path differs from what was accepted, as a person reads it before accepting."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import click

from packhost.gate.display import visible

MOST_LINES: Final = 1_500
"""Lines of all diffs together; what is left out is counted and named."""
_COLOURS: Final = {"+": "green", "-": "red", "@": "cyan"}


def source_lines(sources: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    """Every change of every pack, a diff a file; control characters made visible."""
    left = MOST_LINES
    for path, changes in sources.items():
        yield ""
        yield click.style(f"The pack in `{visible(path)}`: {_counted(changes)}", bold=True)
        for change in changes:
            lines = list(_file(change))
            if len(lines) > left:
                yield f"  {change['change']}: {visible(change['name'])} (too much to show)"
                continue
            left -= len(lines)
            yield from lines


def _counted(changes: Sequence[Mapping[str, Any]]) -> str:
    counts = {
        word: sum(change["change"] == word for change in changes) for word in ("new", "changed", "gone")
    }
    return ", ".join(f"{count} {word}" for word, count in counts.items() if count) or "no file differs"


def _file(change: Mapping[str, Any]) -> Iterator[str]:
    if change["binary"]:
        yield f"  {change['change']}: {visible(change['name'])} (binary, {change['size']} bytes)"
        return
    if not change["diff"]:
        yield f"  {change['change']}: {visible(change['name'])} (empty)"
    for number, line in enumerate(change["diff"]):
        shown = visible(line)
        yield shown if number < 2 else click.style(shown, fg=_COLOURS.get(line[:1]))
    if change["left_out"]:
        yield f"… {change['left_out']} more lines of {visible(change['name'])}"


def coloured() -> bool:
    """Whether a terminal may be written to in colours."""
    return not os.environ.get("NO_COLOR")
