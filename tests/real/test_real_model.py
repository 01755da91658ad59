"""A turn of a real, small model whose tool call goes through the gate."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.types import CallToolResult

pytestmark = [pytest.mark.real, pytest.mark.anyio]

TOOL = "workspace_read_file"
EXAMPLES = {
    "notes.txt": "buy milk",
    "todo.txt": "call the plumber",
    "readme.txt": "start here",
}


def text_of(result: CallToolResult) -> str:
    """A result's text."""
    return "\n".join(block.text for block in result.content if block.type == "text")


async def example(client: Client, number: int, path: str, says: str) -> list[dict[str, Any]]:
    """One question answered by a call, the result being what packhost really gives for that file.

    A model this small calls a tool only when the conversation has shown it how, three times over.
    """
    call = {"type": "tool_call", "id": f"example_{number}", "name": TOOL, "input": {"path": path}}
    shown = text_of(await client.call_tool(TOOL, {"path": path}))
    return [
        {"role": "user", "content": f"What does {path} say?"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call["id"], "content": shown}]},
        {"role": "assistant", "content": f"It says: {says}"},
    ]


async def ask(client: Client) -> CallToolResult:
    """Asks the model what stands in a file that only a governed tool can read."""
    messages: list[dict[str, Any]] = []
    for number, (path, says) in enumerate(EXAMPLES.items(), start=1):
        messages += await example(client, number, path, says)
    messages.append({"role": "user", "content": "What does hello.txt say?"})
    turn = {"messages": messages, "tools": ["workspace:read_file"], "loop": True}
    return await client.call_tool("agent-runtime_execute-turn", turn)


@pytest.mark.parametrize("protocol", ["anthropic", "openai"])
async def test_a_real_model_reads_a_file_through_the_gate_without_a_stream(
    workspace: Any,
    speaking_to: Callable[..., AbstractAsyncContextManager[Client]],
    serve_model: Callable[[], AbstractContextManager[str]],
    protocol: str,
) -> None:
    for path, says in EXAMPLES.items():
        (workspace.root / path).write_text(f"{says}\n")
    with serve_model() as base_url, anyio.fail_after(120):
        async with speaking_to(protocol, base_url, stream=False, model="smollm2", timeout="60s") as client:
            result = await ask(client)

    assert not result.is_error, text_of(result)
    turn = result.structured_content
    assert turn is not None
    assert turn["outcome"] == "completed"
    assert "the harbour opens at nine" in turn["text"]
    assert turn["usage"]["output_tokens"] > 0
    assert ("call.ok", "workspace:read_file") in calls_of(workspace, turn["run_id"])


LIST = "workspace_list_directory"
FOLDERS = {
    "red": ("notes.txt", "buy milk"),
    "blue": ("todo.txt", "call the plumber"),
    "green": ("list.txt", "start here"),
    "grey": ("plan.txt", "sow the beans"),
    "pink": ("diary.txt", "it rained"),
}


async def two_calls(client: Client, folder: str, name: str, says: str) -> list[dict[str, Any]]:
    """One question answered by two calls, the second of which needs what the first one gave."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": f"List {folder}, then read its file."}]
    for number, (tool, path) in enumerate(((LIST, folder), (TOOL, f"{folder}/{name}"))):
        call = {"type": "tool_call", "id": f"{folder}_{number}", "name": tool, "input": {"path": path}}
        shown = text_of(await client.call_tool(tool, {"path": path}))
        result = {"type": "tool_result", "tool_use_id": call["id"], "content": shown}
        messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    return [*messages, {"role": "assistant", "content": f"It says: {says}"}]


@pytest.mark.parametrize("protocol", ["anthropic", "openai"])
async def test_a_real_model_streams_a_loop_in_which_one_tool_uses_what_another_gave(
    workspace: Any,
    speaking_to: Callable[..., AbstractAsyncContextManager[Client]],
    serve_model: Callable[[], AbstractContextManager[str]],
    protocol: str,
) -> None:
    for folder, (name, says) in {**FOLDERS, "gold": ("hello.txt", "the harbour opens at nine")}.items():
        (workspace.root / folder).mkdir()
        (workspace.root / folder / name).write_text(f"{says}\n")
    tools = ["workspace:list_directory", "workspace:read_file"]
    with serve_model() as base_url, anyio.fail_after(240):
        async with speaking_to(protocol, base_url, model="smollm2", timeout="120s") as client:
            messages = [
                message
                for folder, (name, says) in FOLDERS.items()
                for message in await two_calls(client, folder, name, says)
            ]
            messages.append({"role": "user", "content": "List gold, then read its file."})
            turn = {"messages": messages, "tools": tools, "loop": True}
            result = await client.call_tool("agent-runtime_execute-turn", turn)

    assert not result.is_error, text_of(result)
    run = result.structured_content
    assert run is not None
    assert (run["outcome"], run["turns"], run["tool_calls"]) == ("completed", 3, 2), run
    assert "the harbour opens at nine" in run["text"]
    assert {("call.ok", tool) for tool in tools} <= calls_of(workspace, run["run_id"])


def calls_of(workspace: Any, run_id: str) -> set[tuple[str, str]]:
    """How the audit log says that the calls of a run went: kind of event and tool."""
    events = [json.loads(line) for line in workspace.run("audit", "export").splitlines()]
    calls = [
        event for event in events if event["type"].startswith("call.") and event["execution_id"] == run_id
    ]
    return {(event["type"], event["data"]["tool"]) for event in calls}
