"""Clients' known limits: what of a list does not reach their model, and that lists come by pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_host import make_tool
from mcp import MCPError
from mcp import types as t

from packhost.server.catalog import OWN, as_mcp
from packhost.server.profiles import PROFILES, profile_of, trouble


def tool(name: str, description: str = "does it") -> t.Tool:
    return t.Tool(name=name, description=description, input_schema={"type": "object"})


@pytest.mark.parametrize(
    ("client", "title"),
    [
        ("claude-code", "Claude Code"),
        ("cursor-vscode", "Cursor"),
        ("Visual Studio Code - Insiders", "Visual Studio Code"),
        ("codex-mcp-client", "Codex"),
        ("somebody else", None),
        ("", None),
    ],
)
def test_a_client_is_known_by_how_its_name_begins(client: str, title: str | None) -> None:
    found = profile_of(client)
    assert (found.title if found else None) == title


@pytest.mark.parametrize("profile", PROFILES, ids=lambda one: one.title)
def test_each_limit_has_a_source_and_is_told_just_beyond_it(profile: Any) -> None:
    assert profile.source
    room = profile.longest_name - len(profile.prefix)
    assert list(trouble(profile, [tool("n" * room)], "")) == []
    (said,) = trouble(profile, [tool("n" * (room + 1))], "")
    assert f"over {profile.longest_name} characters" in said
    assert "`names` in packhost.yaml" in said
    if profile.most_tools is not None:
        many = [tool(f"t{number}") for number in range(profile.most_tools + 1)]
        assert list(trouble(profile, many[1:], "")) == []
        (said,) = trouble(profile, many, "")
        assert f"here are {len(many)}" in said
    if profile.longest_text is not None:
        long = "w" * (profile.longest_text + 1)
        assert list(trouble(profile, [tool("t", long[1:])], long[1:])) == []
        assert len(list(trouble(profile, [tool("t", long)], long))) == 2


def test_one_tool_of_the_host_alone_is_always_loaded() -> None:
    everything = [*OWN, as_mcp(make_tool("echo"))]
    assert [one.name for one in everything if (one.meta or {}).get("anthropic/alwaysLoad")] == [
        "packhost_status"
    ]


@pytest.mark.parametrize(("permission", "hint"), [("read", 100_000), ("write", None), ("admin", None)])
def test_what_ours_read_is_shown_whole(permission: str, hint: int | None) -> None:
    meta = as_mcp(make_tool("it", permission)).meta or {}
    assert meta.get("anthropic/maxResultSizeChars") == hint


@pytest.mark.anyio
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_thousands_of_tools_come_by_pages(serve: Any, era: str) -> None:
    async with serve("stdio", era) as served:
        served.gate.tools = {f"t{number}": make_tool(f"t{number}") for number in range(2500)}
        served.host.generation += 1
        async with served.client() as client:
            names, cursor, sizes = [], None, []
            while True:
                listed = await client.list_tools(cursor=cursor)
                names += [one.name for one in listed.tools]
                sizes.append(len(listed.tools))
                cursor = listed.next_cursor
                if cursor is None:
                    break
            assert sizes == [1000, 1000, 502]
            assert len(set(names)) == 2502
            assert names[:2] == ["packhost_status", "packhost_explain"]
            with pytest.raises(MCPError, match="the cursor leads nowhere"):
                await client.list_tools(cursor="00")


@pytest.mark.anyio
async def test_the_status_says_what_its_client_does_not_show(serve: Any) -> None:
    async with serve("stdio", "modern") as served:
        served.gate.tools["t" * 60] = make_tool("t" * 60)
        served.host.generation += 1
        info = t.Implementation(name="cursor-vscode", version="1")
        async with served.client(client_info=info) as client:
            found = (await client.call_tool("packhost_status", {})).structured_content
            assert found is not None
            assert "over 60 characters" in found["client"]["limits"][0]
        async with served.client() as client:
            found = (await client.call_tool("packhost_status", {})).structured_content
            assert found is not None
            assert "client" not in found


def test_the_page_has_each_clients_limits() -> None:
    page = (Path(__file__).parents[2] / "docs/serving.md").read_text()
    for one in PROFILES:
        output = f"{one.most_output} tokens" if one.most_output else None
        cells = [one.title, one.longest_name, one.most_tools, one.longest_text, output, one.source]
        row = "|".join(f" {cell} " if cell is not None else " " for cell in cells)
        assert f"|{row}|\n" in page
