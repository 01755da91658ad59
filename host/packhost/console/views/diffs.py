"""What a call would do, as its tool tells it: a diff line by line, or words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

from packhost.console.views.texts import plural
from packhost.gate.display import visible

Kind = Literal["add", "del", "same", "hunk", "file", "note"]
CUT: Final = 80
"""Lines of a diff that a page shows before it links to the whole."""
_NO_NEWLINE: Final = "\\ "


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a diff; `text` without the sign that `kind` stands for."""

    kind: Kind
    text: str


@dataclass(frozen=True, slots=True)
class Preview:
    """What a call would do: a diff's `lines`, else `words`; `left` is how many lines are not shown."""

    lines: tuple[Line, ...] = ()
    words: str = ""
    summary: str = ""
    left: int = 0

    def __bool__(self) -> bool:
        """Whether there is anything to show."""
        return bool(self.lines or self.words)


def preview_of(text: str, limit: int | None = CUT) -> Preview:
    """A preview for a page, of at most `limit` lines; `None` for all of them."""
    if not text:
        return Preview()
    rows = visible(text).split("\n")
    if not _is_diff(rows):
        kept = rows if limit is None else rows[:limit]
        return Preview(words="\n".join(kept), left=len(rows) - len(kept))
    lines = tuple(_lines(rows))
    kept_lines = lines if limit is None else lines[:limit]
    return Preview(kept_lines, summary=_summary(lines), left=len(lines) - len(kept_lines))


def _is_diff(rows: list[str]) -> bool:
    return any(first.startswith("--- ") and second.startswith("+++ ") for first, second in pairwise(rows))


def _lines(rows: list[str]) -> Iterator[Line]:
    inside = False
    for row in rows:
        if row.startswith("@@"):
            inside = True
            yield Line("hunk", row)
        elif not inside:
            yield Line("file" if row.startswith(("--- ", "+++ ")) else "note", row)
        elif row.startswith("+"):
            yield Line("add", row[1:])
        elif row.startswith("-"):
            yield Line("del", row[1:])
        elif row.startswith(" "):
            yield Line("same", row[1:])
        else:  # no line of a file: a note of the diff's, or where a prompt left lines out
            yield Line("note", row.removeprefix(_NO_NEWLINE))


def _summary(lines: tuple[Line, ...]) -> str:
    added = sum(line.kind == "add" for line in lines)
    removed = sum(line.kind == "del" for line in lines)
    return f"{plural(added, 'line')} added, {plural(removed, 'line')} removed"
