"""Listing, calling, progress, cancellation and refusals, over each transport in each era."""

from __future__ import annotations

import json

import anyio
import pytest
from mcp import types as t

pytestmark = pytest.mark.anyio

WAYS = pytest.mark.parametrize(
    ("transport", "era"),
    [("stdio", "modern"), ("stdio", "legacy"), ("http", "modern"), ("http", "legacy"), ("sse", "legacy")],
)


@WAYS
async def test_a_listing_shows_each_tool_as_it_is_governed(serve, transport, era) -> None:
    async with serve(transport, era) as served, served.client() as client:
        first = (await client.list_tools()).tools
        tools = {tool.name: tool for tool in (await client.list_tools(cache_mode="refresh")).tools}
        assert client.server_capabilities.tools.list_changed is True
        assert "packhost_status" in client.instructions
    assert [tool.name for tool in first] == list(tools)
    assert {"demo_echo", "packhost_status", "packhost_explain"} <= tools.keys()
    assert tools["demo_echo"].title == "Echo"
    assert tools["demo_add"].title == "demo:add"
    assert tools["demo_add"].output_schema == served.gate.tools["add"].spec.output_schema
    assert tools["demo_add"].meta["packhost/tool"] == "demo:add"
    assert tools["demo_hidden"].input_schema["required"] == ["shown"]
    assert list(tools["demo_hidden"].input_schema["properties"]) == ["shown"]
    write, fetch = tools["demo_write"].annotations, tools["demo_fetch"].annotations
    assert (write.read_only_hint, write.destructive_hint, write.idempotent_hint) == (False, True, False)
    assert (fetch.read_only_hint, fetch.open_world_hint) == (True, True)


@WAYS
async def test_a_result_comes_structured_and_as_text(serve, transport, era) -> None:
    async with serve(transport, era) as served, served.client() as client:
        result = await client.call_tool("demo_add", {"numbers": [1, 2]})
    assert result.structured_content == {"sum": 3}
    assert json.loads(result.content[0].text) == {"sum": 3}
    assert result.meta["packhost/call"] == {"call_id": "call_1", "run_id": "run_1", "enforcement": "host"}


@WAYS
async def test_a_refusal_is_a_sentence_and_json_without_structured_content(serve, transport, era) -> None:
    async with serve(transport, era) as served, served.client() as client:
        result = await client.call_tool("demo_refuse", {})
        sentence, as_json = result.content[0].text.split("\n", 1)
    assert result.is_error
    assert result.structured_content is None
    assert sentence.startswith("SCOPE_DENIED: `x` lies outside")
    assert "`src/x`" in sentence
    assert json.loads(as_json) == result.meta["packhost/refusal"]
    assert result.meta["packhost/refusal"]["layer"] == "workspace bound"


@WAYS
async def test_an_unknown_tool_is_refused_by_the_gate_with_near_names(serve, transport, era) -> None:
    async with serve(transport, era) as served, served.client() as client:
        result = await client.call_tool("demo_ecko", {})
    assert result.is_error
    assert result.meta["packhost/refusal"]["near"] == ["echo"]


@WAYS
async def test_a_fault_of_the_host_is_no_traceback(serve, transport, era) -> None:
    async with serve(transport, era) as served, served.client() as client:
        result = await client.call_tool("demo_crash", {})
        alive = await client.call_tool("demo_echo", {"a": 1})
    assert result.meta["packhost/refusal"]["code"] == "TOOL_FAILED"
    assert "boom" not in result.content[0].text
    assert alive.structured_content == {"a": 1}


@WAYS
async def test_progress_reaches_the_client_that_asked_for_it(serve, transport, era) -> None:
    seen: list[tuple[float, float | None, str | None]] = []
    done = anyio.Event()

    async def progress(value: float, total: float | None, message: str | None) -> None:
        seen.append((value, total, message))
        if len(seen) == 3:
            done.set()

    async with serve(transport, era) as served, served.client() as client:
        await client.call_tool("demo_steps", {}, progress_callback=progress)
        with anyio.fail_after(5):
            await done.wait()
    assert seen == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]


@WAYS
async def test_a_cancelled_request_cancels_its_call(serve, transport, era) -> None:
    async with serve(transport, era) as served, served.client() as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "demo_slow", {})
            with anyio.fail_after(5):
                await served.gate.started.wait()
            tasks.cancel_scope.cancel()
        with anyio.fail_after(5):
            await served.gate.cancelled.wait()
        assert (await client.call_tool("demo_echo", {"still": "here"})).structured_content


@WAYS
@pytest.mark.parametrize("arguments", [{}, {"object": True}, {"progress": True}])
async def test_five_megabytes_arrive_or_are_refused_and_the_connection_lives(
    serve, transport, era, arguments
) -> None:
    async def progress(*_: object) -> None: ...

    async with serve(transport, era) as served, served.client() as client:
        result = await client.call_tool(
            "demo_big",
            {"size": 5_000_000, **arguments},
            progress_callback=progress if arguments.get("progress") else None,
        )
        alive = await client.call_tool("demo_echo", {"still": "here"})
    if transport == "stdio" or (era == "modern" and not arguments.get("progress")):
        assert len(result.content[0].text) >= 5_000_000
    else:
        assert result.meta["packhost/refusal"]["code"] == "OUTPUT_TOO_LARGE"
        assert result.meta["packhost/refusal"]["call_id"] == "call_1"
    assert alive.structured_content == {"still": "here"}


@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_a_result_too_large_twice_over_keeps_its_structured_form(serve, transport) -> None:
    async with serve(transport, "legacy") as served, served.client() as client:
        result = await client.call_tool("demo_big", {"size": 600_000, "object": True})
    assert len(result.structured_content["data"]) == 600_000
    assert "structured content" in result.content[0].text


@WAYS
async def test_clients_are_told_that_the_list_changed(serve, transport, era) -> None:
    told = anyio.Event()

    async def handler(message: object) -> None:
        if isinstance(message, t.ToolListChangedNotification):
            told.set()

    async with serve(transport, era) as served, served.client(message_handler=handler) as client:
        before = len((await client.list_tools()).tools)
        if era == "modern":
            async with client.listen(tools_list_changed=True) as events:
                del served.gate.tools["echo"]
                served.host.generation += 1
                await served.server.tools_changed()
                with anyio.fail_after(5):
                    async for _ in events:
                        break
        else:
            await client.call_tool("demo_echo", {})
            del served.gate.tools["echo"]
            served.host.generation += 1
            with anyio.fail_after(5):
                while not told.is_set():
                    # The stream for what the server says unasked opens beside the handshake.
                    await served.server.tools_changed()
                    with anyio.move_on_after(0.05):
                        await told.wait()
        assert len((await client.list_tools(cache_mode="refresh")).tools) == before - 1


@WAYS
async def test_a_connection_has_a_session_and_stateless_http_derives_one(serve, transport, era) -> None:
    async with serve(transport, era) as served:
        for name in ("one", "one", "two"):
            async with served.client(client_info=t.Implementation(name=name, version="1")) as client:
                await client.call_tool("demo_echo", {})
                await client.call_tool("demo_echo", {})
    callers = [request.caller for request in served.gate.requests]
    sessions = [caller.session_id for caller in callers]
    assert [caller.client for caller in callers] == ["one"] * 4 + ["two"] * 2
    assert {caller.principal for caller in callers} == {"tester"}
    assert all(session.startswith("s-") for session in sessions)
    assert sessions[0] == sessions[1]
    assert sessions[3] != sessions[4]
    assert (sessions[1] == sessions[2]) is (transport == "http" and era == "modern")


async def test_nobody_without_the_hosts_key_can_name_the_session_of_a_stateless_client(serve) -> None:
    sessions = []
    for key in (b"a" * 32, b"a" * 32, b"b" * 32):
        async with serve("http", "modern", key) as served:
            async with served.client() as client:
                await client.call_tool("demo_echo", {})
            sessions.append(served.gate.requests[-1].caller.session_id)
    assert sessions[0] == sessions[1]
    assert sessions[1] != sessions[2]
