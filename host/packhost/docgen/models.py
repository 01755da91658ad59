"""References of file formats, from the descriptions in their models."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from packhost.docgen.markdown import code, in_cell


def model_reference(model: type[BaseModel]) -> str:
    """A table of keys for the model and for each model inside it, in the order in which they appear."""
    schema = model.model_json_schema(mode="validation")
    definitions = schema.get("$defs", {})
    parts = [_table(schema, definitions, ())]
    seen: set[str] = set()
    for path, name in _inside(schema, definitions, ()):
        if name not in seen:
            seen.add(name)
            found = definitions[name]
            heading = f"## {code('.'.join(path))}"
            parts.append(f"{heading}\n\n{_sentence(found)}\n\n{_table(found, definitions, path)}")
    return "\n\n".join(parts) + "\n"


def _table(schema: Mapping[str, Any], definitions: Mapping[str, Any], path: tuple[str, ...]) -> str:
    required = schema.get("required", ())
    lines = ["| Key | Value | Default | What it says |", "| --- | --- | --- | --- |"]
    for key, value in schema.get("properties", {}).items():
        default = "required" if key in required else _default(value)
        cells = (code(key), _kind(value, definitions), default, _says(value, definitions))
        lines.append(f"| {' | '.join(in_cell(cell) for cell in cells)} |")
    return "\n".join(lines)


def _sentence(schema: Mapping[str, Any]) -> str:
    return str(schema.get("description", "")).strip()


def _says(value: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    # A field that says the same as its model's docstring has no description of its own in the schema.
    name = _reference(value)
    return str(value.get("description") or (name and definitions[name].get("description")) or "")


def _default(value: Mapping[str, Any]) -> str:
    if value.get("default") is None:
        return ""
    return code(json.dumps(_as_written(value["default"]), ensure_ascii=False))


def _as_written(value: Any) -> Any:
    """A default as a person would write it: whole numbers whole, and nothing that is left out."""
    if isinstance(value, Mapping):
        return {key: _as_written(one) for key, one in value.items() if one is not None}
    if isinstance(value, list):
        return [_as_written(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _kind(value: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    if name := _reference(value):
        found = definitions[name]
        return "mapping" if "properties" in found else _kind(found, definitions)
    if "const" in value:
        return code(json.dumps(value["const"]))
    if "enum" in value:
        return ", ".join(code(str(word)) for word in value["enum"])
    if "anyOf" in value:
        kinds = [_kind(one, definitions) for one in value["anyOf"] if one.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    return _plain(value, definitions)


def _plain(value: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    match value.get("type"):
        case "array":
            return f"list of {_kind(value.get('items', {}), definitions)}"
        case "object":
            inner = value.get("additionalProperties")
            return (
                f"mapping to {_kind(inner, definitions)}"
                if isinstance(inner, Mapping) and inner
                else "mapping"
            )
        case "string":
            return "text"
        case "boolean":
            return "`true` or `false`"
        case "integer":
            return "whole number"
        case "number":
            return "number"
    return "any value"


def _reference(value: Mapping[str, Any]) -> str | None:
    found = value.get("$ref")
    return str(found).rpartition("/")[2] if found else None


def _inside(
    schema: Mapping[str, Any], definitions: Mapping[str, Any], path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every model below a schema with the path of keys that leads to it, a level before the next one."""
    below = []
    for key, value in schema.get("properties", {}).items():
        for name in _models(value, definitions):
            below.append(((*path, key), name))
    yield from below
    for place, name in below:
        yield from _inside(definitions[name], definitions, place)


def _models(value: Mapping[str, Any], definitions: Mapping[str, Any]) -> Iterator[str]:
    name = _reference(value)
    if name and "properties" in definitions[name]:
        yield name
    for one in value.get("anyOf", ()):
        yield from _models(one, definitions)
    for key in ("items", "additionalProperties"):
        if isinstance(value.get(key), Mapping):
            yield from _models(value[key], definitions)
