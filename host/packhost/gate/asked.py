"""A recorded question taken apart again, for pages that show its parts each in their own place.

What the question says of itself stands at the margin and what it quotes is behind a bar (`gate.prompt`),
so that no content can pass for a line of the question.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

SAID: Final = "Why the agent says it makes the call, its own words and no proof:"
PREVIEW: Final = "What it would do, as the tool tells it:"
_WHY: Final = "Why you are asked: "
_STANDS: Final = "It stands for: "
_LEVEL: Final = re.compile(r" at level ([a-z]+)(?:, in run (\S+?))?( of the subagent .*)?\.\Z")
_BAR: Final = "  | "


@dataclass(frozen=True, slots=True)
class Asked:
    """What a question tells besides its arguments; each part empty when it tells none."""

    headline: str = ""
    level: str = ""
    """The session's autonomy when it was asked."""
    subagent: str = ""
    reasons: tuple[str, ...] = ()
    """Why a person is asked, each with the place of its rule."""
    stands_for: tuple[str, ...] = ()
    """The named approvals that it is, each with its title."""
    said: str = ""
    """Why the model says that it makes the call."""
    preview: str = ""
    """What the call would do, as its tool tells it."""


def read(prompt: str) -> Asked:
    """The parts of a question that `gate.prompt.Question.text` wrote."""
    lines = prompt.split("\n")
    level, subagent = _asker(lines)
    return Asked(
        headline=lines[0],
        level=level,
        subagent=subagent,
        reasons=tuple(line.removeprefix(_WHY) for line in lines if line.startswith(_WHY)),
        stands_for=tuple(line.removeprefix(_STANDS) for line in lines if line.startswith(_STANDS)),
        said=_quoted(lines, SAID),
        preview=_quoted(lines, PREVIEW),
    )


def _asker(lines: list[str]) -> tuple[str, str]:
    for line in lines:
        found = _LEVEL.search(line) if line.startswith("Asked by a client ") else None
        if found is not None:
            return found[1], (found[3] or "").removeprefix(" of the subagent ")
    return "", ""


def _quoted(lines: list[str], title: str) -> str:
    """The lines behind bars below a title."""
    if title not in lines:
        return ""
    found = []
    for line in lines[lines.index(title) + 1 :]:
        if not line.startswith(_BAR):
            break
        found.append(line.removeprefix(_BAR))
    return "\n".join(found)
