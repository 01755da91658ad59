"""JSON Schemas in a manifest: whether they are sound, and which arguments they mark as paths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, cast

import jsonschema_rs

Access = Literal["read", "write"]
Path = tuple[str | int, ...]
PathArgument = tuple[tuple[str, ...], Access]
EACH = "*"
"""The step of a path argument that stands for every entry of a list."""

_DIALECTS = ("https://json-schema.org/draft/2020-12/schema", "https://json-schema.org/draft/2020-12/schema#")
_DEEPEST = 32


def schema_faults(schema: Mapping[str, Any], *, of_object: bool) -> Iterator[tuple[Path, str, str]]:
    """What is wrong with a JSON Schema 2020-12: path in it, message, hint.

    With `of_object` it must be of `type: object`. Nothing outside the schema is ever fetched.
    """
    dialect = schema.get("$schema")
    if dialect is not None and dialect not in _DIALECTS:
        yield (
            ("$schema",),
            f"`{dialect}` is another dialect",
            "only JSON Schema 2020-12 is read; leave it out",
        )
    try:
        jsonschema_rs.meta.validate({key: value for key, value in schema.items() if key != "$schema"})
        jsonschema_rs.Draft202012Validator(dict(schema), offline=True)
    except jsonschema_rs.ValidationError as error:
        said = error.message.splitlines()[0].rstrip(".") if error.message else "it does not hold together"
        yield tuple(error.instance_path), f"this is not a sound JSON Schema: {said}", ""
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        said = str(error).splitlines()[0].rstrip(".")
        yield (), f"this is not a sound JSON Schema: {said}", ""
    else:
        if of_object and schema.get("type") != "object":
            where = ("type",) if "type" in schema else ()
            yield where, "the schema must be of `type: object`", "write `type: object`"


def schema_fault(schema: Mapping[str, Any]) -> str | None:
    """What is wrong with a JSON Schema of an object, in a sentence; `None` for a sound one."""
    for path, said, _ in schema_faults(schema, of_object=True):
        at = "/".join(str(step) for step in path)
        return f"{said} at `{at}`" if at else said
    return None


def input_fault(schema: Mapping[str, Any], value: Any) -> str | None:
    """What of a value a sound JSON Schema does not allow, with its place; `None` where it fits."""
    for error in jsonschema_rs.Draft202012Validator(dict(schema), offline=True).iter_errors(value):
        at = "/".join(str(step) for step in error.instance_path)
        return f"{' '.join(error.message.split())[:300]} at `/{at}`"
    return None


def path_arguments(schema: Mapping[str, Any]) -> tuple[PathArgument, ...]:
    """Where arguments carry `x-path`, with the access asked for; a list's entries are the step `*`."""
    return tuple((at, access) for at, access, _ in _marked(schema, (), ()))


def path_faults(schema: Mapping[str, Any]) -> Iterator[tuple[Path, str, str]]:
    """Every `x-path` that is wrong or that no check would find: path in the schema, message, hint."""
    sound: set[Path] = set()
    for _, access, where in _marked(schema, (), ()):
        sound.add(where)
        if access not in ("read", "write"):
            yield (*where, "x-path"), f"`x-path` cannot be `{access}`", "write `read` or `write`"
    for where, inner in _everywhere(schema, ()):
        if where in sound:
            if inner.get("type") != "string":
                yield (
                    (*where, "x-path"),
                    "`x-path` is for properties of `type: string`",
                    "write `type: string`",
                )
        else:
            hint = "put it on a property that `properties` and `items` alone lead to"
            yield (*where, "x-path"), "`x-path` would not be checked here", hint


def _marked(
    schema: Mapping[str, Any], at: tuple[str, ...], where: Path
) -> Iterator[tuple[tuple[str, ...], Access, Path]]:
    if at and "x-path" in schema:
        yield at, cast("Access", schema["x-path"]), where
    if len(at) > _DEEPEST:
        return
    properties = schema.get("properties")
    if isinstance(properties, dict):
        for name, inner in properties.items():
            if isinstance(inner, dict):
                yield from _marked(inner, (*at, name), (*where, "properties", name))
    items = schema.get("items")
    if at and isinstance(items, dict):
        yield from _marked(items, (*at, EACH), (*where, "items"))


_DATA = frozenset({"const", "default", "enum", "examples"})


def _everywhere(
    value: object, where: Path, *, named: bool = False
) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Every subschema that carries `x-path`; in `named` mappings the keys are names of a schema's own."""
    if isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _everywhere(inner, (*where, index))
    elif isinstance(value, dict):
        if "x-path" in value and not named:
            yield where, value
        for key, inner in value.items():
            if named or key not in _DATA:
                names = not named and key in ("properties", "patternProperties", "$defs", "dependentSchemas")
                yield from _everywhere(inner, (*where, key), named=names)
