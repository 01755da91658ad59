"""Templates: everything that is put into one is escaped, and nothing in it can hide or reorder the page."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from packhost.characters import visible

_TEMPLATES: Final = Path(__file__).parent / "templates"


def environment() -> Environment:
    """What renders every page: a name that is not there is an error, every text is escaped and visible."""
    made = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_plain,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(moment=moment, span=span, pretty=pretty, count=count, ucfirst=ucfirst)
    return made


def _plain(value: Any) -> Any:
    """What an expression puts into a page; text without its hidden characters."""
    if value is None:
        return ""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def moment(seconds: float | None) -> Markup:
    """A time of the record; the script shows it in the reader's own zone."""
    if seconds is None:
        return Markup("&ndash;")
    at = datetime.fromtimestamp(seconds, UTC)
    shown = f"{at:%Y-%m-%d %H:%M:%S} UTC"
    return Markup('<time datetime="{}">{}</time>').format(at.isoformat(timespec="seconds"), shown)


def span(seconds: float | None) -> str:
    """A length of time in its largest fitting unit."""
    if seconds is None:
        return "-"
    left = max(float(seconds), 0.0)
    for unit, size in (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0)):
        if left >= 2 * size or (unit == "min" and left >= size):
            return f"{left / size:.0f} {unit}"
    return f"{left:.0f} s"


def pretty(value: Any) -> Markup:
    """JSON over several lines, in a block that scrolls."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    return Markup('<pre class="data" tabindex="0">{}</pre>').format(escape(visible(text)))


def ucfirst(text: str) -> str:
    """The text as a sentence begins; the rest of it as it is."""
    return text[:1].upper() + text[1:]


def count(number: int, one: str, many: str) -> str:
    """A number with its word: `1 run`, `3 runs`."""
    return f"{number} {one if number == 1 else many}"
