"""Reasoning that a Chat Completions provider sends along: merged as it was cut, kept to be sent back.

`reasoning_details` come as fragments. Those of one index and type are one entry, also when the
signature comes in a fragment without text; `text`, `summary` and `data` are joined, anything else
stands once. Entries are ordered by index, those without one as they came.
"""

from __future__ import annotations

from typing import Any

from packhost_packs.agent_runtime.faults import TurnFault

PLAIN = ("reasoning_content", "reasoning")
"""Members that hold reasoning as one string."""
DETAILS = "reasoning_details"
EXTRA = "extra_content"
"""Holds another maker's state, such as `google.thought_signature`, on a message or on a call."""

_JOINED = frozenset({"text", "summary", "data"})


class Details:
    """Merges the fragments of `reasoning_details`."""

    def __init__(self) -> None:
        self._entries: list[dict[str, Any]] = []
        self._parts: list[dict[str, list[str]]] = []
        self._latest: dict[tuple[int, str] | tuple[int, str, str], int] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, fragments: object) -> None:
        """Take in one delta's fragments; raises `TurnFault` for what cannot be merged."""
        if not isinstance(fragments, list):
            raise _unmerged("the reasoning details are not a list")
        for fragment in fragments:
            if not isinstance(fragment, dict) or not isinstance(fragment.get("type"), str):
                raise _unmerged("a reasoning detail has no type")
            self._merge(self._place(fragment), fragment)

    def merged(self) -> list[dict[str, Any]]:
        """The whole entries, in order."""
        whole = []
        for entry, parts in zip(self._entries, self._parts, strict=True):
            whole.append({**entry, **{name: "".join(pieces) for name, pieces in parts.items()}})
        if all(type(entry.get("index")) is int for entry in whole):
            whole.sort(key=lambda entry: entry["index"])
        return whole

    def _place(self, fragment: dict[str, Any]) -> int:
        """The entry that a fragment belongs to; a new one when there is none."""
        index, kind, identity = fragment.get("index"), fragment["type"], fragment.get("id")
        if type(index) is not int:
            last = len(self._entries) - 1  # without an index only a neighbour can be meant
            if last >= 0 and self._continues(self._entries[last], fragment):
                return last
            return self._new()
        by_id, latest = (index, kind, str(identity)), (index, kind)
        if identity is None:
            number = self._latest.get(latest)
        else:
            number = self._latest.get(by_id)
            if number is None and (there := self._latest.get(latest)) is not None:
                number = there if self._entries[there].get("id") is None else None
        if number is None:
            number = self._new()
        if identity is not None:
            self._latest[by_id] = number
        self._latest[latest] = number
        return number

    @staticmethod
    def _continues(entry: dict[str, Any], fragment: dict[str, Any]) -> bool:
        same_id = None in (entry.get("id"), fragment.get("id")) or entry["id"] == fragment["id"]
        ended = entry.get("signature") and fragment.get("text")  # a signature ends its text
        return entry["type"] == fragment["type"] and "index" not in entry and same_id and not ended

    def _new(self) -> int:
        self._entries.append({})
        self._parts.append({})
        return len(self._entries) - 1

    def _merge(self, number: int, fragment: dict[str, Any]) -> None:
        entry, parts = self._entries[number], self._parts[number]
        for name, value in fragment.items():
            if name in _JOINED and isinstance(value, str):
                entry.setdefault(name, "")
                parts.setdefault(name, []).append(value)
            elif entry.get(name) is None:
                entry[name] = value
            elif value is not None and value != entry[name]:
                if name == "signature":
                    message = "two signatures are given for one piece of reasoning"
                    raise TurnFault("protocol_error", "SIGNATURE_LOST", message)
                raise _unmerged(f"a reasoning detail has two values of `{name[:80]}`")


def _unmerged(message: str) -> TurnFault:
    return TurnFault("protocol_error", "REASONING_UNMERGED", message)
