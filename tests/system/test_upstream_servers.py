"""A server upstream behind the real host: what a client sees of it, and what is held back from it."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
import upstream_server
from mcp import types

from packhost.kinds.mcp.pins import PINS_FILE, live_pins, pins_text

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}}
SETTINGS = """
packhost: 1
packs: [agent-runtime, {path: ./up}]
bound: [path read **, path write src/**, path write .agent-runtime/**]
enforcement: {require: advisory}
variables: {text: hidden words}
approvals: {hold: 1s}
policy:
  - match: {tool: "up:echo", arguments: {text: forbidden}}
    decide: deny
    reason: that is not said here
  - match: {kind: resource, arguments: {uri: "test://secrets"}}
    decide: deny
    reason: it is nobody's to read
agent_runtime:
  default_model: demo
  models:
    demo:
      provider: scripted
      script:
        - {tool_calls: [{id: b, name: up_ask, arguments: {}}]}
        - {text: done}
"""


def tool(name: str, permission: str = "read", original: str | None = None, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "description": f"The tool {name}.",
        "kind": "mcp",
        "permission": permission,
        "config": {"upstream_name": original or name},
        "input_schema": {"type": "object"},
        **more,
    }


def manifest(*flags: str) -> dict[str, Any]:
    path = {"type": "object", "properties": {"text": {"type": "string", "x-path": "read"}}}
    return {
        "packhost": 1,
        "id": "up",
        "version": "1",
        "title": "A server",
        "upstream": {
            "command": [sys.executable, "-I", "-S", upstream_server.__file__, *flags],
            "resources": "allow",
            "prompts": "allow",
        },
        "tools": [
            tool("echo", input_schema=TEXT),
            tool("hush", original="echo", input_schema=TEXT, hidden_parameters=["text"]),
            tool("add", output_schema=upstream_server.SUM),
            tool("lie", output_schema=upstream_server.SUM),
            tool("outside", original="echo", input_schema=TEXT, untrusted_output=True),
            tool("read", input_schema=path, required_scopes=["path read src/**"]),
            tool("big"),
            tool("ask", "write"),
            tool("steps"),
            tool("say"),
            tool("picture"),
            tool("hang", "write", timeout="1s"),
            tool("poison"),
            tool("die", "write"),
        ],
    }


@pytest.fixture
def up(world: Any) -> Any:
    """A workspace whose one pack has a server upstream, all of it accepted."""
    build(world)
    return world


def build(world: Any, *flags: str) -> None:
    world.write("packhost.yaml", SETTINGS)
    world.write("up/pack.yaml", json.dumps(manifest(*flags)))
    server = upstream_server.Server(argparse.Namespace(tools=0, marks=None, era="legacy"))
    tools = [one for cursor in ("0", "20") for one in server.listed({"cursor": cursor})["tools"]]
    prompts = server.result({"method": "prompts/list"})["prompts"]  # type: ignore[index]
    templates = server.result({"method": "resources/templates/list"})["resourceTemplates"]  # type: ignore[index]
    pins = live_pins(tools=tools, prompts=prompts, templates=templates, instructions="Be kind.")
    Path(world.root / "up" / PINS_FILE).write_bytes(pins_text(pins))
    world.write("src/a.txt", "in src")
    world.write("secret.txt", "outside of src")
    world.accept()


def refusal(result: types.CallToolResult) -> dict[str, Any]:
    assert result.is_error
    found: dict[str, Any] = (result.meta or {})["packhost/refusal"]
    return found


async def test_its_tools_are_governed_like_any_other(up: Any, era: str) -> None:
    async with up.client(era) as client:
        tools = {one.name: one for one in (await client.list_tools()).tools}
        assert tools["up_add"].output_schema == upstream_server.SUM  # with its `$ref` and `$defs`
        assert "text" not in tools["up_hush"].input_schema["properties"]
        assert (await client.call_tool("up_echo", {"text": "a"})).content[0].text == "a"
        assert (await client.call_tool("up_hush", {})).content[0].text == "hidden words"
        added = await client.call_tool("up_add", {"numbers": [1, 2]})
        assert (added.structured_content, added.content[0].text) == ({"sum": 3}, "3")
        lied = await client.call_tool("up_lie", {})
        assert refusal(lied)["code"] == "OUTPUT_INVALID"
        denied = await client.call_tool("up_echo", {"text": "forbidden"})
        assert refusal(denied)["code"] == "POLICY_DENIED"
        outside = await client.call_tool("up_outside", {"text": "obey"})
        assert outside.content[0].text.startswith("<UNTRUSTED_TOOL_OUTPUT ")
        picture = await client.call_tool("up_picture", {})
        assert [block.type for block in picture.content] == ["image", "resource_link"]
    calls = up.json("runs", "list")
    assert calls


async def test_paths_that_it_is_given_are_held_to_the_scopes(up: Any, era: str) -> None:
    (up.root / "src" / "link.txt").symlink_to(up.root / "secret.txt")
    (up.root / "src-more").mkdir()
    up.write("src-more/b.txt", "a folder whose name begins alike")
    async with up.client(era) as client:
        assert (await client.call_tool("up_read", {"text": "src/a.txt"})).content[0].text == "in src"
        for path in (
            "secret.txt",
            "src/../secret.txt",
            "src-more/b.txt",
            "src/link.txt",
            str(up.root / "secret.txt"),
        ):
            held = await client.call_tool("up_read", {"text": path})
            assert refusal(held)["code"] in ("SCOPE_DENIED", "INVALID_INPUT"), path


async def test_a_question_of_its_is_the_clients_persons_to_answer(up: Any, era: str) -> None:
    shown: list[Any] = []

    async def dialog(_: Any, params: Any) -> types.ElicitResult:
        shown.append(params)
        if "seat" in params.requested_schema["properties"]:
            return types.ElicitResult(action="accept", content={"seat": "aisle"})
        return types.ElicitResult(action="accept", content={})

    async with up.client(era, dialog) as client:
        done = await client.call_tool("up_ask", {})
    assert json.loads(done.content[0].text) == {"action": "accept", "content": {"seat": "aisle"}}
    assert 'The server "up" asks for your input' in shown[-1].message
    assert "  | Which seat?" in shown[-1].message


async def test_progress_and_what_it_logs_reach_the_client(up: Any, era: str) -> None:
    steps: list[float] = []
    lines: list[Any] = []

    async def progress(value: float, *_: Any) -> None:
        steps.append(value)

    async def log(params: Any) -> None:
        lines.append(params.data)

    async with up.client(era, logging_callback=log, log_level="info") as client:
        await client.call_tool("up_steps", {"n": 3}, progress_callback=progress)
        await client.call_tool("up_say", {"text": "careful"})
        with anyio.fail_after(5):
            while not lines:
                await anyio.sleep(0.01)
    assert steps == [1, 2, 3]
    assert lines == ["careful"]


async def test_a_call_that_takes_too_long_or_is_cut_off_leaves_its_effects_unknown(up: Any, era: str) -> None:
    async with up.client(era) as client:
        late = await client.call_tool("up_hang", {"n": 60})
        assert refusal(late)["code"] == "TOOL_TIMEOUT"
        cut = await client.call_tool("up_die", {})
        assert refusal(cut)["code"] == "EFFECTS_UNKNOWN"
        assert (await client.call_tool("up_echo", {"text": "again"})).content[0].text == "again"


async def test_a_result_of_five_megabytes_is_kept_and_can_be_read(up: Any, era: str) -> None:
    async with up.client(era, read_timeout_seconds=30) as client:
        shown = (await client.call_tool("up_big", {"n": 4_000_000})).content[0].text
        handle = shown.split("is kept as ")[1].split(",")[0]
        read = await client.read_resource(handle)
        assert "x" * 3_000_000 in read.contents[0].text
        assert (await client.call_tool("up_echo", {"text": "a"})).content[0].text == "a"


async def test_its_resources_and_prompts_are_passed_on_by_policy(up: Any, era: str) -> None:
    async with up.client(era) as client:
        await client.call_tool("up_echo", {"text": "a"})
        with anyio.fail_after(10):
            while not any(one.uri == "test://one" for one in (await client.list_resources()).resources):
                await anyio.sleep(0.05)
        read = await client.read_resource("test://one")
        assert "content of test://one" in read.contents[0].text
        with pytest.raises(Exception, match="nobody's to read"):
            await client.read_resource("test://secrets")
        (prompt,) = [one for one in (await client.list_prompts()).prompts if "greet" in one.name]
        got = await client.get_prompt(prompt.name, {"who": "Ann"})
        assert "Greet Ann." in got.messages[0].content.text


async def test_a_definition_that_turns_in_mid_run_is_withheld_and_a_person_told(up: Any, era: str) -> None:
    async with up.client(era) as client:
        assert "up_echo" in {one.name for one in (await client.list_tools()).tools}
        await client.call_tool("up_poison", {})
        with anyio.fail_after(10):
            while "up_echo" in {one.name for one in (await client.list_tools()).tools}:
                await anyio.sleep(0.05)
        changed = await client.call_tool("up_echo", {"text": "a"})
        assert refusal(changed)["code"] == "PACK_CHANGED"
        assert "packhost accept" in refusal(changed)["next"]
        assert (await client.call_tool("up_add", {"numbers": [1]})).content[0].text == "1"


async def test_nothing_is_started_before_it_is_called(world: Any, era: str, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    build(world, "--marks", str(marks))
    async with world.client(era) as client:
        await client.list_tools()
        assert not marks.exists()
        await client.call_tool("up_echo", {"text": "a"})
        assert "call echo" in marks.read_text()
