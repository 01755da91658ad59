"""How a pack by path, or what its server says, differs from what was accepted, as a person reads it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import click

from packhost.gate.display import visible
from packhost.workspace.pinned import PINS_FILE

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
            if change["name"] == PINS_FILE:
                # told below, a definition at a time
                continue
            lines = list(_file(change))
            if len(lines) > left:
                yield f"  {change['change']}: {visible(change['name'])} (too much to show)"
                continue
            left -= len(lines)
            yield from lines


def definition_lines(found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What upstream servers say beyond what was accepted: doubts first, then each difference."""
    for one in found:
        left = MOST_LINES
        yield ""
        says = "now says" if one["live"] else "is accepted to say"
        title = f"The server of `{visible(one['pack'])}` {says}: {_counted(one['changes'])}"
        yield click.style(title, bold=True)
        for doubt in one["doubts"]:
            yield click.style(f"  ! {visible(doubt['key'])}: {visible(doubt['text'])}", fg="yellow")
        for change in one["changes"]:
            yield f"  {change['change']}: {visible(change['key'])}"
            shown = change["diff"][: max(left, 0)]
            left -= len(change["diff"])
            yield from (click.style(f"    {visible(line)}", fg=_COLOURS.get(line[:1])) for line in shown)
            if len(shown) < len(change["diff"]):
                yield f"    … {len(change['diff']) - len(shown)} more lines"
        if one["more"]:
            yield f"  … and {one['more']} more definitions"


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
