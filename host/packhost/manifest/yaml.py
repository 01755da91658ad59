"""The one safe YAML reader, for manifests and `packhost.yaml`.

It reads what JSON can hold, keeps the place of every key and value, and refuses what YAML readers
do not agree on. Anchors, aliases, tags, merge keys, directives and several documents are refused;
size, depth and number of values are bounded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import yaml
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)

from packhost.errors import ConfigInvalid, PackhostError, Place
from packhost.manifest.problems import Problem, error_of
from packhost.manifest.scalars import Surprise, read_plain

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 64
MAX_VALUES = 50_000
_MAX_PROBLEMS = 50

Path = tuple[str | int, ...]
_Loader: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(slots=True)
class _Node:
    """Where a value and its key stand, and the same of what it holds."""

    line: int
    column: int
    key: tuple[int, int] | None = None
    children: dict[str | int, _Node] | None = None


@dataclass(frozen=True, slots=True)
class Document:
    """A file's data, as JSON would hold it, and the place of every value in it."""

    name: str
    data: Any
    _root: _Node

    def place(self, path: Path = (), *, key: bool = False) -> Place:
        """Where the value at `path` stands, or with `key` its key; the nearest outer one if there is none."""
        node = self._root
        for step in path:
            child = node.children.get(step) if node.children else None
            if child is None:
                return Place(self.name, node.line, node.column)
            node = child
        line, column = node.key if key and node.key else (node.line, node.column)
        return Place(self.name, line, column)


def read_yaml(source: bytes, name: str, *, error: type[PackhostError] = ConfigInvalid) -> Document:
    """Read one YAML document from `source`; `name` is the file as errors call it.

    Raises `error`, with every problem found in `data["problems"]`.
    """
    text = _decode(source, name, error)
    reader = _Reader(name, error)
    loader = None
    try:
        loader = _Loader(text)
        root = reader.document(loader)
    except yaml.MarkedYAMLError as failure:
        mark = failure.problem_mark or failure.context_mark
        raise reader.failed(_sentence(failure, text), mark, _hint(failure, text)) from None
    except yaml.reader.ReaderError as failure:
        raise error_of(error, [_unreadable(failure, text, name, error)]) from None
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError):
        raise reader.failed("this is not YAML", None) from None
    finally:
        if loader is not None:
            loader.dispose()
    if reader.problems:
        raise error_of(error, reader.problems)
    return root


def _decode(source: bytes, name: str, error: type[PackhostError]) -> str:
    if len(source) > MAX_BYTES:
        raise error(
            "the file is larger than 1 MiB", place=Place(name), hint="split it or take data out of it"
        )
    try:
        text = source.decode("utf-8-sig")
    except UnicodeDecodeError as failure:
        place = _place_in(name, source[: failure.start].decode("utf-8", "replace"))
        raise error("the file is not UTF-8 text", place=place, hint="save it as UTF-8") from None
    position = text.find("\0")
    if position >= 0:
        raise error("the file holds a NUL character", place=_place_in(name, text[:position]))
    return text


def _place_in(name: str, before: str) -> Place:
    line = before.count("\n") + 1
    return Place(name, line, len(before) - (before.rfind("\n") + 1) + 1)


def _unreadable(failure: Any, text: str, name: str, error: type[PackhostError]) -> Problem:
    found = failure.character
    code = ord(found) if isinstance(found, str) and len(found) == 1 else found
    shown = f"U+{code:04X}" if isinstance(code, int) else "a character"
    position = next((i for i, character in enumerate(text) if ord(character) == code), 0)
    return Problem(
        error.code,
        f"the file holds {shown}, which YAML does not allow",
        "take it out, or write it as an escape in double quotes",
        _place_in(name, text[:position]),
    )


def _sentence(failure: yaml.MarkedYAMLError, text: str) -> str:
    said = " ".join(part for part in (failure.context, failure.problem) if part).strip().rstrip(".")
    return "this is not YAML: " + said[:1].lower() + said[1:] if said else "this is not YAML"


def _hint(failure: yaml.MarkedYAMLError, text: str) -> str:
    mark = failure.problem_mark
    if mark is None:
        return ""
    lines = text.splitlines()
    line = lines[mark.line] if mark.line < len(lines) else ""
    if "\t" in line[: len(line) - len(line.lstrip())]:
        return "indent with spaces, not tabs"
    if "mapping values are not allowed" in (failure.problem or ""):
        return "put text that holds `: ` in quotes"
    if "cannot start any token" in (failure.problem or ""):
        return "put text that starts with a special character in quotes"
    return ""


class _Reader:
    """Builds one document from parser events, collecting problems as it goes."""

    def __init__(self, name: str, error: type[PackhostError]) -> None:
        self.name = name
        self.error = error
        self.problems: list[Problem] = []
        self.values = 0

    def failed(self, message: str, mark: Any, hint: str = "") -> PackhostError:
        self.add(message, mark, hint)
        return error_of(self.error, self.problems)

    def add(self, message: str, mark: Any, hint: str = "") -> None:
        place = Place(self.name, mark.line + 1, mark.column + 1) if mark is not None else Place(self.name)
        self.problems.append(Problem(self.error.code, message, hint, place))

    def document(self, loader: Any) -> Document:
        loader.get_event()
        start = loader.get_event()
        if isinstance(start, StreamEndEvent):
            return Document(self.name, None, _Node(1, 1))
        self._directives(start)
        data, node = self._value(loader, loader.get_event(), 1)
        loader.get_event()
        following = loader.get_event()
        if not isinstance(following, StreamEndEvent):
            raise self.failed(
                "the file holds a second document", following.start_mark, "keep one, without `---`"
            )
        return Document(self.name, data, node)

    def _directives(self, start: DocumentStartEvent) -> None:
        if start.version or start.tags:
            raise self.failed("directives are not read here", start.start_mark, "take the line with `%` out")

    def _value(self, loader: Any, event: Any, depth: int) -> tuple[Any, _Node]:
        mark = event.start_mark
        self.values += 1
        if self.values > MAX_VALUES:
            raise self.failed(f"the file holds more than {MAX_VALUES} values", mark)
        if len(self.problems) >= _MAX_PROBLEMS:
            raise error_of(self.error, self.problems)
        if event.anchor or getattr(event, "tag", None):
            self._plainness(event)
        node = _Node(mark.line + 1, mark.column + 1)
        if type(event) is ScalarEvent:
            return self._scalar(event), node
        if depth > MAX_DEPTH:
            raise self.failed(f"values are nested more than {MAX_DEPTH} deep", mark)
        if type(event) is SequenceStartEvent:
            return self._sequence(loader, node, depth), node
        return self._mapping(loader, node, depth), node

    def _plainness(self, event: Event) -> None:
        if isinstance(event, AliasEvent):
            raise self.failed(
                f"aliases are not read here: `*{event.anchor}`",
                event.start_mark,
                "put it in quotes if it is text",
            )
        tagged = cast("ScalarEvent", event)
        if tagged.anchor:
            self.add(f"anchors are not read here: `&{tagged.anchor}`", event.start_mark, "take it out")
        if tagged.tag:
            self.add(f"tags are not read here: `{tagged.tag}`", event.start_mark, "take it out")

    def _scalar(self, event: ScalarEvent) -> Any:
        text = event.value
        if not text.isascii() or "\0" in text:
            self._characters(event)
        if not event.implicit[0] or event.style:
            return text
        try:
            return read_plain(text)
        except Surprise as surprise:
            self.add(surprise.message, event.start_mark, surprise.hint)
            return text

    def _characters(self, event: ScalarEvent) -> None:
        if "\0" in event.value:
            self.add("text holds a NUL character", event.start_mark)
        elif any("\ud800" <= character <= "\udfff" for character in event.value):
            self.add("text holds half of a surrogate pair", event.start_mark, "write the character itself")

    def _sequence(self, loader: Any, node: _Node, depth: int) -> list[Any]:
        found: list[Any] = []
        children: dict[str | int, _Node] = {}
        next_event = loader.get_event
        while type(event := next_event()) is not SequenceEndEvent:
            value, children[len(found)] = self._value(loader, event, depth + 1)
            found.append(value)
        node.children = children
        return found

    def _mapping(self, loader: Any, node: _Node, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        children: dict[str | int, _Node] = {}
        next_event = loader.get_event
        while type(event := next_event()) is not MappingEndEvent:
            key = self._key(event)
            value, child = self._value(loader, next_event(), depth + 1)
            mark = event.start_mark
            child.key = (mark.line + 1, mark.column + 1)
            if key in found:
                first = children[key].key or (0, 0)
                message = f"the key `{_short(key)}` stands twice; first in line {first[0]}"
                self.add(message, mark, "keep one of them")
            else:
                found[key] = value
                children[key] = child
        node.children = children
        return found

    def _key(self, event: Any) -> str:
        if event.anchor or getattr(event, "tag", None):
            self._plainness(event)
        if type(event) is not ScalarEvent:
            raise self.failed("a key must be text", event.start_mark, "put text with brackets in quotes")
        text: str = event.value
        if not text.isascii() or "\0" in text:
            self._characters(event)
        if event.style or (text.isalpha() and text.lower() in ("yes", "no", "on", "off")):
            return text
        try:
            plain = read_plain(text)
        except Surprise as surprise:
            self.add(surprise.message, event.start_mark, surprise.hint)
            return text
        if not isinstance(plain, str):
            shown = f"`{_short(text)}`" if text else "an empty one"
            self.add(f"a key must be text, not {shown}", event.start_mark, "put it in quotes")
        return text


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "…"
