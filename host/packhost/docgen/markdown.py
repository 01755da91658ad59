"""Text as Markdown shows it verbatim."""

from __future__ import annotations

import re


def code(text: str) -> str:
    """Text as a code span, whatever backticks it holds itself."""
    runs = [len(run) for run in re.findall("`+", text)]
    fence = "`" * (max(runs, default=0) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def in_cell(text: str) -> str:
    """Markdown that fits one cell of a table: on one line, with no bar that would end the cell."""
    return " ".join(text.split()).replace("|", "\\|")
