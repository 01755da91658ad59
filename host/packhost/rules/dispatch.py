"""Finding, among many conditional rules, the few that a call's arguments may concern.

A rule is filed under one of its conditions: an exact text or number under that value, a glob under its
first segment where that is plain. A call then meets only what is filed under its own values, and the
rules that cannot be filed. What is left out is sure not to be met; what is found is still to be asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from packhost.rules.arguments import ABSENT, ArgumentMatch, Unanswerable, as_path, read


class _Shelf:
    """The rules filed under one argument, by their numbers."""

    __slots__ = ("all_globs", "exact", "heads", "keys", "path")

    def __init__(self, condition: ArgumentMatch) -> None:
        self.path = condition.path
        self.keys = condition.keys
        self.exact: dict[object, list[int]] = {}
        self.heads: dict[str, list[int]] = {}
        self.all_globs: list[int] = []

    def file(self, number: int, condition: ArgumentMatch) -> None:
        if condition.test == "exact":
            self.exact.setdefault(condition.exact, []).append(number)
        else:
            self.heads.setdefault(_head(condition), []).append(number)
            self.all_globs.append(number)

    def find(self, arguments: Mapping[str, object]) -> Iterator[int]:
        try:
            value = read(self.keys, arguments)
        except Unanswerable:
            yield from self.all_globs
            for numbers in self.exact.values():
                yield from numbers
            return
        if value is ABSENT:
            return
        if isinstance(value, str | int | float):
            yield from self.exact.get(value, ())
        if self.all_globs:
            try:
                head = as_path(self.path, value).partition("/")[0]
            except Unanswerable:
                yield from self.all_globs
            else:
                yield from self.heads.get(head, ())


class Dispatch:
    """Conditions of rules, filed; the rules are known by their places in `conditions`."""

    __slots__ = ("_always", "_shelves")

    def __init__(self, conditions: Sequence[Sequence[ArgumentMatch]]) -> None:
        self._always: list[int] = []
        self._shelves: dict[str, _Shelf] = {}
        for number, several in enumerate(conditions):
            condition = next(filter(_fileable, several), None)
            if condition is None:
                self._always.append(number)
            else:
                self._shelves.setdefault(condition.path, _Shelf(condition)).file(number, condition)

    def candidates(self, arguments: Mapping[str, object]) -> list[int]:
        """The rules whose conditions may be met or may not be askable, in order."""
        found = list(self._always)
        for shelf in self._shelves.values():
            found.extend(shelf.find(arguments))
        found.sort()
        return found


def _fileable(condition: ArgumentMatch) -> bool:
    if condition.test == "exact":
        return isinstance(condition.exact, str | int | float)
    return condition.test == "glob" and "*" not in _head(condition)


def _head(condition: ArgumentMatch) -> str:
    return condition.glob.partition("/")[0]
