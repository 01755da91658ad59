"""Codex's TOML file: tables taken out and put in, and every other line left as it is."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Any, Final

from packhost.errors import ConfigInvalid, Place

_HEADER: Final = re.compile(r"[ \t]*\[[ \t]*([^\[\]\r\n]+?)[ \t]*\][ \t]*(?:#.*)?\r?\Z")
_ANY_HEADER: Final = re.compile(r"[ \t]*\[\[?[^\r\n]+\]\]?[ \t]*(?:#.*)?\r?\Z")
_PART: Final = re.compile(r"""[ \t]*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([A-Za-z0-9_-]+))[ \t]*(?:\.|\Z)""")
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+\Z")


class Toml:
    """A TOML text under change; `text` is it as changed so far.

    Raises `ConfigInvalid` for what is no TOML; `name` is the file's.
    """

    def __init__(self, text: str, name: str) -> None:
        self._name = name
        self.text = text
        self.data: dict[str, Any] = self._read(text)

    def put(self, path: tuple[str, str], table: Mapping[str, Any]) -> None:
        """Make the table at a path hold this; tables in it become tables of their own.

        Raises `ConfigInvalid` as `drop` does.
        """
        self.drop(path)
        newline = "\r\n" if "\r\n" in self.text else "\n"
        lines = _table(path, table)
        before = self.text
        if before and not before.endswith("\n"):
            before += newline
        gap = newline if before.strip() else ""
        wanted = {**self.data, path[0]: {**self.data.get(path[0], {}), path[1]: dict(table)}}
        self._become(before + gap + newline.join(lines) + newline, wanted)

    def set(self, path: tuple[str] | tuple[str, str], value: bool | str) -> None:
        """Make a key at the top, or in a table at the top, hold this.

        Raises `ConfigInvalid` where it is written in a form that cannot be changed line by line.
        """
        line = f"{_key(path[-1])} = {_value(value)}"
        newline = "\r\n" if "\r\n" in self.text else "\n"
        lines = self.text.splitlines(keepends=True)
        headers = [n for n, one in enumerate(lines) if _ANY_HEADER.match(one.rstrip("\n"))]
        mine = [n for n in headers if _parts(_inside(lines[n])) == [path[0]]] if len(path) == 2 else [-1]
        if not mine:
            gap = [newline] if lines else []
            lines += [*gap, f"[{_key(path[0])}]{newline}", f"{line}{newline}"]
        else:
            end = next((n for n in headers if n > mine[0]), len(lines))
            held = re.compile(rf"[ \t]*{re.escape(path[-1])}[ \t]*=")
            kept = [one for one in lines[mine[0] + 1 : end] if not held.match(one)]
            lines[mine[0] + 1 : end] = [f"{line}{newline}", *kept]
        table = {**self.data.get(path[0], {}), path[-1]: value} if len(path) == 2 else value
        self._become("".join(lines), {**self.data, path[0]: table})

    def drop(self, path: tuple[str, str]) -> None:
        """Take the table at a path out, with those below it.

        Raises `ConfigInvalid` where it is written in a form that cannot be taken out line by line.
        """
        outer = self.data.get(path[0])
        if not isinstance(outer, dict) or path[1] not in outer:
            return
        kept: list[str] = []
        inside = False
        for line in self.text.splitlines(keepends=True):
            bare = line.rstrip("\n")
            if (found := _HEADER.match(bare)) is not None:
                inside = _parts(found[1])[:2] == list(path)
            elif _ANY_HEADER.match(bare) and bare.lstrip().startswith("[["):
                inside = False
            if not inside:
                kept.append(line)
        rest = {name: one for name, one in outer.items() if name != path[1]}
        wanted = {name: one for name, one in self.data.items() if name != path[0]}
        if rest:
            wanted[path[0]] = rest
        self._become("".join(kept), wanted)

    def _become(self, text: str, wanted: Mapping[str, Any]) -> None:
        try:
            found = tomllib.loads(text)
        except tomllib.TOMLDecodeError:
            found = {}
        if {name: one for name, one in found.items() if one != {}} != {
            name: one for name, one in wanted.items() if one != {}
        }:
            raise ConfigInvalid(
                "the servers in this file are written in a form that cannot be changed line by line",
                hint="write each as a table of its own, `[mcp_servers.NAME]`",
                place=Place(self._name),
            )
        self.text, self.data = text, found

    def _read(self, text: str) -> dict[str, Any]:
        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            said = str(error).splitlines()[0].rstrip(".").lower()
            raise ConfigInvalid(f"this is not TOML: {said}", place=Place(self._name)) from None


def _inside(line: str) -> str:
    found = _HEADER.match(line.rstrip("\n"))
    return found[1] if found else ""


def _parts(header: str) -> list[str]:
    """The keys of a table's header."""
    parts, at = [], 0
    while at < len(header) and (found := _PART.match(header, at)) is not None:
        quoted, literal, bare = found.groups()
        parts.append(json.loads(f'"{quoted}"') if quoted is not None else literal if bare is None else bare)
        at = found.end()
    return parts


def _table(path: tuple[str, ...], table: Mapping[str, Any]) -> list[str]:
    lines = [f"[{'.'.join(map(_key, path))}]"]
    inner = [(name, one) for name, one in table.items() if isinstance(one, Mapping)]
    lines += [f"{_key(name)} = {_value(one)}" for name, one in table.items() if not isinstance(one, Mapping)]
    for name, one in inner:
        lines += ["", *_table((*path, name), one)]
    return lines


def _key(name: str) -> str:
    return name if _BARE.match(name) else _value(name)


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    # JSON's text, number and truth are TOML's; DEL is the one character that TOML wants escaped as well
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
