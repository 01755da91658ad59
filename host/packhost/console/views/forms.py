"""Forms made from a JSON Schema, and what a person filled in read back as JSON.

What a schema says that no simple field can hold is entered as JSON. The gate checks what comes back against
the schema; a field here only says what kind of value it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from packhost.console.views.texts import short, shown
from packhost.errors import InvalidInput

Control = Literal["line", "text", "number", "choice", "yes-no", "json"]
PREFIX: Final = "f."
"""What the name of a field in a form begins with, so that no argument's name meets one of the page's own."""
MOST: Final = 40
"""Fields of a form; with more of them all arguments are entered as JSON."""
_WHOLE: Final = re.compile(r"-?(0|[1-9][0-9]{0,299})\Z", re.ASCII)
_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]{0,299})(\.[0-9]{1,300})?([eE][-+]?[0-9]{1,3})?\Z", re.ASCII)
_LONG: Final = frozenset({"content", "text", "body", "message", "messages", "code", "old", "new", "prompt"})
"""Names of texts that mostly have several lines."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field: `name` is that of the value, `key` that of the form's field."""

    name: str
    key: str
    title: str
    control: Control
    required: bool
    help: str = ""
    choices: tuple[str, ...] = ()
    value: str = ""
    kind: str = "string"
    longest: int | None = None
    error: str = ""


def fields_of(schema: Mapping[str, Any], filled: Mapping[str, str] | None = None) -> tuple[Field, ...] | None:
    """The fields of an object's schema; `None` for one that has none, or too many.

    `filled` is what stands in the fields already, by `key`.
    """
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or len(properties) > MOST:
        return None
    required = schema.get("required")
    needed = set(required) if isinstance(required, list) else set()
    filled = filled or {}
    return tuple(_field(str(name), part, name in needed, filled) for name, part in properties.items())


def _field(name: str, part: Any, required: bool, filled: Mapping[str, str]) -> Field:
    part = part if isinstance(part, Mapping) else {}
    control, kind = _control(name, part)
    choices = tuple(str(one) for one in part["enum"]) if control == "choice" else ()
    key = f"{PREFIX}{name}"
    longest = part.get("maxLength")
    return Field(
        name=name,
        key=key,
        title=short(part.get("title") or name),
        control=control,
        required=required,
        help=_help(part, control),
        choices=choices,
        value=filled.get(key, _default(part, control)),
        kind=kind,
        longest=longest if isinstance(longest, int) and control in ("line", "text") else None,
    )


def _control(name: str, part: Mapping[str, Any]) -> tuple[Control, str]:
    enum, kind = part.get("enum"), part.get("type")
    if isinstance(enum, list) and enum and all(isinstance(one, str) for one in enum):
        return "choice", "string"
    if kind == "boolean":
        return "yes-no", "boolean"
    if kind in ("integer", "number"):
        return "number", str(kind)
    if kind == "string":
        return ("text" if name in _LONG else "line"), "string"
    return "json", "json"


def _help(part: Mapping[str, Any], control: Control) -> str:
    words = [short(part["description"], 400)] if isinstance(part.get("description"), str) else []
    least, most = part.get("minimum"), part.get("maximum")
    if control == "number" and (least is not None or most is not None):
        span = f"from {least} to {most}" if least is not None and most is not None else ""
        words.append(f"A number {span or (f'of at least {least}' if most is None else f'up to {most}')}.")
    if "default" in part:
        words.append(f"Left empty it is {short(json.dumps(part['default'], ensure_ascii=False), 60)}.")
    if control == "json":
        words.append("Written as JSON.")
    return " ".join(words)


def _default(part: Mapping[str, Any], control: Control) -> str:
    """Nothing is filled in for a person but what a schema leaves no choice about."""
    return shown(part["const"]) if control == "line" and isinstance(part.get("const"), str) else ""


@dataclass(frozen=True, slots=True)
class Filled:
    """What a person filled in: the values, and for each field that holds none what is wrong."""

    values: dict[str, Any]
    errors: dict[str, str]


def read(fields: tuple[Field, ...], given: Mapping[str, str]) -> Filled:
    """The values of a form; an empty field that is not needed gives none."""
    found = Filled({}, {})
    for field in fields:
        # a browser sends the lines of a text with a carriage return each
        text = given.get(field.key, "").replace("\r\n", "\n")
        if not text and not (field.required and field.control in ("line", "text")):
            if field.required:
                found.errors[field.name] = "this is needed"
            continue
        try:
            found.values[field.name] = _value(field, text)
        except InvalidInput as error:
            found.errors[field.name] = error.message
    return found


def _value(field: Field, text: str) -> Any:
    if field.control in ("line", "text"):
        return text
    if field.control == "choice":
        if text not in field.choices:
            raise InvalidInput("choose one of these", hint="")
        return text
    if field.control == "yes-no":
        if text not in ("yes", "no"):
            raise InvalidInput("choose yes or no", hint="")
        return text == "yes"
    if field.control == "number":
        text = text.strip()
        if _WHOLE.match(text):
            return int(text)
        if field.kind == "number" and _NUMBER.match(text):
            return float(text)
        raise InvalidInput(
            "this is a whole number" if field.kind == "integer" else "this is a number", hint=""
        )
    return read_json(text)


def read_json(text: str) -> Any:
    """JSON that a person wrote.

    :raises InvalidInput: it is none, and where it fails.
    """
    try:
        return json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise InvalidInput(
            f"this is no JSON: {error.msg.lower()} in line {error.lineno}, column {error.colno}",
            hint='text needs quotes: `"so"`',
        ) from None
    except (ValueError, RecursionError):
        raise InvalidInput("this is no JSON", hint='text needs quotes: `"so"`') from None


def _no_constant(name: str) -> Any:
    raise ValueError(name)
