"""Which requests are told to bring tools that are given secrets."""

from __future__ import annotations

from typing import Any

import pytest

from packhost.gate.inline import names_secrets, tool_of
from packhost.rules.scopes import SecretScope, parse_scope


def external(secret: str) -> dict[str, Any]:
    return {
        "name": "ask",
        "description": "Asks.",
        "tool_type": "external",
        "parameters_schema": {"type": "object"},
        "config": {
            "url": "https://api.example.com/",
            "headers": {"Authorization": f"Bearer {{{{secret:{secret}}}}}"},
        },
    }


@pytest.mark.parametrize("name", ["KEY", "my-key", "my.key", "_k-1.2"])
def test_a_secret_of_any_name_that_there_may_be_is_seen_and_needs_its_scope(name: str) -> None:
    assert parse_scope(f"secret {name}") == SecretScope(name)
    assert names_secrets({"runtime_tools": [external(name)]})
    assert SecretScope(name) in tool_of(external(name)).scopes


def test_a_tool_without_a_secret_names_none() -> None:
    tool = external("KEY")
    tool["config"]["headers"] = {}
    assert not names_secrets({"runtime_tools": [tool]})


def test_what_is_nested_deeper_than_can_be_read_through_counts_as_a_secret() -> None:
    deep: Any = {}
    for _ in range(5_000):
        deep = {"a": deep}
    assert names_secrets({"runtime_tools": [{"config": deep}]})
    assert not names_secrets(deep)
