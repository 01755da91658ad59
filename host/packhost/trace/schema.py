"""The subset of JSON Schema that the validator understands, held against one input.

A keyword outside `KEYWORDS` is a gap, never passed over in silence. Work is bounded: steps for a
whole trace, depth, and patterns only of a form that cannot take long.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from packhost.trace.findings import shown
from packhost.trace.strict import fingerprint

MAX_DEPTH = 64
MAX_STEPS = 2_000_000
"""Levels of a schema that are followed, and schemas, keywords and listed values that are looked at."""
MAX_PATTERN = 256
MAX_MATCHED = 4_096
"""Characters of a pattern, and of a text that one is tried on."""

ANNOTATIONS = frozenset(
    {
        "$schema", "$id", "$anchor", "$comment", "$defs", "definitions", "title", "description", "default",
        "examples", "example", "deprecated", "readOnly", "writeOnly", "format", "contentEncoding",
        "contentMediaType",
    }
)  # fmt: skip
"""Keywords that assert nothing here; so does every keyword that begins with `x-`."""

Say = Callable[[str, str, str], None]
"""Takes an issue code, a JSON pointer into the input, and what is wrong."""
_Check = Callable[["_Walk", Any, Any, str, Mapping[str, Any], int], None]
_Types = Mapping[str, Callable[[Any], bool]]

_TYPES: _Types = {
    "object": lambda v: isinstance(v, dict),
    "array": lambda v: isinstance(v, list),
    "string": lambda v: isinstance(v, str),
    "boolean": lambda v: isinstance(v, bool),
    "null": lambda v: v is None,
    "integer": lambda v: type(v) is int or (isinstance(v, float) and v.is_integer()),
    "number": lambda v: isinstance(v, int | float) and not isinstance(v, bool),
}


@dataclass
class Work:
    """Steps that are left, for all the inputs of one trace."""

    left: int = MAX_STEPS


def check_schema(value: Any, schema: Any, say: Say, work: Work | None = None) -> None:
    """Hold a value against a schema and say everything that breaks it."""
    _Walk(schema, say, work or Work()).visit(value, schema, "", 0)


class _Walk:
    def __init__(self, root: Any, say: Say, work: Work) -> None:
        self.root = root
        self.say = say
        self.work = work
        self.told: set[str] = set()

    def gap(self, keyword: str, detail: str) -> None:
        if keyword not in self.told:
            self.told.add(keyword)
            self.say("SCHEMA_UNSUPPORTED_KEYWORD", "", detail)

    def visit(self, value: Any, schema: Any, path: str, depth: int) -> None:
        self.work.left -= 1 + (len(schema) if isinstance(schema, Mapping) else 0)
        if schema is True:
            return
        if self.work.left < 0 or depth > MAX_DEPTH:
            self.gap("", "the schema and the input are too large to be held against each other")
        elif schema is False:
            self.say("SCHEMA_ADDITIONAL", path, "nothing is allowed here")
        elif not isinstance(schema, Mapping):
            self.gap("", "a schema is neither an object nor a boolean")
        else:
            for keyword, meant in schema.items():
                check = CHECKS.get(keyword)
                if check is not None:
                    check(self, value, meant, path, schema, depth + 1)
                elif keyword not in ANNOTATIONS and not keyword.startswith("x-"):
                    self.gap(keyword, f"the keyword `{shown(keyword)}` is outside the subset")

    def holds(self, value: Any, schema: Any, depth: int) -> bool:
        """Whether a value fits, said nowhere; a gap inside counts as one."""
        found: list[tuple[str, str]] = []
        inner = _Walk(self.root, lambda code, path, detail: found.append((code, detail)), self.work)
        inner.visit(value, schema, "", depth)
        for code, detail in found:
            if code == "SCHEMA_UNSUPPORTED_KEYWORD":
                self.gap(detail, detail)
        return all(code == "SCHEMA_UNSUPPORTED_KEYWORD" for code, _ in found)


def _type(walk: _Walk, value: Any, meant: Any, path: str, schema: Mapping[str, Any], depth: int) -> None:
    names = meant if isinstance(meant, list) else [meant]
    if any(not isinstance(name, str) or name not in _TYPES for name in names):
        walk.gap("type", f"`type` has an unknown value {shown(meant)}")
    elif not any(_TYPES[name](value) for name in names):
        walk.say("SCHEMA_TYPE", path, f"it is no {' or '.join(names)}")


def _required(walk: _Walk, value: Any, meant: Any, path: str, schema: Mapping[str, Any], depth: int) -> None:
    if not isinstance(meant, list):
        walk.gap("required", "`required` is no list")
    elif isinstance(value, dict):
        walk.work.left -= len(meant)
        for name in meant:
            if isinstance(name, str) and name not in value:
                walk.say("SCHEMA_REQUIRED", path, f"`{shown(name)}` is missing")


def _properties(
    walk: _Walk, value: Any, meant: Any, path: str, schema: Mapping[str, Any], depth: int
) -> None:
    if not isinstance(meant, Mapping):
        walk.gap("properties", "`properties` is no object")
    elif isinstance(value, dict):
        for name in sorted(meant.keys() & value.keys()):
            walk.visit(value[name], meant[name], f"{path}/{pointer(name)}", depth)


def _additional(
    walk: _Walk, value: Any, meant: Any, path: str, schema: Mapping[str, Any], depth: int
) -> None:
    if meant is True or not isinstance(value, dict) or "patternProperties" in schema:
        return
    walk.work.left -= len(value)
    known = schema.get("properties")
    for name in sorted(value.keys() - (known.keys() if isinstance(known, Mapping) else set())):
        if meant is False:
            walk.say("SCHEMA_ADDITIONAL", path, f"`{shown(name)}` is not allowed")
        else:
            walk.visit(value[name], meant, f"{path}/{pointer(name)}", depth)


def _items(walk: _Walk, value: Any, meant: Any, path: str, schema: Mapping[str, Any], depth: int) -> None:
    if isinstance(value, list):
        before = schema.get("prefixItems")
        first = len(before) if isinstance(before, list) else 0
        for index in range(first, len(value)):
            walk.visit(value[index], meant, f"{path}/{index}", depth)


def _prefix_items(
    walk: _Walk, value: Any, meant: Any, path: str, schema: Mapping[str, Any], depth: int
) -> None:
    if not isinstance(meant, list):
        walk.gap("prefixItems", "`prefixItems` is no list")
    elif isinstance(value, list):
        for index, (one, wanted) in enumerate(zip(value, meant, strict=False)):
            walk.visit(one, wanted, f"{path}/{index}", depth)


def _enum(walk: _Walk, value: Any, meant: Any, path: str, schema: Mapping[str, Any], depth: int) -> None:
    walk.work.left -= len(meant) if isinstance(meant, list) else 0
    if not isinstance(meant, list):
        walk.gap("enum", "`enum` is no list")
    elif not _among(walk, value, meant):
        walk.say("SCHEMA_ENUM", path, "it is none of the allowed values")


def _const(walk: _Walk, value: Any, meant: Any, path: str, schema: Mapping[str, Any], depth: int) -> None:
    if not _among(walk, value, [meant]):
        walk.say("SCHEMA_ENUM", path, "it is not the one allowed value")


def _among(walk: _Walk, value: Any, allowed: list[Any]) -> bool:
    """As JSON Schema has it: `1` and `1.0` are equal, `1` and `true` are not."""
    if isinstance(value, bool) or value is None:
        return any(one is value for one in allowed)
    if isinstance(value, int | float | str):
        kind = str if isinstance(value, str) else int | float
        return any(isinstance(one, kind) and not isinstance(one, bool) and one == value for one in allowed)
    own = fingerprint(value)
    alike = [fingerprint(one) for one in allowed if type(one) is type(value)]
    walk.work.left -= len(own) + sum(map(len, alike))
    return own in alike


def _bound(measure: Callable[[Any], Any], holds: Callable[[Any, Any], bool], said: str) -> _Check:
    def check(walk: _Walk, value: Any, meant: Any, path: str, schema: Mapping[str, Any], depth: int) -> None:
        if not _TYPES["number"](meant):
            walk.gap(said, "a bound is no number")
            return
        size = measure(value)
        if size is not None and not holds(size, meant):
            walk.say("SCHEMA_BOUND", path, f"it {said} {shown(meant)}")

    return check


def _number(value: Any) -> Any:
    return value if _TYPES["number"](value) else None


def _size(kind: type[str] | type[list[Any]] | type[dict[str, Any]]) -> Callable[[Any], Any]:
    return lambda value: len(value) if isinstance(value, kind) else None


def _unique(walk: _Walk, value: Any, meant: Any, path: str, schema: Mapping[str, Any], depth: int) -> None:
    if meant is not True or not isinstance(value, list):
        return
    prints = [fingerprint(one) for one in value]
    walk.work.left -= sum(map(len, prints))
    if len(set(prints)) != len(prints):
        walk.say("SCHEMA_BOUND", path, "it holds one value twice")


def _pattern(walk: _Walk, value: Any, meant: Any, path: str, schema: Mapping[str, Any], depth: int) -> None:
    walk.work.left -= len(value) if isinstance(value, str) else 0
    made = _compiled(meant)
    if made is None:
        walk.gap("pattern", f"the pattern {shown(meant)} is outside the subset")
    elif isinstance(value, str):
        if len(value) > MAX_MATCHED:
            walk.gap("pattern", f"a text of more than {MAX_MATCHED} characters is not held against a pattern")
        elif made.search(value) is None:
            walk.say("SCHEMA_BOUND", path, f"it does not match the pattern {shown(meant)}")


_PLAIN = re.compile(r"\^?(?:\[(?:\\.|[^\]\\])+\]|\\[.\\/dDwWsS-]|[^\\()\[\]{}*+?|^$.]|\.)")
_PIECE = re.compile(_PLAIN.pattern + r"(?:[*+?]|\{[0-9]{1,4}(?:,[0-9]{0,4})?\})?\$?")


def _compiled(pattern: Any) -> re.Pattern[str] | None:
    """A pattern without groups and with at most two repetitions: one that cannot take long."""
    if not isinstance(pattern, str) or len(pattern) > MAX_PATTERN:
        return None
    position = repeated = 0
    while position < len(pattern):
        piece = _PIECE.match(pattern, position)
        if piece is None:
            return None
        repeated += piece[0].rstrip("$")[-1:] in "*+}"
        position = piece.end()
    try:
        # In JSON Schema `$` is the very end, and classes are of ASCII.
        return re.compile(re.sub(r"\$\Z", r"\\Z", pattern), re.ASCII) if repeated <= 2 else None
    except re.error:
        return None


def _any_of(walk: _Walk, value: Any, meant: Any, path: str, schema: Mapping[str, Any], depth: int) -> None:
    _choose(walk, value, meant, path, depth, lambda fits: fits > 0)


def _one_of(walk: _Walk, value: Any, meant: Any, path: str, schema: Mapping[str, Any], depth: int) -> None:
    _choose(walk, value, meant, path, depth, lambda fits: fits == 1)


def _choose(
    walk: _Walk, value: Any, meant: Any, path: str, depth: int, enough: Callable[[int], bool]
) -> None:
    if not isinstance(meant, list) or not meant:
        walk.gap("anyOf", "a choice of schemas is no list of them")
    elif not enough(sum(walk.holds(value, one, depth) for one in meant)):
        walk.say(_mismatch(value, meant), path, "it fits the offered schemas in no allowed number")


def _mismatch(value: Any, meant: list[Any]) -> str:
    """The code of a choice that fails: a wrong type where every offer names types, else a value."""
    offered = [one.get("type") for one in meant if isinstance(one, Mapping)]
    names = [name for one in offered for name in (one if isinstance(one, list) else [one])]
    known = [_TYPES[name] for name in names if isinstance(name, str) and name in _TYPES]
    typed = len(offered) == len(meant) and len(known) == len(names)
    return "SCHEMA_TYPE" if typed and not any(fits(value) for fits in known) else "SCHEMA_ENUM"


def _all_of(walk: _Walk, value: Any, meant: Any, path: str, schema: Mapping[str, Any], depth: int) -> None:
    if not isinstance(meant, list):
        walk.gap("allOf", "`allOf` is no list")
        return
    for one in meant:
        walk.visit(value, one, path, depth)


def _not(walk: _Walk, value: Any, meant: Any, path: str, schema: Mapping[str, Any], depth: int) -> None:
    if walk.holds(value, meant, depth):
        walk.say("SCHEMA_ENUM", path, "it fits a schema that it may not fit")


def _ref(walk: _Walk, value: Any, meant: Any, path: str, schema: Mapping[str, Any], depth: int) -> None:
    target = walk.root if isinstance(meant, str) and meant.startswith("#") else None
    for step in _steps(meant) if target is not None else ():
        target = target.get(step) if isinstance(target, Mapping) else None
    if target is None:
        walk.gap(f"$ref {meant}", f"the reference {shown(meant)} leads nowhere inside the schema")
    else:
        walk.visit(value, target, path, depth)


def _steps(reference: str) -> Iterator[str]:
    for step in reference.removeprefix("#").split("/")[1:]:
        yield step.replace("~1", "/").replace("~0", "~")


def pointer(step: object) -> str:
    """One step of a JSON pointer."""
    return str(step).replace("~", "~0").replace("/", "~1")


CHECKS: Mapping[str, _Check] = {
    "type": _type,
    "required": _required,
    "properties": _properties,
    "additionalProperties": _additional,
    "items": _items,
    "prefixItems": _prefix_items,
    "enum": _enum,
    "const": _const,
    "minimum": _bound(_number, lambda v, b: v >= b, "is less than"),
    "maximum": _bound(_number, lambda v, b: v <= b, "is more than"),
    "exclusiveMinimum": _bound(_number, lambda v, b: v > b, "is not more than"),
    "exclusiveMaximum": _bound(_number, lambda v, b: v < b, "is not less than"),
    "minLength": _bound(_size(str), lambda v, b: v >= b, "is shorter than"),
    "maxLength": _bound(_size(str), lambda v, b: v <= b, "is longer than"),
    "minItems": _bound(_size(list), lambda v, b: v >= b, "has fewer items than"),
    "maxItems": _bound(_size(list), lambda v, b: v <= b, "has more items than"),
    "minProperties": _bound(_size(dict), lambda v, b: v >= b, "has fewer members than"),
    "maxProperties": _bound(_size(dict), lambda v, b: v <= b, "has more members than"),
    "uniqueItems": _unique,
    "pattern": _pattern,
    "anyOf": _any_of,
    "oneOf": _one_of,
    "allOf": _all_of,
    "not": _not,
    "$ref": _ref,
}
KEYWORDS: tuple[str, ...] = tuple(CHECKS)
"""The keywords that are held; annotations are passed over."""
