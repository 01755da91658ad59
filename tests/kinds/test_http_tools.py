"""Tools of kind `http`, built from Python."""

from __future__ import annotations

from typing import Any

import pytest

from packhost.api import http_tool
from packhost.errors import ManifestInvalid
from packhost.kinds.http import HttpKind

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def test_a_tool_is_built_with_the_scopes_that_its_request_shows() -> None:
    spec = http_tool(
        "get_weather",
        "https://api.example/v1/current?city={{city}}",
        description="Get the weather of a city.",
        input_schema=SCHEMA,
        method="GET",
        headers={"Authorization": "Bearer {{secret:WEATHER_KEY}}"},
        config={"retries": 1},
        title="Weather",
    )
    assert (spec.kind, spec.permission, spec.idempotent, spec.title) == ("http", "read", True, "Weather")
    assert spec.required_scopes == ("network api.example", "secret WEATHER_KEY")
    assert HttpKind().check(spec) == []


def test_a_url_with_a_port_of_its_own_names_it_in_the_scope() -> None:
    spec = http_tool("send", "http://10.0.0.1:8080/", description="Send.")
    assert spec.required_scopes == ("network 10.0.0.1:8080",)


def test_a_post_writes_and_its_body_is_a_template() -> None:
    spec = http_tool("send", "https://api.example/", description="Send.", body={"to": "{{_endUser.id}}"})
    assert (spec.permission, spec.idempotent, spec.config["method"]) == ("write", False, "POST")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"url": "nowhere"}, "is no URL"),
        ({"required_scopes": ["network other.example"]}, "does not cover"),
        ({"name": "Not A Name"}, "is not a tool"),
        ({"config": {"retry": 1}}, "has no `retry`"),
        ({"colour": "red"}, "is not a tool"),
    ],
)
def test_a_tool_that_could_not_be_loaded_is_not_built(more: dict[str, Any], said: str) -> None:
    fields: dict[str, Any] = {"name": "ask", "url": "https://api.example/", "description": "Ask.", **more}
    with pytest.raises(ManifestInvalid, match=said):
        http_tool(fields.pop("name"), fields.pop("url"), **fields)
