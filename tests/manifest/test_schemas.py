"""Which arguments a schema marks as paths, and the schema of the manifest itself."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest

from packhost.manifest.schema import SCHEMA_FILE, manifest_schema, schema_text, write_schema
from packhost.manifest.schemas import path_arguments, path_faults
from packhost.manifest.yaml import read_yaml
from packhost.shipped import SHIPPED_PACKS, manifests_folder, shipped_manifest

READ = {"type": "string", "x-path": "read"}
WRITE = {"type": "string", "x-path": "write"}


@pytest.mark.parametrize(
    ("properties", "found"),
    [
        ({"path": READ, "other": {"type": "string"}}, ((("path",), "read"),)),
        ({"a": {"type": "object", "properties": {"b": WRITE}}}, ((("a", "b"), "write"),)),
        ({"all": {"type": "array", "items": READ}}, ((("all", "*"), "read"),)),
        ({"x-path": READ}, ((("x-path",), "read"),)),
        (
            {"properties": {"type": "object", "properties": {"items": READ}}},
            ((("properties", "items"), "read"),),
        ),
    ],
)
def test_path_arguments_are_found_where_they_stand(properties: dict[str, Any], found: object) -> None:
    schema = {"type": "object", "properties": properties}
    assert path_arguments(schema) == found
    assert list(path_faults(schema)) == []


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "$defs": {"p": READ}, "properties": {"a": {"$ref": "#/$defs/p"}}},
        {"type": "object", "additionalProperties": READ},
        {"type": "object", "patternProperties": {"^p": READ}},
        {"type": "object", "properties": {"a": {"anyOf": [READ, {"type": "null"}]}}},
        {"type": "object", "properties": {"a": {"type": "array", "prefixItems": [READ]}}},
        {"type": "object", "x-path": "read"},
        {"type": "object", "properties": {"a": {"type": ["string", "null"], "x-path": "read"}}},
    ],
)
def test_a_path_that_no_check_would_find_is_a_fault(schema: dict[str, Any]) -> None:
    assert list(path_faults(schema)) != []


def test_data_in_a_schema_is_not_taken_for_a_mark() -> None:
    schema = {"type": "object", "properties": {"a": {"default": {"x-path": "read"}, "const": {"x-path": 1}}}}
    assert list(path_faults(schema)) == []


def test_the_committed_schema_is_fresh() -> None:
    assert (manifests_folder() / SCHEMA_FILE).read_text(encoding="utf-8") == schema_text()


def test_the_schema_is_written_as_it_is_committed(tmp_path: Any) -> None:
    write_schema(tmp_path / "x.json")
    assert json.loads((tmp_path / "x.json").read_text(encoding="utf-8")) == manifest_schema()


def test_the_schema_is_sound() -> None:
    jsonschema_rs.meta.validate(manifest_schema())


@pytest.mark.parametrize("pack", SHIPPED_PACKS)
def test_a_shipped_manifest_fits_the_schema(pack: str) -> None:
    data = read_yaml(shipped_manifest(pack).read_bytes(), pack).data
    jsonschema_rs.Draft202012Validator(manifest_schema()).validate(data)


def test_every_field_of_the_manifest_is_described() -> None:
    schema = manifest_schema()
    models = [schema, *schema["$defs"].values()]
    bare = [
        f"{model.get('title')}.{name}"
        for model in models
        for name, field in model["properties"].items()
        if not field.get("description")
    ]
    assert bare == []


@pytest.mark.parametrize(
    ("change", "sound"),
    [({}, True), ({"surprise": 1}, False), ({"id": "My_Pack"}, False), ({"tools": [{"name": "x"}]}, False)],
)
def test_the_schema_tells_sound_manifests_from_others(change: dict[str, Any], sound: bool) -> None:
    base = {"packhost": 1, "id": "demo", "version": "1", "title": "Demo", "tools": []}
    assert jsonschema_rs.Draft202012Validator(manifest_schema()).is_valid({**base, **change}) is sound
