"""Two stdio hosts on one holder."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp import types as t

pytestmark = pytest.mark.anyio
MAIN = Path(__file__).with_name("fake_main.py")


def relay(path: Path, mode: str, **options: Any) -> Client:
    return Client(
        StdioServerParameters(command=sys.executable, args=[str(MAIN), "relay", str(path)]),
        mode=mode,
        **options,
    )


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_two_relays_are_two_clients_of_one_gate(hold, tmp_path, mode) -> None:
    async def person(_: Any, params: Any) -> t.ElicitResult:
        return t.ElicitResult(action="accept", content={})

    path = tmp_path / "s"
    async with (
        hold(path) as host,
        relay(path, mode) as first,
        relay(path, mode, elicitation_callback=person) as second,
    ):
        echoed = await first.call_tool("demo_echo", {"a": "x" * 2_000_000})
        written = await second.call_tool("demo_write", {"path": "a"})
        turned = await second.call_tool("demo_turn", {"questions": 2})
    assert len(echoed.structured_content["a"]) == 2_000_000
    assert written.content[0].text == "written"
    assert turned.structured_content == {"said": ["yes", "yes"]}
    assert len({request.caller.session_id for request in host.gate.requests}) == 2


async def test_when_the_holder_goes_pending_requests_are_told_and_the_relay_ends(
    hold, start, tmp_path
) -> None:
    path = tmp_path / "s"
    async with hold(path) as host:
        process = start("relay", str(path))
        await anyio.to_thread.run_sync(process.initialize)
        process.send(b'{"jsonrpc":"2.0","id":"q","method":"tools/call","params":{"name":"demo_slow"}}')
        with anyio.fail_after(5):
            await host.gate.started.wait()
    with anyio.fail_after(10):
        answer = await anyio.to_thread.run_sync(process.receive)
        code, stderr = await anyio.to_thread.run_sync(process.end)
    assert answer["id"] == "q"
    assert answer["error"]["code"] == -32000
    assert code == 1
    assert "Traceback" not in stderr


async def test_a_client_that_leaves_ends_its_relay_alone(hold, start, tmp_path) -> None:
    path = tmp_path / "s"
    async with hold(path) as host:
        process = start("relay", str(path))
        await anyio.to_thread.run_sync(process.initialize)
        process.send(b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"demo_slow"}}')
        with anyio.fail_after(5):
            await host.gate.started.wait()
            code, _ = await anyio.to_thread.run_sync(process.end)
            await host.gate.cancelled.wait()
    assert code == 0


async def test_garbage_passes_through_and_is_answered_by_the_holder(hold, start, tmp_path) -> None:
    path = tmp_path / "s"
    async with hold(path):
        process = start("relay", str(path))
        await anyio.to_thread.run_sync(process.initialize)
        process.send(b"garbage")
        answer = await anyio.to_thread.run_sync(process.receive)
    assert answer["error"]["code"] == -32700


async def test_a_relay_without_a_holder_says_so(start, tmp_path) -> None:
    process = start("relay", str(tmp_path / "s"))
    with anyio.fail_after(10):
        answer = await anyio.to_thread.run_sync(process.initialize)
        code, stderr = await anyio.to_thread.run_sync(process.end)
    assert "does not answer" in answer["error"]["message"]
    assert code == 1
    assert "does not answer" in stderr
    assert "Traceback" not in stderr
