"""The subset of JSON Schema agrees with a whole implementation wherever it gives a verdict."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packhost.trace import check_schema


def found(value: Any, schema: Any) -> list[tuple[str, str]]:
    said: list[tuple[str, str]] = []
    check_schema(value, schema, lambda code, path, detail: said.append((code, path)))
    return said


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        ({"type": "integer"}, 1.0, []),
        ({"type": "integer"}, 1.5, [("SCHEMA_TYPE", "")]),
        ({"type": ["string", "null"]}, None, []),
        ({"type": "number"}, True, [("SCHEMA_TYPE", "")]),
        ({"enum": [1, "a"]}, 1.0, []),
        ({"enum": [1]}, True, [("SCHEMA_ENUM", "")]),
        ({"const": {"a": [1]}}, {"a": [1]}, []),
        ({"properties": {"a/b": {"type": "string"}}}, {"a/b": 1}, [("SCHEMA_TYPE", "/a~1b")]),
        ({"items": {"type": "string"}}, ["a", 1], [("SCHEMA_TYPE", "/1")]),
        ({"prefixItems": [{}, {"type": "null"}], "items": False}, [1, 2], [("SCHEMA_TYPE", "/1")]),
        ({"additionalProperties": {"type": "string"}}, {"a": 1}, [("SCHEMA_TYPE", "/a")]),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, 1, [("SCHEMA_TYPE", "")]),
        ({"oneOf": [{"minimum": 1}, {"minimum": 2}]}, 3, [("SCHEMA_ENUM", "")]),
        ({"not": {"const": 1}}, 1, [("SCHEMA_ENUM", "")]),
        ({"$defs": {"s": {"type": "string"}}, "$ref": "#/$defs/s"}, 1, [("SCHEMA_TYPE", "")]),
        ({"$ref": "https://example.org/s"}, 1, [("SCHEMA_UNSUPPORTED_KEYWORD", "")]),
        ({"pattern": "^[a-z]+$"}, "abc\n", [("SCHEMA_BOUND", "")]),
        ({"pattern": "^(a|b)$"}, "a", [("SCHEMA_UNSUPPORTED_KEYWORD", "")]),
        ({"uniqueItems": True}, [1, 1], [("SCHEMA_BOUND", "")]),
        ({"x-path": "read", "format": "uri", "title": "t"}, 1, []),
        ({"propertyNames": {}}, {}, [("SCHEMA_UNSUPPORTED_KEYWORD", "")]),
        ({"type": "thing"}, {}, [("SCHEMA_UNSUPPORTED_KEYWORD", "")]),
        (True, 1, []),
        (5, 1, [("SCHEMA_UNSUPPORTED_KEYWORD", "")]),
    ],
)
def test_a_keyword_says_what_breaks_it_and_where(
    schema: Any, value: Any, expected: list[tuple[str, str]]
) -> None:
    assert found(value, schema) == expected


TYPES = ["object", "array", "string", "integer", "number", "boolean", "null"]
BASE = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(TYPES) | st.lists(st.sampled_from(TYPES), min_size=1, unique=True),
        "minimum": st.integers(-3, 3),
        "exclusiveMaximum": st.integers(-3, 3),
        "minLength": st.integers(0, 3),
        "maxItems": st.integers(0, 2),
        "minProperties": st.integers(0, 2),
        "required": st.lists(st.sampled_from("abc"), unique=True),
        "enum": st.lists(st.integers(-2, 2) | st.sampled_from("ab"), min_size=1, unique=True),
        "pattern": st.sampled_from(["^a", "b$", "[ab]+c?", "."]),
        "uniqueItems": st.booleans(),
    },
)
SCHEMAS = st.recursive(
    BASE | st.booleans(),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
            "additionalProperties": inner,
            "items": inner,
            "anyOf": st.lists(inner, min_size=1, max_size=3),
            "oneOf": st.lists(inner, min_size=1, max_size=3),
            "allOf": st.lists(inner, min_size=1, max_size=2),
            "not": inner,
        },
    ),
    max_leaves=8,
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-4, 4) | st.floats(-3, 3, width=16) | st.text("abc", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


@given(SCHEMAS, VALUES)
def test_the_verdict_is_that_of_a_whole_implementation(schema: Any, value: Any) -> None:
    assert (found(value, schema) == []) == jsonschema_rs.validator_for(schema).is_valid(value)
