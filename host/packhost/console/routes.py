"""Which page or action an address means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar
from urllib.parse import unquote

Target = TypeVar("Target")


@dataclass(frozen=True, slots=True)
class Found(Generic[Target]):
    """What an address means, with the parts of it that stand in braces."""

    target: Target
    path: dict[str, str]


class Routes(Generic[Target]):
    """Addresses such as `/runs/{id}`; a part in braces is one segment of any text."""

    def __init__(self, targets: Sequence[tuple[str, Target]]) -> None:
        self._targets = [(self._parts(path), target) for path, target in targets]
        shapes = [
            tuple("{}" if part.startswith("{") else part for part in parts) for parts, _ in self._targets
        ]
        assert len(set(shapes)) == len(shapes), "two targets have one address"

    def find(self, raw: str) -> Found[Target] | None:
        """What a path, percent-encoded as it came, means; the one with the fewest braces first."""
        given = [unquote(part) for part in self._parts(raw)]
        best: Found[Target] | None = None
        for parts, target in self._targets:
            if len(parts) != len(given):
                continue
            taken = {
                part[1:-1]: text for part, text in zip(parts, given, strict=True) if part.startswith("{")
            }
            if all(
                part.startswith("{") or part == text for part, text in zip(parts, given, strict=True)
            ) and (best is None or len(taken) < len(best.path)):
                best = Found(target, taken)
        return best

    @staticmethod
    def _parts(path: str) -> list[str]:
        return path.strip("/").split("/")
