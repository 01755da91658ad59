"""Templates of requests: `{{placeholders}}` in a URL, in headers and in a JSON body, and values put in.

A value is encoded for where it stands, so that what a server reads back is the value and nothing else: in a
path one segment, in a query one value, in a header one line, in JSON one string, or the value itself where a
placeholder is all of a string. Values are put in once: a placeholder inside a value stays text. A placeholder
that nothing resolves stays as it is written.

`{{name}}` is an argument, `{{name.member}}` a member of one that is an object, `{{secret:NAME}}` a secret;
`{{_tenant.id}}`, `{{_endUser.id}}` and `{{_identity.token}}` are the host's to fill.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from urllib.parse import quote, unquote

from packhost.errors import InvalidInput

HOST_NAMES: Final = frozenset({"_tenant.id", "_endUser.id", "_identity.token"})
"""What the host fills and no argument can."""
HOST_ROOTS: Final = frozenset(name.partition(".")[0] for name in HOST_NAMES)
LONGEST_URL: Final = 32 * 1024
"""Characters that a path with its query may have."""
LONGEST_HEADER: Final = 16 * 1024

_PLACEHOLDER: Final = re.compile(
    r"\{\{(?:secret:([A-Za-z_][A-Za-z0-9_.-]*)|([A-Za-z_][A-Za-z0-9_-]*)((?:\.[A-Za-z0-9_-]+)*))\}\}"
)
_URL: Final = re.compile(r"(https?)://([^/?#]*)([^?#]*)(?:\?([^#]*))?(#.*)?\Z", re.DOTALL)
_LONE_PERCENT: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_IN_PATH: Final = "%:@!$&'()*+,;=~/"
_IN_QUERY: Final = "%:@!$&'()*+,;=~/?"
_DOTS: Final = frozenset({".", ".."})


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A place that a value is put in; `written` is how it stands in the template."""

    written: str
    name: str
    path: tuple[str, ...] = ()
    secret: bool = False

    @property
    def full(self) -> str:
        """The name with its path: `_tenant.id`."""
        return ".".join((self.name, *self.path))


Text: TypeAlias = tuple["str | Placeholder", ...]
"""A text in parts: as written, or to be put in."""


class TemplateFault(ValueError):
    """What is wrong with a template; the message follows the name of its place."""


class _Unresolved:
    """Stands for the value that there is not."""


UNRESOLVED: Final = _Unresolved()


@dataclass(frozen=True, slots=True)
class Values:
    """What is put in: the call's arguments, secrets by name, and what the host says of the call."""

    arguments: Mapping[str, Any]
    secrets: Mapping[str, str] = field(default_factory=dict)
    host: Mapping[str, str] = field(default_factory=dict)
    """By full name: `_tenant.id`."""

    def of(self, placeholder: Placeholder) -> Any:
        """The value of a placeholder, or `UNRESOLVED`."""
        if placeholder.secret:
            return self.secrets.get(placeholder.name, UNRESOLVED)
        if placeholder.name in HOST_ROOTS and placeholder.full in HOST_NAMES:
            return self.host.get(placeholder.full, UNRESOLVED)
        value = self.arguments.get(placeholder.name, UNRESOLVED)
        for step in placeholder.path:
            value = value.get(step, UNRESOLVED) if isinstance(value, Mapping) else UNRESOLVED
        return value


def parse_text(text: str) -> Text:
    """A text's parts; one without placeholders is itself."""
    parts: list[str | Placeholder] = []
    at = 0
    for found in _PLACEHOLDER.finditer(text):
        if found.start() > at:
            parts.append(text[at : found.start()])
        secret, name, path = found.groups()
        if secret is not None:
            parts.append(Placeholder(found[0], secret, secret=True))
        else:
            parts.append(Placeholder(found[0], name, tuple(path.split(".")[1:])))
        at = found.end()
    if at < len(text):
        parts.append(text[at:])
    return tuple(parts)


def placeholders(text: Text) -> Iterator[Placeholder]:
    """The placeholders of a text."""
    return (part for part in text if isinstance(part, Placeholder))


def as_words(value: Any) -> str:
    """A value inside a text: text as it is, everything else as JSON writes it."""
    return value if isinstance(value, str) else as_json(value)


def as_json(value: Any) -> str:
    """A value as JSON."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _word(placeholder: Placeholder, values: Values) -> str:
    value = values.of(placeholder)
    return placeholder.written if value is UNRESOLVED else as_words(value)


def fill_text(text: Text, values: Values) -> str:
    """The text with its values put in as they are."""
    return "".join([part if isinstance(part, str) else _word(part, values) for part in text])


# --- URLs --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UrlTemplate:
    """A URL whose scheme and port are fixed; `segments` are those of its path, encoded as written."""

    secure: bool
    authority: Text
    segments: tuple[Text, ...]
    query: Text | None

    def placeholders(self) -> Iterator[Placeholder]:
        """The placeholders of path and query; see `authority` for the host's."""
        for text in (*self.segments, self.query or ()):
            yield from placeholders(text)

    def path(self, values: Values) -> str:
        """Path and query with the values put in, each encoded so that it stays within its place.

        :raises InvalidInput: for a value that would make a segment vanish, climb, or the URL too long.
        """
        path = "/".join([_segment(text, values) for text in self.segments])
        if self.query is not None:
            path = f"{path}?{_encoded(self.query, values)}"
        if len(path) > LONGEST_URL:
            raise InvalidInput(
                f"the URL would have more than {LONGEST_URL} characters", hint="send shorter arguments"
            )
        return path


def _encoded(text: Text, values: Values) -> str:
    return "".join([part if isinstance(part, str) else quote(_word(part, values), safe="") for part in text])


def _segment(text: Text, values: Values) -> str:
    if not any(isinstance(part, Placeholder) for part in text):
        return "".join(text)  # type: ignore[arg-type]
    meant = "".join([unquote(part) if isinstance(part, str) else _word(part, values) for part in text])
    # Encoded or not, servers and what stands before them read dots as a way up, and nothing as the list.
    if not meant or not _DOTS.isdisjoint(re.split(r"[/\\]", meant)):
        names = ", ".join(f"`{part.full}`" for part in placeholders(text))
        raise InvalidInput(
            f"with {names} a part of the URL's path would be empty, `.` or `..`", hint="send another value"
        )
    return _encoded(text, values)


def parse_url(text: str) -> UrlTemplate:
    """A URL's template. Raises `TemplateFault`."""
    if not text.isascii() or not text.isprintable() or " " in text or "\\" in text:
        raise TemplateFault("holds a blank, a backslash or a character that is not plain ASCII: encode it")
    found = _URL.match(text)
    if found is None:
        raise TemplateFault("is no URL: write `https://HOST[:PORT]/PATH`")
    scheme, authority, path, query, fragment = found.groups()
    if fragment is not None:
        raise TemplateFault("has a fragment, which is never sent: leave out `#` and what follows")
    if not authority or "@" in authority:
        raise TemplateFault("names no host, or a user: write `https://HOST[:PORT]/PATH`")
    if _LONE_PERCENT.search(text):
        raise TemplateFault("has a `%` that encodes nothing: write `%25`")
    segments = tuple(_literally(parse_text(part), _IN_PATH) for part in (path or "/").split("/"))
    for segment in segments:
        fixed = all(isinstance(part, str) for part in segment)
        if fixed and not _DOTS.isdisjoint(re.split(r"[/\\]", unquote("".join(segment)))):  # type: ignore[arg-type]
            raise TemplateFault("has a `.` or `..` in its path: write where it leads")
    return UrlTemplate(
        secure=scheme == "https",
        authority=parse_text(authority),
        segments=segments,
        query=None if query is None else _literally(parse_text(query), _IN_QUERY),
    )


def _literally(text: Text, safe: str) -> Text:
    return tuple(quote(part, safe=safe) if isinstance(part, str) else part for part in text)


# --- headers -----------------------------------------------------------------------------------------


def fill_header(name: str, text: Text, values: Values) -> str:
    """A header's value, one line of printable ASCII.

    :raises InvalidInput: for anything that would be more than that.
    """
    value = fill_text(text, values).strip(" ")
    if not (value.isascii() and value.isprintable()) or len(value) > LONGEST_HEADER:
        raise InvalidInput(
            f"the header `{name}` would hold a line break, a character that is not printable ASCII, or more "
            f"than {LONGEST_HEADER} of them",
            hint="send another value",
        )
    return value


# --- JSON --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Fixed:
    value: Any


Json: TypeAlias = "_Fixed | Placeholder | Text | dict[str, Json] | list[Json]"
"""A JSON template: what has no placeholder, a value alone, a text, and what holds others."""


def parse_json(value: Any) -> Json:
    """A JSON value's template; its keys are as they are written."""
    if isinstance(value, str):
        text = parse_text(value)
        if len(text) == 1 and isinstance(text[0], Placeholder):
            return text[0]
        return text if any(placeholders(text)) else _Fixed(value)
    if isinstance(value, dict):
        members = {key: parse_json(member) for key, member in value.items()}
        return members if any(not isinstance(one, _Fixed) for one in members.values()) else _Fixed(value)
    if isinstance(value, list | tuple):
        entries = [parse_json(entry) for entry in value]
        return entries if any(not isinstance(one, _Fixed) for one in entries) else _Fixed(list(value))
    return _Fixed(value)


def json_placeholders(template: Json) -> Iterator[Placeholder]:
    """The placeholders of a JSON template."""
    if isinstance(template, Placeholder):
        yield template
    elif isinstance(template, tuple):
        yield from placeholders(template)
    elif isinstance(template, dict):
        for member in template.values():
            yield from json_placeholders(member)
    elif isinstance(template, list):
        for entry in template:
            yield from json_placeholders(entry)


def fill_json(template: Json, values: Values) -> Any:
    """The value with its values put in: typed where a placeholder is all of a string."""
    match template:
        case _Fixed(value):
            return value
        case Placeholder():
            value = values.of(template)
            return template.written if value is UNRESOLVED else value
        case tuple():
            return fill_text(template, values)
        case dict():
            return {key: fill_json(member, values) for key, member in template.items()}
        case _:
            return [fill_json(entry, values) for entry in template]
