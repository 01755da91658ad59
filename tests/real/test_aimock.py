"""A scripted provider: ids, twins, parallel calls, signed thinking and streams that are cut."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import anyio
import pytest

pytestmark = [pytest.mark.real, pytest.mark.anyio]


def read(identity: str, path: str = "hello.txt") -> dict[str, str]:
    return {"id": identity, "name": "workspace_read_file", "arguments": json.dumps({"path": path})}


def scripted(said: str, response: dict[str, Any], answer: str = "", **more: Any) -> list[dict[str, Any]]:
    first = {"match": {"userMessage": said, "hasToolResult": False}, "response": response, **more}
    return [
        first,
        {"match": {"userMessage": said, "hasToolResult": True}, "response": {"content": answer or "done"}},
    ]


SIGNED = {"reasoning": "The file first.", "reasoningSignature": "c2lnbmF0dXJl"}
FIXTURES = [
    *scripted("parallel", {"content": "Two.", "toolCalls": [read("call_1"), read("call_2", "absent.txt")]}),
    *scripted("think", {**SIGNED, "toolCalls": [read("call_t")]}, "It opens at nine."),
    *scripted("twins", {"toolCalls": [read("same"), read("same")]}),
    *scripted("cut", {"toolCalls": [read("call_c")]}, truncateAfterChunks=3, latency=30),
]


def requests(url: str) -> list[dict[str, Any]]:
    """What the provider was asked, in order."""
    with urllib.request.urlopen(f"{url}/v1/_requests", timeout=5) as answer:
        return [entry["body"] for entry in json.load(answer)]


async def said(client: Any, text: str) -> dict[str, Any]:
    turn = {"messages": [{"role": "user", "content": text}], "tools": ["workspace:read_file"], "loop": True}
    with anyio.fail_after(60):
        result = await client.call_tool("agent-runtime_execute-turn", {**turn, "session_id": text})
    assert result.structured_content is not None, result.content
    return result.structured_content


@pytest.mark.parametrize(("protocol", "base"), [("openai", "/v1"), ("anthropic", "")])
async def test_a_scripted_run_is_followed_to_the_letter(
    speaking_to: Any, serve_aimock: Any, protocol: str, base: str
) -> None:
    with serve_aimock(FIXTURES) as url:
        async with speaking_to(protocol, url + base) as client:
            came = {text: await said(client, text) for text in ("parallel", "think", "twins", "cut")}
        asked = requests(url)
    told = {
        text: (run["outcome"], run["tool_calls"], run.get("error", {}).get("issue"))
        for text, run in came.items()
    }
    assert told == {
        "parallel": ("completed", 2, None),
        "think": ("completed", 1, None),
        "twins": ("protocol_error", 0, "CALL_ID_DUPLICATE"),
        "cut": ("provider_error", 0, "TERMINAL_MISSING"),
    }
    assert len(asked) == 6
    results = json.dumps(asked[1]["messages"][2:])
    assert 0 < results.index("call_1") < results.index("call_2")
    if protocol == "openai":  # what it was asked over Messages it keeps in a form without thinking
        assert asked[3]["messages"][1]["reasoning_content"] == "The file first."
