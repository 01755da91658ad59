"""What accepting changed definitions makes of a manifest, and what tools are proposed to be allowed."""

from __future__ import annotations

from typing import Any

import pytest

from packhost.kinds.mcp.pins import live_pins
from packhost.kinds.mcp.proposals import propose
from packhost.kinds.mcp.repinning import repin
from packhost.kinds.mcp.specs import own_schema, tool_name
from packhost.manifest.load import parse_manifest

MANIFEST = """\
# mine
packhost: 1
id: notes
version: "1"
title: Notes
upstream: {command: [notes]}
tools:
  # the first
  - name: read_note
    description: Reads.
    kind: mcp
    permission: read
    required_scopes: [path read **]
    config: {upstream_name: readNote}
    input_schema: {type: object, properties: {path: {type: string, x-path: read}}}
  - name: write_note   # asked
    description: Writes, as I say.
    kind: mcp
    permission: admin
    config: {upstream_name: write}
    input_schema: {type: object}
"""
PATH = {"type": "object", "properties": {"path": {"type": "string"}}}
READ = {"name": "readNote", "description": "Reads.", "inputSchema": PATH}
WRITE = {"name": "write", "description": "Writes.", "inputSchema": {"type": "object"}}


def after(*tools: dict[str, Any], pinned: tuple[dict[str, Any], ...] | None = (READ, WRITE)) -> str:
    loaded = parse_manifest(MANIFEST.encode(), "pack.yaml")
    before = None if pinned is None else live_pins(tools=pinned)
    made = repin(loaded, before, live_pins(tools=tools), {}).manifest.decode()
    parse_manifest(made.encode(), "pack.yaml")
    return made


def test_what_did_not_change_stays_to_the_byte() -> None:
    assert after(READ, WRITE) == MANIFEST


def test_a_changed_text_is_taken_over_and_a_persons_own_stays() -> None:
    made = after({**READ, "description": "Reads well."}, {**WRITE, "description": "Writes well."})
    assert "description: Reads well." in made
    assert "Writes, as I say." in made
    assert "Writes well." not in made
    assert made.startswith("# mine\n")


def test_a_changed_schema_keeps_the_marks_of_paths() -> None:
    wider = {"type": "object", "properties": {**PATH["properties"], "line": {"type": "integer"}}}  # type: ignore[dict-item]
    tool = parse_manifest(after({**READ, "inputSchema": wider}, WRITE).encode(), "pack.yaml").manifest.tools[
        0
    ]
    assert tool.input_schema["properties"]["path"] == {"type": "string", "x-path": "read"}
    assert "line" in tool.input_schema["properties"]


def test_a_tool_that_is_gone_loses_its_entry_and_a_new_one_gets_a_proposal() -> None:
    made = after(READ, {**WRITE, "name": "dropAll", "description": "Drops."})
    tools = parse_manifest(made.encode(), "pack.yaml").manifest.tools
    assert [(tool.name, tool.permission) for tool in tools] == [("read_note", "read"), ("drop_all", "admin")]


def test_where_nothing_was_accepted_the_manifest_is_the_allowlist() -> None:
    assert after(READ, WRITE, {**WRITE, "name": "other"}, pinned=None).count("- name:") == 2


def test_a_manifest_in_a_form_of_its_own_is_left_as_it_is() -> None:
    text = MANIFEST[: MANIFEST.index("tools:")] + (
        "tools: [{name: a, description: A, kind: mcp, permission: read, config: {upstream_name: readNote}}]\n"
    )
    loaded = parse_manifest(text.encode(), "pack.yaml")
    live = live_pins(tools=[{**READ, "description": "Other."}])
    assert repin(loaded, live_pins(tools=[READ]), live, {}).manifest == text.encode()


@pytest.mark.parametrize(
    ("name", "hints", "permission"),
    [
        ("get_issue", {}, "read"),
        ("listFiles", {}, "read"),
        ("get_issue", {"readOnlyHint": False}, "write"),
        ("frobnicate", {}, "write"),
        ("frobnicate", {"readOnlyHint": True}, "read"),
        ("update_issue", {"readOnlyHint": True}, "write"),
        ("create_issue", {}, "write"),
        ("delete_issue", {}, "admin"),
        ("run_query", {"readOnlyHint": True}, "write"),
        ("execute", {}, "admin"),
        ("get_env", {"readOnlyHint": True}, "write"),
        ("read_and_delete", {"readOnlyHint": True}, "write"),
    ],
)
def test_permissions_are_proposed_the_careful_way(name: str, hints: dict[str, bool], permission: str) -> None:
    assert propose({"name": name, "annotations": hints}, local=True).permission == permission


@pytest.mark.parametrize(
    ("properties", "paths"),
    [
        ({"path": {"type": "string"}}, [("path",)]),
        ({"sourceFile": {"type": "string"}, "text": {"type": "string"}}, [("sourceFile",)]),
        ({"paths": {"type": "array", "items": {"type": "string"}}}, [("paths", "*")]),
        ({"path": {"type": "string"}, "owner": {"type": "string"}}, []),
        ({"path": {"type": "string", "enum": ["a"]}}, []),
        ({"file": {"type": "integer"}}, []),
    ],
)
def test_arguments_that_are_paths_are_marked_where_they_are_of_this_machine(
    properties: dict[str, Any], paths: list[tuple[str, ...]]
) -> None:
    definition = {"name": "x", "inputSchema": {"type": "object", "properties": properties}}
    assert list(propose(definition, local=True).paths) == paths
    assert propose(definition, local=False).paths == ()


@pytest.mark.parametrize(
    ("original", "name"),
    [
        ("readNote", "read_note"),
        ("read-note", "read-note"),
        ("HTTPGet", "http_get"),
        ("9lives", "t_9lives"),
        ("…", "tool"),
    ],
)
def test_names_become_what_a_manifest_takes(original: str, name: str) -> None:
    assert tool_name(original, "notes", set()) == name


def test_a_name_that_is_taken_or_too_long_gets_a_mark_of_its_own() -> None:
    first, second = tool_name("a.b", "notes", {"a_b"}), tool_name("x" * 90, "notes", set())
    assert first.startswith("a_b_")
    assert len(f"notes_{second}") <= 64
    assert tool_name("x" * 90, "notes", set()) == second != tool_name("x" * 91, "notes", set())


def test_a_schema_of_another_dialect_becomes_one_of_ours() -> None:
    old = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "properties": {
            "x-path": {"type": "string", "x-path": "read"},
            "pair": {"items": [{}, {}], "additionalItems": False},
        },
    }
    assert own_schema(old) == {
        "type": "object",
        "properties": {"x-path": {"type": "string"}, "pair": {"prefixItems": [{}, {}], "items": False}},
    }
