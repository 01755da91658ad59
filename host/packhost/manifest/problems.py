"""One thing that is wrong with a file, and an error that carries several of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from packhost.errors import Code, PackhostError, Place


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong, where, and what to do; `path` is dotted (`tools.0.kind`), empty for the whole file."""

    code: Code
    message: str
    hint: str = ""
    place: Place | None = None
    pack: str = ""
    path: str = ""

    def __str__(self) -> str:
        said = f"{self.place}: {self.message}" if self.place else self.message
        return f"{said} ({self.hint})" if self.hint else said


def problem_of(error: PackhostError, pack: str = "") -> Problem:
    """The same failure as a value, for a report that goes on after it."""
    return Problem(error.code, error.message, error.hint, error.place, pack, str(error.data.get("path", "")))


def problems_of(error: PackhostError, pack: str = "") -> tuple[Problem, ...]:
    """Every problem that an error carries; itself alone when it carries none."""
    found: tuple[Problem, ...] = tuple(error.data.get("problems", ()))
    return found or (problem_of(error, pack),)


def error_of(kind: type[PackhostError], problems: Sequence[Problem]) -> PackhostError:
    """An error that speaks of the first problem, counts the others and carries all in `data["problems"]`."""
    ordered = sorted(problems, key=lambda p: (p.place.line, p.place.column) if p.place else (0, 0))
    first, others = ordered[0], len(ordered) - 1
    more = f" (and {others} more)" if others else ""
    return kind(
        first.message + more,
        hint=first.hint,
        place=first.place,
        path=first.path,
        problems=tuple(ordered),
    )
