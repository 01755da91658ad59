"""The OpenAPI 3.1 document, made from the very definitions that requests are validated by."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from packhost.http.events import MEDIA_TYPE as STREAM
from packhost.http.kit import Endpoint
from packhost.http.problems import CODES
from packhost.http.problems import MEDIA_TYPE as PROBLEM

_REFERENCE: Final = "#/components/schemas/{model}"
_ALWAYS: Final = (400, 401, 403, 429, 500, 503)
_LEADS: Final = {
    ("POST", "/runs"): "/agentExecutionId",
    ("GET", "/runs"): "/runs/0/id",
    ("GET", "/approvals"): "/approvals/0/id",
    ("GET", "/grants"): "/grants/0/id",
}
"""Where a reply holds an id that other paths take."""
_FRAME: Final = {
    "type": "object",
    "description": "A server-sent event: `id` is its cursor, `data` the same JSON as in a page of events.",
    "properties": {name: {"type": "string"} for name in ("id", "event", "data")},
}
_TITLES: Final = {200: "As asked.", 202: "Taken; it goes on."}


def document(endpoints: Iterable[Endpoint], version: str) -> dict[str, Any]:
    """The document of these endpoints."""
    every = tuple(endpoints)
    schemas = _schemas(every)
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in every:
        operation = _operation(endpoint, schemas, every)
        paths.setdefault(f"/v1{endpoint.path}", {})[endpoint.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "packhost",
            "version": version,
            "description": "Runs, their events, questions and the record of one packhost workspace.",
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            # of parameters each is its own schema
            "schemas": {
                **{name: schema for name, schema in schemas.items() if name not in _parametric(every)},
                "Problem": _problem(),
            },
        },
    }


def _schemas(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    models: dict[type[BaseModel], None] = {}
    for endpoint in endpoints:
        given = (*endpoint.replies.values(), endpoint.body, endpoint.query, endpoint.headers)
        models.update(dict.fromkeys(model for model in given if model is not None))
    _, found = models_json_schema([(model, "validation") for model in models], ref_template=_REFERENCE)
    schemas: dict[str, Any] = found["$defs"]
    return schemas


def _parametric(endpoints: Iterable[Endpoint]) -> set[str]:
    return {model.__name__ for one in endpoints for model in (one.query, one.headers) if model is not None}


def _operation(endpoint: Endpoint, schemas: Mapping[str, Any], every: Iterable[Endpoint]) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status, model in endpoint.replies.items():
        content: dict[str, Any] = {"application/json": {"schema": _reference(model)}}
        if endpoint.streams and status == 200:
            content[STREAM] = {"schema": _FRAME}
        responses[str(status)] = {"description": _TITLES[status], "content": content}
        if (found := _links(endpoint, every)) is not None:
            responses[str(status)]["links"] = found
    body = (413, 415) if endpoint.body is not None else ()
    for status in sorted({*_ALWAYS, *endpoint.problems, *body}):
        responses[str(status)] = {
            "description": HTTPStatus(status).phrase,
            "content": {PROBLEM: {"schema": {"$ref": _REFERENCE.format(model="Problem")}}},
        }
    operation: dict[str, Any] = {
        "operationId": _name(endpoint),
        "summary": endpoint.summary,
        "description": f"Needs the scope `{endpoint.right}`.",
        "parameters": _parameters(endpoint, schemas),
        "responses": responses,
    }
    if endpoint.body is not None:
        content = {"application/json": {"schema": _reference(endpoint.body)}}
        operation["requestBody"] = {"content": content}
    return operation


def _name(endpoint: Endpoint) -> str:
    return "_".join([endpoint.method.lower(), *re.findall(r"[a-z]+", endpoint.path)])


def _links(endpoint: Endpoint, every: Iterable[Endpoint]) -> dict[str, Any] | None:
    """What can be done next with an id in this reply."""
    where = _LEADS.get((endpoint.method, endpoint.path))
    if where is None:
        return None
    follow = [one for one in every if one.path.startswith(f"{endpoint.path}/{{id}}")]
    return {
        _name(one): {"operationId": _name(one), "parameters": {"id": f"$response.body#{where}"}}
        for one in follow
    }


def _parameters(endpoint: Endpoint, schemas: Mapping[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in re.findall(r"\{(\w+)\}", endpoint.path)
    ]
    for model, place in ((endpoint.query, "query"), (endpoint.headers, "header")):
        if model is None:
            continue
        for name, schema in schemas[model.__name__]["properties"].items():
            shown = {key: value for key, value in schema.items() if key not in ("description", "title")}
            one = {"name": name, "in": place, "schema": _without_null(shown)}
            if "description" in schema:
                one["description"] = schema["description"]
            found.append(one)
    return found


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A parameter that is left out is not there, and never `null`."""
    choices = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    if len(choices) != 1:
        return schema
    rest = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
    return {**choices[0], **rest}


def _reference(model: type[BaseModel]) -> dict[str, Any]:
    return {"$ref": _REFERENCE.format(model=model.__name__)}


def _problem() -> dict[str, Any]:
    return {
        "type": "object",
        "description": "Problem details (RFC 9457); `hint` says what to do next.",
        "required": ["type", "title", "status", "detail", "instance", "code", "hint"],
        "properties": {
            "type": {"type": "string", "format": "uri"},
            "title": {"type": "string"},
            "status": {"type": "integer", "minimum": 400, "maximum": 599},
            "detail": {"type": "string"},
            "instance": {"type": "string"},
            "code": {"enum": list(CODES)},
            "hint": {"type": "string"},
        },
    }
