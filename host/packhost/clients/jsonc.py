"""Clients' JSON files, comments and trailing commas included, changed where they must and nowhere else."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Final

from packhost.errors import ConfigInvalid, Place

_BLANK: Final = re.compile(r"(?:[ \t\r\n]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING: Final = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_PLAIN: Final = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null")
_DEEPEST: Final = 200

Path = tuple[str, ...]


@dataclass(slots=True)
class Node:
    """A value and where it stands in the text; an object has its members in order, a list its entries."""

    start: int
    end: int
    value: Any
    members: list[Member] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Member:
    """A member of an object; `start` is that of its key."""

    start: int
    key: str
    node: Node


class Json:
    """A JSON text under change; `text` is it as changed so far, `data` what it holds.

    Raises `ConfigInvalid` with a place for what is no JSON even with comments; `name` is the file's.
    """

    def __init__(self, text: str, name: str) -> None:
        self._name = name
        self.text = text
        self._root = self._read()

    @property
    def data(self) -> Any:
        """The value; of members with one name the last counts, as for every client."""
        return self._root.value

    def get(self, path: Path) -> Any:
        """The value at a path of members; `None` when there is none."""
        node = self._find(path)
        return None if node is None else node.value

    def source(self, path: Path) -> str | None:
        """The text of the value at a path."""
        node = self._find(path)
        return None if node is None else self.text[node.start : node.end]

    def twice(self, path: Path) -> list[str]:
        """Keys that stand more than once in the object at a path."""
        node = self._find(path)
        keys = [member.key for member in node.members] if node else []
        return sorted({key for key in keys if keys.count(key) > 1})

    def put(self, path: Path, value: Any) -> None:
        """Make the value at a path this one; objects on the way are made where they are missing.

        Raises `ConfigInvalid` where something else than an object is on the way.
        """
        node, depth = self._root, 0
        while depth < len(path) and (inner := _member(node, path[depth])) is not None:
            node, depth = inner.node, depth + 1
        if depth == len(path):
            self._splice(node.start, node.end, self._written(value, depth))
            return
        if not isinstance(node.value, dict):
            where = ".".join(path[:depth]) or "the file"
            raise ConfigInvalid(f"`{where}` holds no object", place=self._place(node.start))
        for key in reversed(path[depth + 1 :]):
            value = {key: value}
        self._insert(node, depth, path[depth], value)

    def put_source(self, path: Path, text: str) -> None:
        """Make the text of the value at a path this one; nothing happens when there is none."""
        node = self._find(path)
        if node is not None:
            self._splice(node.start, node.end, text)

    def drop(self, path: Path) -> None:
        """Take the member at a path out, with its comma; nothing happens when there is none."""
        outer = self._find(path[:-1])
        found = _member(outer, path[-1]) if outer is not None else None
        if outer is None or found is None:
            return
        index = outer.members.index(found)
        end = self._past_comma(found.node.end)
        if index + 1 < len(outer.members):
            self._splice(found.start, outer.members[index + 1].start, "")
        elif index:
            self._splice(outer.members[index - 1].node.end, found.node.end, "")
        else:
            self._splice(outer.start + 1, max(end, found.node.end), "")

    # --- text --------------------------------------------------------------------------------------

    def _insert(self, node: Node, depth: int, key: str, value: Any) -> None:
        name = json.dumps(key, ensure_ascii=False)
        inside = self.text[node.start + 1 : node.end - 1]
        if node.members and "\n" not in inside:
            end = node.members[-1].node.end
            self._splice(end, end, f", {name}: {json.dumps(value, ensure_ascii=False)}")
            return
        written = f"{name}: {self._written(value, depth + 1)}"
        line = f"{self._newline}{self._unit * (depth + 1)}{written}"
        if not node.members:
            kept = inside.rstrip()
            tail = f"{kept}{line}{self._newline}{self._unit * depth}"
            self._splice(node.start + 1, node.end - 1, tail)
            return
        end = node.members[-1].node.end
        after = self._past_comma(end)
        self._splice(after or end, after or end, line if after else f",{line}")

    def _past_comma(self, end: int) -> int:
        """Where the comma after a value ends; 0 when there is none."""
        at = _BLANK.match(self.text, end)
        place = at.end() if at else end
        return place + 1 if self.text[place : place + 1] == "," else 0

    @property
    def _newline(self) -> str:
        return "\r\n" if "\r\n" in self.text else "\n"

    @property
    def _unit(self) -> str:
        found = re.search(r"\{[ \t]*\r?\n([ \t]+)\S", self.text)
        return found[1] if found else "  "

    def _written(self, value: Any, depth: int) -> str:
        lines = json.dumps(value, ensure_ascii=False, indent=self._unit).split("\n")
        return f"{self._newline}{self._unit * depth}".join(lines)

    def _splice(self, start: int, end: int, new: str) -> None:
        self.text = self.text[:start] + new + self.text[end:]
        self._root = self._read()

    # --- reading -----------------------------------------------------------------------------------

    def _find(self, path: Path) -> Node | None:
        node: Node | None = self._root
        for key in path:
            found = _member(node, key) if node is not None else None
            node = found.node if found else None
        return node

    def _read(self) -> Node:
        node, end = self._value(self._skip(0), 0)
        if self._skip(end) != len(self.text):
            raise self._wrong(self._skip(end), "something follows the value")
        return node

    def _skip(self, at: int) -> int:
        found = _BLANK.match(self.text, at)
        return found.end() if found else at

    def _value(self, at: int, depth: int) -> tuple[Node, int]:
        if depth > _DEEPEST:
            raise self._wrong(at, "it is nested too deeply")
        match self.text[at : at + 1]:
            case "{":
                return self._object(at, depth)
            case "[":
                return self._list(at, depth)
            case '"':
                text, end = self._string(at)
                return Node(at, end, text), end
        found = _PLAIN.match(self.text, at)
        if found is None:
            raise self._wrong(at, "a value is missing")
        return Node(at, found.end(), json.loads(found[0])), found.end()

    def _string(self, at: int) -> tuple[str, int]:
        found = _STRING.match(self.text, at)
        try:
            return json.loads(found[0] if found else ""), found.end() if found else at
        except ValueError:
            raise self._wrong(at, "a text in double quotes is expected") from None

    def _object(self, start: int, depth: int) -> tuple[Node, int]:
        node, at = Node(start, start, {}), self._skip(start + 1)
        while self.text[at : at + 1] != "}":
            key, end = self._string(at)
            colon = self._skip(end)
            if self.text[colon : colon + 1] != ":":
                raise self._wrong(colon, "a `:` is missing")
            inner, end = self._value(self._skip(colon + 1), depth + 1)
            node.members.append(Member(at, key, inner))
            node.value[key] = inner.value
            at = self._next(end, "}")
        node.end = at + 1
        return node, at + 1

    def _list(self, start: int, depth: int) -> tuple[Node, int]:
        node, at = Node(start, start, []), self._skip(start + 1)
        while self.text[at : at + 1] != "]":
            inner, end = self._value(at, depth + 1)
            node.value.append(inner.value)
            at = self._next(end, "]")
        node.end = at + 1
        return node, at + 1

    def _next(self, end: int, close: str) -> int:
        at = self._skip(end)
        if self.text[at : at + 1] == ",":
            return self._skip(at + 1)
        if self.text[at : at + 1] != close:
            raise self._wrong(at, f"a `,` or `{close}` is missing")
        return at

    def _wrong(self, at: int, what: str) -> ConfigInvalid:
        return ConfigInvalid(
            f"this is not JSON: {what}", hint="correct the file, or name another", place=self._place(at)
        )

    def _place(self, at: int) -> Place:
        before = self.text[:at]
        return Place(self._name, before.count("\n") + 1, at - (before.rfind("\n") + 1) + 1)


def _member(node: Node | None, key: str) -> Member | None:
    members = [one for one in node.members if one.key == key] if node is not None else []
    return members[-1] if members else None
