"""Raw lines of a stream to its events: server-sent events as the specification has them, read strictly.

A byte that is not UTF-8 stands in a line as Python's `surrogateescape` has it, from `\\udc80` to `\\udcff`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from packhost.trace.findings import Findings, shown
from packhost.trace.strict import BadInput, parse

DONE = "[DONE]"
_FIELDS = frozenset({"event", "data", "id", "retry"})


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """One event; `data` is a JSON object, or `None` for the marker `[DONE]`."""

    name: str
    data: dict[str, Any] | None
    path: str


@dataclass
class Lines:
    """Reads the lines of one stream; `size` counts the bytes read, a line's end as one."""

    lines: Sequence[str]
    path: str
    turn: int
    findings: Findings
    size: int = 0
    ended: bool = False
    """Set by who reads the events, at the terminal marker: what follows is not read, only found."""
    _name: str = ""
    _data: list[str] = field(default_factory=list)

    def events(self) -> Iterator[StreamEvent]:
        """The events, in order; stops behind the terminal marker."""
        spaced = any(not line.strip("\r\n") for line in self.lines)
        for place, text in enumerate(self.lines):
            path = f"{self.path}/{place}"
            line = text.rstrip("\r\n")
            self.size += self._bytes(line, path) + 1
            if self.ended:
                if line:
                    self._say("POST_TERMINAL_DATA", path, "something follows the terminal marker")
                    return
                continue
            if line:
                self._field(line, path)
            if not line or (not spaced and self._data):
                yield from self._event(path)
        if spaced and self._data and not self.ended:
            self._say("SSE_MALFORMED", self.path, "the last event was cut off")

    def _bytes(self, line: str, path: str) -> int:
        try:
            return len(line.encode("utf-8"))
        except UnicodeEncodeError:
            self._say("SSE_INVALID_UTF8", path, "the line holds bytes that are not UTF-8")
            return len(line.encode("utf-8", "surrogatepass"))

    def _field(self, line: str, path: str) -> None:
        name, colon, value = line.partition(":")
        value = value.removeprefix(" ")
        if not name and colon:
            return
        if name not in _FIELDS:
            self._say("SSE_MALFORMED", path, f"{shown(line[:80])} is no line of an event stream")
        elif name == "event":
            self._name = value
        elif name == "data":
            self._data.append(value)

    def _event(self, path: str) -> Iterator[StreamEvent]:
        name, data, self._name, self._data = self._name, "\n".join(self._data), "", []
        if data == DONE:
            yield StreamEvent(name, None, path)
        elif data:
            try:
                value = parse(data)
            except BadInput as bad:
                self._say("SSE_MALFORMED", path, f"the event's data is not strict JSON: {bad.detail}")
                return
            if isinstance(value, dict):
                yield StreamEvent(name, value, path)
            else:
                self._say("SSE_MALFORMED", path, "the event's data is no object")

    def _say(self, code: str, path: str, detail: str) -> None:
        self.findings.add(code, path, detail, turn=self.turn)


def size_of(value: Any) -> int:
    """Bytes of a value as compact JSON."""
    try:
        return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace"))
    except (RecursionError, TypeError, ValueError):
        return 0
