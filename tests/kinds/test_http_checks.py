"""What is wrong with a tool of kind `http` is said when its manifest loads."""

from __future__ import annotations

from typing import Any

import pytest

from packhost.kinds.http import HttpKind
from packhost.kinds.http_config import describe
from packhost.manifest.model import ToolSpec

SCOPES = ("network api.example", "secret KEY")
URL = "https://api.example/users/{{id}}"


def spec(config: dict[str, Any], **more: Any) -> ToolSpec:
    more.setdefault("permission", "read")
    more.setdefault("required_scopes", SCOPES)
    properties = {
        "id": {"type": "string"},
        "region": {"enum": ["a", "b"]},
        "_tenant": {},
        "odd": {"enum": ["x/"]},
    }
    more.setdefault("input_schema", {"type": "object", "properties": properties})
    return ToolSpec(name="ask", description="Asks.", kind="http", config=config, **more)


def problems(config: dict[str, Any], **more: Any) -> list[str]:
    return HttpKind().check(spec(config, **more))


@pytest.mark.parametrize(
    ("config", "more"),
    [
        ({"url": URL}, {}),
        ({"url": URL, "method": "GET", "headers": {"Authorization": "Bearer {{secret:KEY}}"}}, {}),
        (
            {"url": URL, "body": {"a": ["{{id}}", "{{_tenant.id}}", "{{_identity.token}}", "{{_flow.id}}"]}},
            {},
        ),
        ({"url": URL, "body": {"template": "Dear {{first_name}}"}}, {}),
        ({"url": URL, "headers": {"X-Flow": "{{_flow.id}}"}}, {}),
        ({"url": "https://api.example:8443/"}, {"required_scopes": ("network api.example",)}),
        ({"url": "http://10.0.0.1:80/"}, {"required_scopes": ("network 10.0.0.1:80",)}),
        (
            {"url": "https://{{region}}.api.example/"},
            {"required_scopes": ("network a.api.example", "network b.api.example")},
        ),
        (
            {
                "url": URL,
                "headers": {"Content-Type": "application/merge-patch+json; charset=utf-8"},
                "body": {},
            },
            {},
        ),
        ({"url": URL, "retries": 5, "timeout": "5s", "max_response_bytes": "64KiB", "response": "text"}, {}),
        ({"url": URL, "retries": 0}, {"permission": "write"}),
    ],
)
def test_a_sound_tool_has_no_problems(config: dict[str, Any], more: dict[str, Any]) -> None:
    assert problems(config, **more) == []


@pytest.mark.parametrize(
    ("config", "more", "said"),
    [
        ({}, {}, "`config.url` is missing"),
        ({"url": URL, "metod": "GET"}, {}, "has no `metod`: did you mean `method`?"),
        ({"url": URL, "method": "PATCH"}, {}, "`config.method` cannot be `PATCH`"),
        ({"url": URL, "retries": 9}, {}, "`config.retries`"),
        ({"url": URL, "timeout": "soon"}, {}, "`config.timeout`: `soon` is not a duration"),
        ({"url": URL, "max_response_bytes": "9MiB"}, {}, "`config.max_response_bytes`"),
        ({"url": URL, "headers": {"X-A": 1}}, {}, "`config.headers.X-A`"),
        ({"url": "not a url"}, {}, "`config.url` holds a blank"),
        ({"url": "ftp://api.example/"}, {}, "`config.url` is no URL"),
        ({"url": "https://127.1/"}, {}, "`config.url`: "),
        ({"url": "https://api.example/#x"}, {}, "has a fragment"),
        (
            {"url": "https://api.example/{{idd}}"},
            {},
            "`{{idd}}` in `config.url` is no argument: did you mean `{{id}}`?",
        ),
        ({"url": "https://api.example/{{customer}}"}, {}, "`{{customer}}` in `config.url` is no argument"),
        (
            {"url": URL, "headers": {"X-A": "{{customer}}"}},
            {},
            "`{{customer}}` in `config.headers.X-A` is no argument",
        ),
        ({"url": URL, "body": {"a": "{{regio}}"}}, {}, "did you mean `{{region}}`?"),
        (
            {"url": URL, "body": {"a": ["{{ id }}"]}},
            {},
            "`{{ id }}` in `config.body` is text: write `{{id}}`",
        ),
        ({"url": URL, "headers": {"X-A": "b {{ secret:KEY }}"}}, {}, "is text: write `{{secret:KEY}}`"),
        ({"url": URL, "body": "{{secret:OTHER}}"}, {}, "add `secret OTHER` to `required_scopes`"),
        (
            {"url": "https://evil.example/{{id}}"},
            {},
            "the manifest does not cover `network evil.example:443`",
        ),
        ({"url": "http://api.example/"}, {}, "`api.example` is not encrypted"),
        ({"url": "http://api.example/"}, {"required_scopes": ()}, "does not cover `network api.example:80`"),
        ({"url": "https://{{id}}.example/"}, {}, "`{{id}}` in `config.url` would choose the host"),
        ({"url": "https://{{secret:KEY}}.example/"}, {}, "would choose the host"),
        ({"url": "https://{{_tenant.id}}.example/"}, {}, "would choose the host"),
        ({"url": "https://{{region}}.api.example/"}, {}, "does not cover `network a.api.example:443`"),
        ({"url": "https://{{odd}}.example/"}, {}, "`x/.example` is no host"),
        ({"url": URL, "headers": {"Host": "evil.example"}}, {}, "the header `host` is set by the host"),
        ({"url": URL, "headers": {"X A": "b"}}, {}, "the header `x a` is no header's name"),
        ({"url": URL, "headers": {"X-A": "b\r\nX-B: c"}}, {}, "the header `x-a` holds a line break"),
        ({"url": URL, "headers": {"X-A": "b", "x-a": "c"}}, {}, "stands twice"),
        ({"url": URL, "method": "GET", "body": {}}, {}, "`config.body` cannot go with `GET`"),
        ({"url": URL, "body": {}, "headers": {"Content-Type": "text/plain"}}, {}, "`config.body` is JSON"),
        ({"url": URL, "retries": 1}, {"permission": "write"}, "`config.retries` is for idempotent tools"),
        ({"url": URL, "timeout": "2m"}, {}, "`config.timeout` bounds one attempt"),
        ({"url": URL}, {"target": "a:b"}, "`target` is for kind `python`"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(config: dict[str, Any], more: dict[str, Any], said: str) -> None:
    found = problems(config, **more)
    assert len(found) == (2 if "region" in str(config) and "host" not in said and "cover" in said else 1), (
        found
    )
    assert said in found[0]


def test_a_tool_is_described_by_method_url_and_the_names_of_its_secrets() -> None:
    config = {
        "url": "https://api.example/{{id}}?key={{secret:KEY}}",
        "method": "GET",
        "headers": {"X-Other": "{{secret:OTHER}}", "X-Id": "{{_identity.token}}"},
    }
    said = (
        "`GET https://api.example/{{id}}?key={{secret:KEY}}`; secrets `KEY`, `OTHER`; an identity assertion"
    )
    assert describe(spec(config)) == said
    assert describe(spec({"url": URL})) == f"`POST {URL}`"
    assert describe(spec({})) == ""
