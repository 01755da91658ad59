"""`config.elicit`: parameters of a tool that a person fills in by a form before each call.

Both schemas are closed objects of simple fields, so that what a person is asked for is exactly what the
tool takes, and nothing that an agent sends can pass for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from packhost.manifest.model import ToolSpec
from packhost.manifest.schemas import Path

KINDS: Final = ("http", "code")
"""Kinds whose tools may ask."""
LONGEST: Final = 2_000
"""Characters of a message."""
MOST: Final = 20
"""Fields of a form."""

_AT: Final[Path] = ("config", "elicit")
_SCHEMA: Final[Path] = (*_AT, "requested_schema")
_MEMBERS: Final = ("message", "requested_schema", "merge")
_TOP: Final = frozenset({"type", "properties", "required", "additionalProperties", "title", "description"})
_WORDS: Final = frozenset({"title", "description"})
"""Keywords that only a person reads: those of the form may differ from the tool's."""
_BOUNDS: Final[Mapping[str, frozenset[str]]] = {
    "string": frozenset({"enum", "minLength", "maxLength"}),
    "number": frozenset({"minimum", "maximum"}),
    "integer": frozenset({"minimum", "maximum"}),
    "boolean": frozenset(),
}
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}\Z", re.ASCII)
_RESERVED: Final = frozenset({"constructor", "prototype", "secrets", "fetch", "approval_reason"})
_REFERENCES: Final = ("$ref", "$dynamicRef", "$defs", "definitions", "$anchor", "$dynamicAnchor", "$id")

Said = tuple[Path, str, str]


@dataclass(frozen=True, slots=True)
class Form:
    """What a person is asked for."""

    message: str
    schema: Mapping[str, Any]
    names: frozenset[str]

    @property
    def wire(self) -> dict[str, Any]:
        """The schema as clients take it: fields and which of them must be filled in."""
        shown: dict[str, Any] = {"type": "object", "properties": dict(self.schema["properties"])}
        if self.schema.get("required"):
            shown["required"] = list(self.schema["required"])
        return shown


def form_of(spec: ToolSpec) -> Form | None:
    """The form of a tool in which `elicit_faults` found nothing; `None` for one that asks nothing."""
    elicit = spec.config.get("elicit") if spec.kind in KINDS else None
    if elicit is None:
        return None
    schema = elicit["requested_schema"]
    return Form(elicit["message"], schema, frozenset(schema["properties"]))


def without(schema: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    """A schema of an object without some of its properties."""
    kept = {k: v for k, v in schema.get("properties", {}).items() if k not in names}
    shown = {**schema, "properties": kept}
    if "required" in schema:
        shown["required"] = [name for name in schema["required"] if name not in names]
    return shown


def elicit_faults(spec: ToolSpec) -> Iterator[Said]:
    """What is wrong with a tool's form: its place in the tool, a sentence, what to do."""
    if "elicit" not in spec.config:
        return
    elicit = spec.config["elicit"]
    if spec.kind not in KINDS:
        yield _AT, f"a tool of kind `{spec.kind}` has no `elicit`", "only `http` and `code` tools ask"
        return
    if not isinstance(elicit, Mapping):
        yield _AT, "`elicit` is not an object", "write `{message, requested_schema, merge: parameters}`"
        return
    for name in elicit:
        if name not in _MEMBERS:
            listed = ", ".join(f"`{one}`" for one in _MEMBERS)
            yield (*_AT, name), f"`elicit` has no `{str(name)[:64]}`", f"there are {listed}"
    message = elicit.get("message")
    if not isinstance(message, str) or not 0 < len(message.strip()) <= LONGEST or not _plain(message):
        hint = f"write what is asked for, up to {LONGEST} characters without control characters"
        yield (*_AT, "message"), "`elicit.message` is no text to show", hint
    if elicit.get("merge") != "parameters":
        yield (*_AT, "merge"), "`elicit.merge` is not `parameters`", "write `merge: parameters`"
    requested = elicit.get("requested_schema")
    if not isinstance(requested, Mapping):
        yield _SCHEMA, "`elicit.requested_schema` is not a schema", "write `type: object` and `properties`"
        return
    yield from _closed(requested, _SCHEMA, "`elicit.requested_schema`")
    yield from _closed(spec.input_schema, ("input_schema",), "`input_schema`, whose tool asks a person,")
    if isinstance(requested.get("properties"), Mapping):
        yield from _fields(spec, requested)


def _plain(text: str) -> bool:
    return all(c.isprintable() or c == "\n" for c in text)


def _closed(schema: Mapping[str, Any], at: Path, what: str) -> Iterator[Said]:
    """Hold a schema to a closed object whose fields depend on nothing but themselves."""
    if schema.get("type") != "object":
        yield (*at, "type"), f"{what} is not of `type: object`", "write `type: object`"
    if schema.get("additionalProperties") is not False:
        yield at, f"{what} is not closed", "write `additionalProperties: false`"
    if not isinstance(schema.get("properties"), Mapping):
        yield at, f"{what} has no `properties`", "name each field"
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(one, str) for one in required):
        yield (*at, "required"), f"{what} has a `required` that is no list of names", "write `[NAME]`"
    for word in schema:
        if word not in _TOP:
            hint = "a form has no references and nothing that holds between fields; take it out"
            yield (*at, word), f"{what} cannot have `{str(word)[:64]}`", hint
    for where in _references(schema, at):
        yield where, f"{what} cannot have `{where[-1]}`", "write the schema out"


def _references(value: Any, at: Path, *, named: bool = False) -> Iterator[Path]:
    if isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _references(inner, (*at, index))
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            if not named and key in _REFERENCES:
                yield (*at, key)
            elif named or key not in ("enum", "const", "default", "examples"):
                names = not named and key in ("properties", "patternProperties", "dependentSchemas")
                yield from _references(inner, (*at, key), named=names)


def _fields(spec: ToolSpec, requested: Mapping[str, Any]) -> Iterator[Said]:
    fields, at = requested["properties"], (*_SCHEMA, "properties")
    if not 0 < len(fields) <= MOST:
        yield at, f"a form has 1 to {MOST} fields", "name what the person is to give"
    final = spec.input_schema.get("properties")
    known: Mapping[str, Any] = final if isinstance(final, Mapping) else {}
    for name in requested.get("required", []):
        if name not in fields:
            yield (*_SCHEMA, "required"), f"`{str(name)[:64]}` is required and no field", "declare it"
    for name, field in fields.items():
        where = (*at, name)
        if not _NAME.match(str(name)) or str(name).lower() in _RESERVED:
            yield where, f"`{str(name)[:64]}` is a reserved or unusable name of a field", "rename it"
        elif name in spec.hidden_parameters:
            yield where, f"`{name}` is a hidden parameter, which the host fills", "have one of them give it"
        elif not isinstance(field, Mapping):
            yield where, f"the field `{name}` is no schema", "write its `type`"
        else:
            yield from _field(name, field, where)
            yield from _agrees(name, field, known.get(name), where)
            if name in known and (name in requested.get("required", [])) != (
                name in spec.input_schema.get("required", [])
            ):
                hint = "say the same in both schemas"
                yield where, f"`{name}` is required in one of the two schemas alone", hint


def _field(name: str, field: Mapping[str, Any], where: Path) -> Iterator[Said]:
    kind = field.get("type")
    if not isinstance(kind, str) or kind not in _BOUNDS:
        listed = ", ".join(f"`{one}`" for one in _BOUNDS)
        yield (*where, "type"), f"the field `{name}` has no simple type", f"there are {listed}"
        return
    for word, value in field.items():
        if word == "type":
            continue
        if word in _WORDS:
            if not isinstance(value, str) or len(value) > LONGEST or not _plain(value):
                yield (*where, word), f"`{word}` of the field `{name}` is no text to show", "shorten it"
        elif word not in _BOUNDS[kind]:
            listed = ", ".join(f"`{one}`" for one in sorted(_BOUNDS[kind] | _WORDS))
            yield (*where, word), f"the field `{name}` cannot have `{str(word)[:64]}`", f"there are {listed}"
        elif word == "enum" and not (
            isinstance(value, list) and value and all(isinstance(one, str) and one for one in value)
        ):
            yield (*where, word), f"`enum` of the field `{name}` is no list of texts", "write `[TEXT]`"


def _agrees(name: str, field: Mapping[str, Any], final: Any, where: Path) -> Iterator[Said]:
    if not isinstance(final, Mapping):
        yield where, f"`{name}` is no parameter of the tool", "declare it in `input_schema`"
        return
    mine = {word: value for word, value in field.items() if word not in _WORDS}
    its = {word: value for word, value in final.items() if word not in _WORDS}
    for word in sorted({*mine, *its}):
        if mine.get(word) != its.get(word) or type(mine.get(word)) is not type(its.get(word)):
            hint = "write the same in `input_schema`"
            yield where, f"`{word}` of `{name}` differs from that of the tool's parameter", hint
            return
