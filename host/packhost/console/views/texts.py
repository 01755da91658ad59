"""How the console's pages write times, spans and what comes from elsewhere.

Whatever an agent, a tool or a client wrote goes through `shown` or `Value`, which leave nothing in it that
hides or reorders; the templates escape it as well.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from packhost.gate.display import REDACTED, label, lookalikes, shorten, visible

_UNITS: Final = ((86_400, "day"), (3_600, "hour"), (60, "minute"))
_SHORT: Final = 300
"""Characters up to which a value stands on one line."""
_NAMED: Final = 6
CUT: Final = 4_000
CUT_LINES: Final = 60
"""How much of one value a page shows before it links to the whole."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A time in the three forms that a page needs: for programs, exact, and as people say it."""

    iso: str
    exact: str
    said: str


def moment(at: float | None, now: float) -> Moment | None:
    """A time; `None` for none."""
    if at is None:
        return None
    parts = time.gmtime(at)
    return Moment(
        time.strftime("%Y-%m-%dT%H:%M:%SZ", parts),
        time.strftime("%Y-%m-%d %H:%M:%S UTC", parts),
        said(at - now),
    )


def said(seconds: float) -> str:
    """How long ago or from now: `just now`, `3 minutes ago`, `in 2 hours`."""
    size = abs(seconds)
    if size < 5:
        return "just now"
    return f"in {about(size)}" if seconds > 0 else f"{about(size)} ago"


def about(seconds: float) -> str:
    """A span in its largest unit, rounded: `40 seconds`, `3 minutes`, `5 days`."""
    for size, name in _UNITS:
        # a unit is used from twice its size on, so that rounding stays below half of what is said
        if seconds >= 2 * size or (seconds >= size and name == "minute"):
            return plural(round(seconds / size), name)
    return plural(max(0, round(seconds)), "second")


def plural(count: int, noun: str) -> str:
    """`1 call`, `2 calls`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def shown(text: object) -> str:
    """A text from elsewhere, with every character visible that could hide or reorder something."""
    return visible(text if isinstance(text, str) else json.dumps(text, ensure_ascii=False))


def short(text: object, limit: int = 100) -> str:
    """The same on one line, cut."""
    return label(text if isinstance(text, str) else json.dumps(text, ensure_ascii=False), limit)


@dataclass(frozen=True, slots=True)
class Value:
    """A named value of a call; `block` when it is shown as lines below its name."""

    name: str
    text: str
    block: bool
    size: str = ""
    notes: tuple[str, ...] = ()
    cut: bool = False
    redacted: bool = False
    is_path: bool = False


def values(
    arguments: Mapping[str, Any], paths: Collection[str] = (), *, whole: bool = False
) -> tuple[Value, ...]:
    """Arguments as a person reads them: texts as they are, everything else as JSON."""
    return tuple(value(name, given, name in paths, whole=whole) for name, given in arguments.items())


def value(name: str, given: Any, is_path: bool = False, *, whole: bool = False) -> Value:
    """One value; with `whole` never cut."""
    if given == REDACTED:
        return Value(shown(name), "hidden", block=False, redacted=True, is_path=is_path)
    text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False, indent=2)
    line = len(text) <= _SHORT and "\n" not in text
    if isinstance(given, str) and line:
        kept = json.dumps(text, ensure_ascii=False)
    elif whole:
        kept = text
    else:
        kept = shorten(text, CUT, CUT_LINES)
    many = text.count("\n") + (not text.endswith("\n"))
    return Value(
        name=shown(name),
        text=visible(kept),
        block=not line,
        size="" if line else f"{plural(many, 'line')}, {plural(len(text), 'character')}",
        notes=_notes(name, text, short_text=line or is_path),
        cut=not line and kept != text,
        is_path=is_path,
    )


def _notes(name: str, text: str, *, short_text: bool) -> tuple[str, ...]:
    found = [*lookalikes(name, short=True), *lookalikes(text[:100_000], short=short_text)]
    more = len(found) - _NAMED
    return (*found[:_NAMED], f"and {more} more such letters") if more > 0 else tuple(found)
