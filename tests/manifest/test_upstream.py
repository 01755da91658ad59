"""The block `upstream` of a manifest: what is wrong with it is said with its place."""

from __future__ import annotations

import json
from typing import Any

import pytest

from packhost.errors import ManifestInvalid
from packhost.manifest.load import parse_manifest
from packhost.manifest.upstream import UpstreamSpec, address_of, filled, scope_of

TOOL = {
    "name": "echo",
    "description": "Echo.",
    "kind": "mcp",
    "permission": "read",
    "config": {"upstream_name": "echo"},
}


def loaded(upstream: Any, **tool: Any) -> Any:
    head = {"packhost": 1, "id": "up", "version": "1", "title": "Up"}
    block = {} if upstream is None else {"upstream": upstream}
    text = json.dumps({**head, **block, "tools": [{**TOOL, **tool}]}, indent=1)
    return parse_manifest(text.encode(), "pack.yaml").manifest


def test_a_command_or_a_url_is_a_server() -> None:
    assert loaded({"command": ["server", "-x"], "args": ["y"]}).upstream.line == ("server", "-x", "y")
    url = "https://mcp.example/mcp"
    assert loaded({"url": url}, required_scopes=["network mcp.example"]).upstream.url == url


@pytest.mark.parametrize(
    ("upstream", "said"),
    [
        (None, "needs the block `upstream`"),
        ({}, "neither or both"),
        ({"command": ["x"], "url": "https://a.example/"}, "neither or both"),
        ({"command": ["x"], "headers": {"a": "b"}}, "`upstream.headers` does not go with a command"),
        ({"url": "https://a.example/", "env": {"A": "b"}}, "`upstream.env` does not go with a server by URL"),
        ({"url": "ftp://a.example/"}, "no address of the web"),
        ({"url": "https://user@a.example/"}, "no address of the web"),
        ({"command": ["x", "{{secret:KEY}}"]}, "cannot hold a secret"),
        ({"command": ["x"], "env": {"A B": "c"}}, "not the name of a variable"),
        ({"command": ["x"], "readable": ["/a"]}, "holds nothing without a sandbox"),
        ({"command": ["x"], "sandbox": "kernel", "readable": ["a"]}, "not an absolute path"),
        ({"url": "https://a.example/", "headers": {"host": "b"}}, "not a header that can be given"),
        ({"url": "https://a.example/", "headers": {"mcp-session-id": "b"}}, "not a header that can be given"),
        ({"url": "https://a.example/", "headers": {"x": "a\nb"}}, "holds a control character"),
        (
            {"url": "https://a.example/", "auth": "oauth", "headers": {"Authorization": "b"}},
            "gives this header",
        ),
        ({"url": "https://a.example/", "auth": {"client_secret": "plain"}}, "not `{{secret:NAME}}`"),
        ({"command": ["x"], "concurrency": 0}, "concurrency"),
        ({"command": ["x"], "sandbx": "none"}, "did you mean `sandbox`?"),
    ],
)
def test_what_is_wrong_is_said(upstream: Any, said: str) -> None:
    with pytest.raises(ManifestInvalid) as wrong:
        loaded(upstream, required_scopes=["network a.example"])
    found = [f"{one.message} {one.hint}" for one in wrong.value.data["problems"]]
    assert any(said in one for one in found), found
    assert wrong.value.place is not None


@pytest.mark.parametrize(
    ("upstream", "scopes", "wanted"),
    [
        ({"url": "https://a.example/"}, [], "add `network a.example` to"),
        ({"url": "https://a.example:8443/"}, ["network b.example"], "add `network a.example:8443` to"),
        ({"url": "http://127.0.0.1:80/"}, ["network 127.0.0.1"], "add `network 127.0.0.1:80` to"),
        ({"url": "http://[::1]:80/"}, [], "add `network [::1]:80` to"),
        ({"command": ["x"], "env": {"A": "b {{secret:KEY}}"}}, [], "add `secret KEY` to"),
    ],
)
def test_each_tool_declares_what_reaching_its_server_takes(upstream: Any, scopes: Any, wanted: str) -> None:
    with pytest.raises(ManifestInvalid) as wrong:
        loaded(upstream, required_scopes=scopes)
    assert any(wanted in one.hint for one in wrong.value.data["problems"])
    right = wanted.split("`")[1]
    assert loaded(upstream, required_scopes=[right]).tools[0].required_scopes == (right,)


def test_secrets_are_put_where_they_are_named() -> None:
    spec = UpstreamSpec(
        url="https://a.example/", headers={"a": "Bearer {{secret:X}}", "b": "{{ secret:Y }}{{secret:X}}"}
    )
    assert spec.secrets == ("X", "Y")
    assert filled(tuple(spec.headers.items()), {"X": "1", "Y": "2"}) == {"a": "Bearer 1", "b": "21"}


def test_an_address_is_host_port_and_whether_it_is_encrypted() -> None:
    assert address_of("https://A.example/x") == ("a.example", 443, True)
    assert address_of("http://a.example:8080") == ("a.example", 8080, False)
    assert address_of("https://a.example:x/") is None
    assert scope_of("http://a.example/") == "network a.example:80"
