"""How many calls of one tool a principal may make, at once and a minute; nobody else is held up by it."""

from __future__ import annotations

from dataclasses import replace

import anyio
import pytest

from packhost.gate import throttle
from packhost.gate.types import Completed
from packhost.http.problems import of_refusal
from packhost.names import new_id

pytestmark = pytest.mark.anyio


def limited(bench, **limits) -> None:
    bench.limits = replace(bench.limits, **limits)
    bench.reload()


async def test_calls_at_once_are_limited_for_one_tool_of_one_principal(bench):
    begun, go_on = [], anyio.Event()

    async def wait(context, arguments):
        begun.append(context.principal)
        await go_on.wait()
        return {}

    bench.tool("wait", wait)
    bench.tool("look")
    limited(bench, calls_at_once=2)
    outcomes = []

    async def call(session: str, **caller) -> None:
        outcomes.append(await bench.call("wait", session_id=session, **caller))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for session in ("s-1", "s-2"):
                tasks.start_soon(call, session)
            while len(begun) < 2:
                await anyio.sleep(0.001)
            refused = await bench.call("wait", session_id="s-3")
            assert (refused.code, refused.data["retry_after"]) == ("LIMIT_EXCEEDED", 1)
            assert isinstance(await bench.call("look", session_id="s-3"), Completed)
            tasks.start_soon(lambda: call("s-4", principal="bob"))
            while begun[-1] != "bob":
                await anyio.sleep(0.001)
            go_on.set()
    assert len(outcomes) == 3
    assert isinstance(await bench.call("wait"), Completed)


async def test_calls_a_minute_are_limited_and_come_back_with_time(bench, monkeypatch):
    now = [1_000.0]
    monkeypatch.setattr(throttle.anyio, "current_time", lambda: now[0])
    bench.tool("look")
    limited(bench, calls_per_minute=30)
    first = [await bench.call("look") for _ in range(30)]
    assert all(isinstance(one, Completed) for one in first)
    refused = await bench.call("look")
    assert (refused.code, refused.data["retry_after"]) == ("LIMIT_EXCEEDED", 2)
    now[0] += 2
    assert isinstance(await bench.call("look"), Completed)
    assert (await bench.call("look")).code == "LIMIT_EXCEEDED"


async def test_every_name_of_a_tool_is_the_same_tool_and_all_unknown_ones_are_one(bench):
    bench.tool("look")
    limited(bench, calls_per_minute=1)
    assert isinstance(await bench.call("look"), Completed)
    for name in ("t_look", "t:look"):
        request = throttle.CallRequest(name, {}, bench.caller)
        assert (await bench.gate.call(request)).code == "LIMIT_EXCEEDED"
    codes = [(await bench.call(f"none-{number}")).code for number in range(3)]
    assert codes == ["TOOL_NOT_FOUND", "LIMIT_EXCEEDED", "LIMIT_EXCEEDED"]


async def test_a_flood_leaves_nothing_in_the_record_and_little_in_memory(bench, monkeypatch):
    monkeypatch.setattr(throttle, "REMEMBERED", 20)
    bench.tool("look")
    limited(bench, calls_per_minute=1)
    await bench.call("look")
    before = await bench.events()
    for _ in range(50):
        await bench.call("look")
    assert await bench.events() == before
    for number in range(60):
        await bench.call("look", principal=f"p{number}", session_id=new_id("s"))
    assert len(bench.gate._throttle._uses) <= 21


async def test_calls_within_a_call_are_counted_once(bench):
    async def outer(context, arguments):
        return [await context.call_tool("t:inner", {}) for _ in range(3)]

    bench.tool("inner")
    bench.tool("outer", outer, required_scopes=["tool t:inner"])
    limited(bench, calls_per_minute=2)
    assert isinstance(await bench.call("outer"), Completed)


async def test_over_http_the_answer_says_when_to_come_back(bench):
    bench.tool("look")
    limited(bench, calls_per_minute=1)
    await bench.call("look")
    answer = of_refusal(await bench.call("look")).response("/v1/runs")
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "60")
