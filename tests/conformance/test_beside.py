"""What a pack has beside its tools, through a relay: the second host of a workspace on stdio."""

from __future__ import annotations

import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp import types as t

pytestmark = [
    pytest.mark.slow,
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]
WATCHED = "test://watched-resource"


@pytest.fixture(scope="module")
def entry(tmp_path_factory: pytest.TempPathFactory) -> StdioServerParameters:
    """How a client starts a host of the conformance pack's workspace."""
    path = Path(__file__).parent / "serve"
    loader = SourceFileLoader("conformance_serve", str(path))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    base = tmp_path_factory.mktemp("conformance")
    environ = module.prepare(base)
    args = ["-m", "packhost", "serve", "-w", str(base / "work")]
    return StdioServerParameters(command=sys.executable, args=args, env=environ)


async def test_resources_and_prompts_go_through_a_relay(entry: StdioServerParameters) -> None:
    heard: list[str] = []
    news = anyio.Event()

    async def told(message: Any) -> None:
        heard.append(f"{message.method} {message.params.uri}")
        news.set()

    with anyio.fail_after(60):
        async with (
            Client(entry, mode="legacy") as holder,
            Client(entry, mode="legacy", message_handler=told) as relayed,
            Client(entry, mode="auto") as modern,
        ):
            for client in (relayed, modern):
                listed = await client.list_resources()
                assert WATCHED in [str(one.uri) for one in listed.resources]
                (content,) = (await client.read_resource("test://template/5/data")).contents
                assert isinstance(content, t.TextResourceContents)
                assert '"id": "5"' in content.text
                assert "test_simple_prompt" in [one.name for one in (await client.list_prompts()).prompts]
            await relayed.subscribe_resource(WATCHED)
            async with modern.listen(resource_subscriptions=[WATCHED]) as events:
                await holder.call_tool("test_trigger_resource_change", {})
                event: Any = await anext(aiter(events))
                assert event.uri == WATCHED
            await news.wait()
    assert heard == [f"notifications/resources/updated {WATCHED}"]


async def test_what_a_call_wants_of_its_client_is_asked_through_a_relay(entry: StdioServerParameters) -> None:
    async def dialog(_: Any, params: Any) -> t.ElicitResult:
        assert "it approves nothing" in params.message
        return t.ElicitResult(action="accept", content={"name": "Ann"})

    with anyio.fail_after(60):
        async with Client(entry, mode="legacy"):
            for mode in ("legacy", "auto"):
                kind: Any = mode
                async with Client(entry, mode=kind, elicitation_callback=dialog) as client:
                    result = await client.call_tool("test_input_required_result_elicitation", {})
                    assert isinstance(result, t.CallToolResult)
                    assert result.content == [t.TextContent(type="text", text="Hello, Ann!")]
