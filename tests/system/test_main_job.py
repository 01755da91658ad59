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


async def test_a_write_happens_once_a_person_accepts(world, connect, dialog):
    world.write("packhost.yaml", ASKED)
    world.accept()
    asked = dialog("accept")
    async with connect(asked) as client:
        await client.call_tool("workspace_write_file", {"path": "src/a.txt", "content": "new\n"})
    assert (world.root / "src" / "a.txt").read_text() == "new\n"
    assert "+new" in asked.shown[0]


@pytest.mark.parametrize(
    ("answer", "code"), [("decline", "APPROVAL_DENIED"), ("cancel", "APPROVAL_REQUIRED")]
)
@pytest.mark.slow
async def test_a_write_that_nobody_accepts_does_not_happen(world, dialog, era, answer, code):
    world.write("packhost.yaml", ASKED)
    world.accept()
    async with world.client(era, dialog(answer)) as client:
        result = await client.call_tool("workspace_write_file", {"path": "src/a.txt", "content": "new\n"})
    assert code_of(result) == code
    assert not (world.root / "src").exists()


@pytest.mark.slow
async def test_all_of_it_is_on_record(world, dialog):
    world.write("packhost.yaml", ASKED)
    world.accept()
    async with world.client("auto", dialog("accept", "decline")) as client:
        for name in ("a", "b"):
            await client.call_tool("workspace_write_file", {"path": f"src/{name}", "content": name})
    assert world.json("audit", "verify")["ok"] is True
    lines = [json.loads(line) for line in world.run("audit", "export").stdout.splitlines()]
    said = [line["type"] for line in lines]
    assert [kind for kind in said if kind.startswith("approval.")] == [
        "approval.requested",
        "approval.approved",
        "approval.requested",
        "approval.denied",
    ]
    (started,) = [line["data"] for line in lines if line["type"] == "call.started"]
    assert started["arguments"] == {"path": "src/a", "content": "a"}
    assert said.count("call.ok") == 1
    assert said.count("call.refused") == 1


OUTSIDE = (
    "../x",
    "/etc/passwd",
    "src/../../x",
    "src/link",
    "src/hard",
    "proc-root/etc/passwd",
    "a\0b",
    "",
    "other/x",
)


@pytest.mark.slow
async def test_no_spelling_of_a_path_leads_outside(world):
    world.write("packhost.yaml", "packhost: 1\nbound: [path read src/**, path write src/**]\n")
    world.accept()
    outside = world.root.parent / "secret"
    outside.write_text("secret")
    (world.root / "src").mkdir()
    (world.root / "src" / "link").symlink_to(outside)
    os.link(outside, world.root / "src" / "hard")
    (world.root / "proc-root").symlink_to("/proc/self/root")
    passed = []
    async with world.client() as client:
        for path in OUTSIDE:
            read = await client.call_tool("workspace_read_file", {"path": path})
            written = await client.call_tool("workspace_write_file", {"path": path, "content": "x"})
            told = "secret" in text_of(read).replace("src/", "")
            if told or not read.is_error or not written.is_error:
                passed.append(path)
    assert passed == []
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
