"""Changing `packhost.yaml` as a person would: the lines that differ, and no others.

Comments and the order of keys stay. A list that is written in brackets is rewritten a line an entry when
something in it changes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from packhost.errors import ConfigInvalid
from packhost.manifest.yaml import Document, read_yaml
from packhost.workspace.root import CONFIG_FILE

_PLAIN = re.compile(r"[A-Za-z./][A-Za-z0-9 ._/*@+-]*\Z")
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})


class Rewriter:
    """One file under change; `text` is it as changed so far. Raises `ConfigInvalid` for a broken file."""

    def __init__(self, text: str) -> None:
        self.text = text if text.strip() else "packhost: 1\n"
        self._document: Document = self._read()

    def _read(self) -> Document:
        document = read_yaml(self.text.encode(), CONFIG_FILE, error=ConfigInvalid)
        if not isinstance(document.data, dict):
            raise ConfigInvalid("packhost.yaml is a mapping of keys", place=document.place())
        return document

    def set_list(self, key: str, entries: Sequence[str]) -> None:
        """Make the list at a key hold these texts, in this order."""
        block = self._block(key)
        kept = self._lines_of(key) if block else {}
        indent = self._indent(key) if kept else "  "
        body = [kept.get(entry, f"{indent}- {scalar(entry)}") for entry in entries]
        self._put(key, [f"{key}:", *body] if entries else [f"{key}: []"])

    def add_rules(self, rules: Sequence[Mapping[str, Any]]) -> None:
        """Append rules to the policy."""
        self.add_entries("policy", rules)

    def add_entries(self, key: str, entries: Sequence[Any], default: Sequence[Any] = ()) -> None:
        """Append entries to the list at a key, which is `default` where the file does not say."""
        if not entries:
            return
        written = [f"- {flow(one)}" for one in entries]
        start_end = self._block(key)
        items = self._document.data.get(key, default) or []
        if start_end is None or not items or not self._is_block(key):
            before = [f"- {flow(one)}" for one in items]
            self._put(key, [f"{key}:", *(f"  {line}" for line in (*before, *written))])
            return
        indent, end = self._indent(key), start_end[1]
        self._splice(end, end, [f"{indent}{line}" for line in written])

    def add_members(self, key: str, members: Mapping[str, Any]) -> None:
        """Put members into the mapping at a key, in place of those of the same name."""
        if not members:
            return
        held = self._document.data.get(key) or {}
        if held and self._is_block(key) and not held.keys() & members.keys():
            end = (self._block(key) or (0, 0))[1]
            column = self._document.place((key, next(iter(held))), key=True).column
            self._splice(end, end, [f"{' ' * (column - 1)}{line}" for line in _members(members)])
            return
        self._put(key, [f"{key}:", *(f"  {line}" for line in _members({**held, **members}))])

    def set_pack_scopes(self, scopes: Mapping[str, Sequence[str]]) -> None:
        """Narrow entries of `packs`, by id or path, to these scopes."""
        if not scopes:
            return
        entries = self._document.data.get("packs")
        if not isinstance(entries, list):
            return
        body: list[str] = []
        indent = self._indent("packs") if self._is_block("packs") else "  "
        for number, entry in enumerate(entries):
            given = {"id": entry} if isinstance(entry, str) else dict(entry)
            name = str(given.get("id") or given.get("path"))
            if name in scopes:
                body += _pack(given, scopes[name], self._comment("packs", number), indent)
            else:
                body += self._source("packs", number) or [f"  - {flow(entry)}"]
        self._put("packs", ["packs:", *body])

    # --- lines -------------------------------------------------------------------------------------

    def _block(self, key: str) -> tuple[int, int] | None:
        """First line of a key, counted from 0, and the one after its last that is no comment or blank."""
        data = self._document.data
        if key not in data:
            return None
        starts = {name: self._document.place((name,), key=True).line - 1 for name in data}
        start = starts[key]
        lines = self.text.splitlines()
        end = min((other for other in starts.values() if other > start), default=len(lines))
        while end > start + 1 and (not lines[end - 1].strip() or lines[end - 1].lstrip().startswith("#")):
            end -= 1
        return start, end

    def _put(self, key: str, new: list[str]) -> None:
        block = self._block(key)
        if block is None:
            end = len(self.text.splitlines())
            self._splice(end, end, ["", *new])
        else:
            self._splice(*block, new)

    def _splice(self, start: int, end: int, new: list[str]) -> None:
        lines = self.text.splitlines()
        self.text = "\n".join([*lines[:start], *new, *lines[end:]]) + "\n"
        self._document = self._read()

    def _is_block(self, key: str) -> bool:
        start, _ = self._block(key) or (0, 0)
        return bool(re.match(rf"{re.escape(key)}:\s*(#.*)?\Z", self.text.splitlines()[start]))

    def _indent(self, key: str) -> str:
        line = self.text.splitlines()[self._item_line(key, 0)]
        return line[: len(line) - len(line.lstrip())]

    def _item_line(self, key: str, number: int) -> int:
        return self._document.place((key, number)).line - 1

    def _source(self, key: str, number: int) -> list[str]:
        """The lines of one entry; none where the list is written in brackets."""
        block = self._block(key)
        if block is None or not self._is_block(key):
            return []
        start = self._item_line(key, number)
        count = len(self._document.data[key])
        end = self._item_line(key, number + 1) if number + 1 < count else block[1]
        return self.text.splitlines()[start:end]

    def _lines_of(self, key: str) -> dict[str, str]:
        """Each text of a list with the one line that it stands in."""
        found = {}
        for number, entry in enumerate(self._document.data[key] or []):
            source = [line for line in self._source(key, number) if line.strip() and line.lstrip()[0] != "#"]
            if len(source) == 1:
                found[entry] = source[0]
        return found

    def _comment(self, key: str, number: int) -> str:
        source = self._source(key, number)
        found = re.search(r"\s(#.*)\Z", source[0]) if source else None
        return f"  {found[1]}" if found else ""


def _pack(given: Mapping[str, Any], scopes: Sequence[str], comment: str, indent: str) -> list[str]:
    kept = [(name, value) for name, value in given.items() if name != "scopes"]
    first, *others = [f"{name}: {flow(value)}" for name, value in kept]
    return [
        f"{indent}- {first}{comment}",
        *(f"{indent}  {line}" for line in others),
        f"{indent}  scopes:",
        *(f"{indent}    - {scalar(scope)}" for scope in scopes),
    ]


def _members(members: Mapping[str, Any]) -> list[str]:
    return [f"{scalar(str(name))}: {flow(value)}" for name, value in members.items()]


def scalar(text: str) -> str:
    """A text as YAML: plain where that is plain to see, else in quotes."""
    plain = _PLAIN.match(text) and text == text.strip() and text.lower() not in _WORDS
    return text if plain else f'"{"".join(map(_quoted, text))}"'


def _quoted(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    return character if character.isprintable() else f"\\U{ord(character):08x}"


def flow(value: Any) -> str:
    """A value on one line of YAML."""
    if isinstance(value, str):
        return scalar(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{scalar(str(key))}: {flow(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(flow(one) for one in value) + "]"
    return json.dumps(value)
