"""The OpenAPI document: made from what requests are validated by, whole and consistent."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema_rs
import pytest

from packhost.http.api import ENDPOINTS
from packhost.http.openapi import document
from packhost.http.problems import CODES, Problem

DOCUMENT = document(ENDPOINTS, "1.2.3")
OPERATIONS = [
    (method, path, operation)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
]


def references(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return own.union(*map(references, value.values()))
    return set().union(*map(references, value)) if isinstance(value, list) else set()


def test_it_is_an_openapi_3_1_document_of_this_version() -> None:
    assert DOCUMENT["openapi"] == "3.1.0"
    assert DOCUMENT["info"]["version"] == "1.2.3"
    assert json.loads(json.dumps(DOCUMENT)) == DOCUMENT


def test_every_endpoint_is_in_it_and_nothing_else() -> None:
    assert {(method, path) for method, path, _ in OPERATIONS} == {
        (one.method.lower(), f"/v1{one.path}") for one in ENDPOINTS
    }
    names = [operation["operationId"] for *_, operation in OPERATIONS]
    assert len(names) == len(set(names))


def test_every_reference_leads_somewhere() -> None:
    known = {f"#/components/schemas/{name}" for name in DOCUMENT["components"]["schemas"]}
    assert references(DOCUMENT) == known


@pytest.mark.parametrize("name", DOCUMENT["components"]["schemas"])
def test_every_schema_is_one_and_closed(name) -> None:
    schema = DOCUMENT["components"]["schemas"][name]
    jsonschema_rs.Draft202012Validator(
        {**schema, "components": {"schemas": DOCUMENT["components"]["schemas"]}}, validate_formats=True
    )
    if schema.get("type") == "object" and name != "Problem":
        assert schema["additionalProperties"] is False


@pytest.mark.parametrize(("method", "path", "operation"), OPERATIONS)
def test_every_operation_names_its_parameters_its_scope_and_its_refusals(method, path, operation) -> None:
    named = {one["name"] for one in operation["parameters"] if one["in"] == "path"}
    assert named == set(re.findall(r"\{(\w+)\}", path))
    assert operation["description"].startswith("Needs the scope `")
    assert {"400", "401", "403", "429", "500"} <= operation["responses"].keys()
    for status, response in operation["responses"].items():
        kinds = response["content"].keys()
        assert ("application/problem+json" in kinds) == (int(status) >= 400)


def test_every_problem_fits_its_schema() -> None:
    schema = DOCUMENT["components"]["schemas"]["Problem"]
    validator = jsonschema_rs.Draft202012Validator(schema, validate_formats=True)
    for code in CODES:
        assert validator.is_valid(Problem(409, code, "it is so", hint="do that", more=1).as_json("/v1/x"))
