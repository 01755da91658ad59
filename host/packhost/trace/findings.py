"""Issues, and the list that the checks add them to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from packhost.trace.codes import CODES, Severity

MAX_ISSUES = 1_000
"""Issues that a report lists; further ones are counted and not kept."""
_SHOWN = 200
_BITS = 512


@dataclass(frozen=True, slots=True)
class Issue:
    """One thing that a trace breaks.

    `turn` counts the replies from 1, 0 stands before the first; `block_index` counts a reply's blocks
    or calls from 0; `path` is a JSON pointer into the trace.
    """

    code: str
    severity: Severity
    turn: int
    block_index: int | None
    tool_use_id: str | None
    path: str
    detail: str

    def as_json(self) -> dict[str, Any]:
        """The issue as a report shows it; `tool_use_id` is left out where there is none."""
        named = {} if self.tool_use_id is None else {"tool_use_id": self.tool_use_id}
        return {
            "code": self.code,
            "severity": self.severity,
            "turn": self.turn,
            "block_index": self.block_index,
            **named,
            "path": self.path,
            "detail": self.detail,
        }


class Findings:
    """Collects issues up to a bound, and counts all of them by severity."""

    def __init__(self) -> None:
        self.issues: list[Issue] = []
        self.counts: dict[Severity, int] = {"error": 0, "warning": 0, "gap": 0}

    def add(
        self,
        code: str,
        path: str,
        detail: str,
        *,
        turn: int = 0,
        block: int | None = None,
        id: object = None,
        severity: Severity | None = None,
    ) -> None:
        """Note an issue; its severity is the code's own unless another is given."""
        grave = severity or CODES[code].severity
        self.counts[grave] += 1
        if len(self.issues) < MAX_ISSUES:
            named = shown(id) if isinstance(id, str) else None
            self.issues.append(Issue(code, grave, turn, block, named, path, detail))


def shown(value: object) -> str:
    """A value of the trace as a message may quote it: one printable line, shortened; or its kind."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    if isinstance(value, int) and value.bit_length() > _BITS:
        return "a number of many digits"
    text = value if isinstance(value, str) else repr(value)
    line = "".join(c if c.isprintable() else " " for c in text[: _SHOWN + 1])
    return f"{line[:_SHOWN]}…" if len(line) > _SHOWN else line
