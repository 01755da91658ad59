"""The main job on every transport and in both eras: see tools, call, be refused, be asked, be on record."""

from __future__ import annotations

import json
import os

import pytest

pytestmark = pytest.mark.anyio

ASKED = """
packhost: 1
bound: [path read **, path write src/**, path write .agent-runtime/**]
policy:
  - match: {pack: workspace, permission: write}
    decide: ask
    reason: writes are looked at first
"""


def text_of(result):
    return "".join(block.text for block in result.content)


def code_of(result):
    assert result.is_error, text_of(result)
    assert result.structured_content is None
    return result.meta["packhost/refusal"]["code"]


async def test_a_client_sees_governed_tools_and_calls_one(world, connect):
    world.write("a.txt", "hello\n")
    async with connect() as client:
        names = {tool.name: tool for tool in (await client.list_tools()).tools}
        result = await client.call_tool("workspace_read_file", {"path": "a.txt"})
    assert {"workspace_read_file", "agent-runtime_execute-turn", "packhost_status"} <= names.keys()
    assert names["workspace_read_file"].annotations.read_only_hint is True
    assert names["workspace_write_file"].annotations.read_only_hint is False
    assert names["workspace_read_file"].meta["packhost/tool"] == "workspace:read_file"
    assert result.structured_content["content"] == "hello\n"


@pytest.mark.parametrize(("answer", "written"), [("accept", True), ("decline", False), ("cancel", False)])
async def test_a_write_happens_exactly_when_a_person_accepts(world, connect, dialog, answer, written):
    world.write("packhost.yaml", ASKED)
    world.accept()
    asked = dialog(answer)
    async with connect(asked) as client:
        result = await client.call_tool("workspace_write_file", {"path": "src/a.txt", "content": "new\n"})
    assert (world.root / "src" / "a.txt").exists() is written
    assert "+new" in asked.shown[0]
    if answer == "decline":
        assert code_of(result) == "APPROVAL_DENIED"
    if answer == "cancel":
        assert code_of(result) == "APPROVAL_REQUIRED"
        assert "packhost approvals approve ap_" in text_of(result)
    world.stop()
    verified = world.json("audit", "verify")
    assert verified["ok"] is True
    kinds = [json.loads(line)["type"] for line in world.run("audit", "export").stdout.splitlines()]
    assert ("call.ok" in kinds) is written


@pytest.mark.parametrize(
    "path",
    [
        "../x",
        "/etc/passwd",
        "src/../../x",
        "src/link",
        "src/hard",
        "proc-root/etc/passwd",
        "a\0b",
        "",
        "other/x",
    ],
)
async def test_no_spelling_of_a_path_leads_outside(world, path):
    world.write("packhost.yaml", "packhost: 1\nbound: [path read src/**, path write src/**]\n")
    world.accept()
    outside = world.root.parent / "secret"
    outside.write_text("secret")
    (world.root / "src").mkdir()
    (world.root / "src" / "link").symlink_to(outside)
    os.link(outside, world.root / "src" / "hard")
    (world.root / "proc-root").symlink_to("/proc/self/root")
    async with world.client() as client:
        read = await client.call_tool("workspace_read_file", {"path": path})
        written = await client.call_tool("workspace_write_file", {"path": path, "content": "x"})
    assert "secret" not in text_of(read).replace("src/", "")
    assert read.is_error
    assert written.is_error
    assert outside.read_text() == "secret"


async def test_wrong_arguments_and_unknown_tools_are_clear_refusals(world, connect):
    async with connect() as client:
        wrong = await client.call_tool("workspace_read_file", {"path": 7})
        unknown = await client.call_tool("workspace_raed_file", {"path": "a"})
        assert code_of(wrong) == "INVALID_INPUT"
        assert wrong.meta["packhost/refusal"]["path"] == "/path"
        assert code_of(unknown) == "TOOL_NOT_FOUND"
        assert "workspace_read_file" in text_of(unknown)


async def test_a_large_result_passes_and_a_larger_one_is_refused(world, connect):
    world.write("packhost.yaml", "packhost: 1\nlimits: {max_result_bytes: 16MiB}\n")
    world.accept()
    world.write("big.txt", ("x" * 99 + "\n") * 20_000)
    async with connect() as client:
        whole = await client.call_tool("workspace_read_file", {"path": "big.txt"})
        assert not whole.is_error
        assert (await client.call_tool("workspace_list_directory", {})).is_error is not True


async def test_explain_tells_beforehand_and_runs_nothing(world, connect):
    world.write("packhost.yaml", ASKED)
    world.accept()
    async with connect() as client:
        said = await client.call_tool(
            "packhost_explain",
            {"tool": "workspace_write_file", "arguments": {"path": "src/a", "content": "x"}},
        )
    assert said.structured_content["verdict"] == "ask"
    assert not (world.root / "src").exists()
