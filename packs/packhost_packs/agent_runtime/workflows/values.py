"""What a workflow's texts and conditions refer to: `input`, and the results of earlier nodes.

A reference is a dotted path: `input`, `NODE.text`, `NODE.outcome`, `NODE.status`, or `NODE.json.…`
into a text that is JSON. What it finds is data: it is put into a text, compared, never obeyed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import packhost_packs.agent_runtime.strict_json as strict_json
from packhost_packs.agent_runtime.faults import TurnFault

INPUT = "input"
MEMBERS = ("text", "outcome", "status", "json")
Test = Literal["equals", "contains", "exists"]
TESTS: tuple[Test, ...] = ("equals", "contains", "exists")

_REFERENCE = re.compile(r"\{\{([^{}]*)\}\}")


def texts_in(template: Any) -> Iterator[str]:
    """Every text of a JSON template."""
    if isinstance(template, str):
        yield template
    elif isinstance(template, Mapping):
        for value in template.values():
            yield from texts_in(value)
    elif isinstance(template, list):
        for value in template:
            yield from texts_in(value)


class Missing:
    """What a path finds that leads nowhere."""


MISSING = Missing()


def references(template: str) -> list[str]:
    """The paths that a text refers to as `{{path}}`, in order."""
    return [path.strip() for path in _REFERENCE.findall(template)]


def render(template: str, values: Mapping[str, Any]) -> str:
    """The text with each reference replaced by what it finds: a string as it is, other data as JSON."""

    def found(match: re.Match[str]) -> str:
        value = look_up(match[1].strip(), values)
        if isinstance(value, Missing):
            return ""
        return value if isinstance(value, str) else strict_json.dumps(value).decode()

    return _REFERENCE.sub(found, template)


def look_up(path: str, values: Mapping[str, Any]) -> Any:
    """What a path finds, or `MISSING`; a number in it counts a list's entries from 0."""
    value: Any = values
    for step in path.split("."):
        if isinstance(value, Mapping) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isascii() and step.isdigit() and int(step) < len(value):
            value = value[int(step)]
        else:
            return MISSING
        if callable(value):
            value = value()
    return value


def result_values(status: str, outcome: str | None, text: str, value: Any = MISSING) -> dict[str, Any]:
    """What can be referred to of one node; a reply's text is read as JSON only when that is asked for."""
    read = _as_json(text) if value is MISSING else (lambda: value)
    return {"status": status, "outcome": outcome, "text": text, "json": read}


def _as_json(text: str) -> Callable[[], Any]:
    def read() -> Any:
        try:
            return strict_json.loads(text.encode("utf-8", "surrogatepass"), "the text")
        except TurnFault:
            return MISSING

    return read


@dataclass(frozen=True, slots=True)
class Condition:
    """One test of what a path finds."""

    path: str
    test: Test
    value: Any

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Whether it does; what is not there equals and contains nothing."""
        found = look_up(self.path, values)
        missing = isinstance(found, Missing)
        if self.test == "exists":
            return missing is not self.value
        if missing:
            return False
        if self.test == "equals":
            return strict_json.same(found, self.value)
        if isinstance(found, str):
            return isinstance(self.value, str) and self.value in found
        return isinstance(found, list) and any(strict_json.same(one, self.value) for one in found)
