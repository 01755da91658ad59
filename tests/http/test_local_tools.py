"""A program that runs its own tools for a run of a real host, through the typed client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from packhost.client import (
    ApiError,
    AsyncClient,
    Client,
    ConnectionLost,
    Envelope,
    LocalTool,
    finish_with_local_tools_async,
    run_with_local_tools,
    run_with_local_tools_async,
)
from packhost.store.ops import sessions

pytestmark = pytest.mark.anyio
RUN = {"messages": [{"role": "user", "content": "go"}], "model_profile": "asks", "tools": []}
SCHEMA = {"type": "object", "properties": {"at": {"type": "string"}}}


def looking(run: Callable[[dict[str, Any]], Any], **more: Any) -> list[LocalTool]:
    return [LocalTool("look", "Look.", SCHEMA, run, **more)]


@pytest.fixture(params=["sync", "async"])
def drive(request: pytest.FixtureRequest) -> Any:
    """Drives a run by either of the two."""

    async def drive(served: Any, tools: Any, body: Any = RUN) -> Envelope:
        token = await served.token("caller", "ci")
        with anyio.fail_after(30):
            if request.param == "async":
                async with AsyncClient(served.url, token) as client:
                    return await run_with_local_tools_async(client, body, tools)

            def inside() -> Envelope:
                with Client(served.url, token) as client:
                    return run_with_local_tools(client, body, tools)

            return await anyio.to_thread.run_sync(inside)

    return drive


def told(host: Any, session: str) -> list[tuple[str, bool]]:
    """What the model was told of its calls."""
    return [
        (block["content"], block["is_error"])
        for row in host.store.read(sessions.history, session)
        for block in row.message["content"]
        if block["type"] == "tool_result"
    ]


async def test_a_run_is_driven_to_its_end_and_each_call_is_made_here(served, host, drive) -> None:
    seen = []

    def look(arguments: dict[str, Any]) -> Any:
        seen.append(arguments["at"])
        return {"saw": arguments["at"]}

    done = await drive(served, looking(look))
    assert (done.status, done.result) == ("completed", "Seen.")
    assert seen == ["door", "gate"]
    assert told(host, done.session_id) == [('{"saw":"door"}', False), ('{"saw":"gate"}', False)]


async def test_what_a_tool_raises_is_told_to_the_model(served, host, drive) -> None:
    def look(arguments: dict[str, Any]) -> Any:
        if arguments["at"] == "gate":
            return object()
        raise RuntimeError("no light")

    done = await drive(served, looking(look))
    assert done.status == "completed"
    first, second = told(host, done.session_id)
    assert first == ("no light", True)
    assert ("not JSON" in second[0], second[1]) == (True, True)


async def test_untrusted_output_is_marked(served, host, drive) -> None:
    done = await drive(served, looking(lambda _: "text of a page", untrusted=True))
    assert all(text.startswith("<UNTRUSTED_TOOL_OUTPUT ") for text, _ in told(host, done.session_id))


async def test_tools_may_be_async(served) -> None:
    async def look(arguments: dict[str, Any]) -> str:
        await anyio.lowlevel.checkpoint()
        return "seen"

    async with AsyncClient(served.url, await served.token("caller", "ci")) as client:
        assert (await run_with_local_tools_async(client, RUN, looking(look))).result == "Seen."


class Breaking(AsyncClient):
    """A client whose line breaks right after the host took the first resumption."""

    broken = False

    async def resume(self, run_id: str, **more: Any) -> Envelope:
        found = await super().resume(run_id, **more)
        if not self.broken:
            self.broken = True
            raise ConnectionLost("the line broke")
        return found


async def test_a_call_is_made_once_however_often_the_line_breaks(served) -> None:
    made = []
    async with Breaking(served.url, await served.token("caller", "ci")) as client:
        done = await run_with_local_tools_async(client, RUN, looking(lambda one: made.append(one["at"])))
    assert (done.status, made) == ("completed", ["door", "gate"])


class Gone(AsyncClient):
    """A client whose host is gone once the run has begun."""

    tried = 0

    async def resume(self, run_id: str, **more: Any) -> Envelope:
        self.tried += 1
        raise ConnectionLost("nobody is there")

    async def result(self, run_id: str, **more: Any) -> Envelope:
        return await self.resume(run_id)


async def test_a_host_that_stays_away_is_given_up(served) -> None:
    made = []
    async with Gone(served.url, await served.token("caller", "ci")) as client:
        with pytest.raises(ConnectionLost):
            await run_with_local_tools_async(client, RUN, looking(lambda one: made.append(1)))
        assert (client.tried, len(made)) == (5, 2)


async def test_a_pause_for_a_person_comes_back_and_can_be_gone_on_with(served) -> None:
    body = {"messages": [{"role": "user", "content": "go"}]}
    tools = looking(lambda _: "seen")
    async with (
        AsyncClient(served.url, await served.token("caller", "ci")) as client,
        AsyncClient(served.url, await served.token("operator", "ann")) as operator,
    ):
        now = await run_with_local_tools_async(client, body, tools)
        assert (now.status, now.paused.await_reason) == ("paused", "approval_required")
        await operator.decide(now.paused.approval_id, "approve")
        now = await client.result(now.run_id, wait=20)
        assert (await finish_with_local_tools_async(client, now, tools)).result == "Done."


async def test_a_refusal_is_raised(served) -> None:
    async with AsyncClient(served.url, await served.token("caller", "ci")) as client:
        with pytest.raises(ApiError, match="INVALID_INPUT"):
            await run_with_local_tools_async(
                client, RUN, [LocalTool("no name", "Look.", SCHEMA, lambda _: None)]
            )


@pytest.mark.parametrize("scope", ["session", ""])
async def test_the_tools_belong_to_one_run(served, scope: Any) -> None:
    async with AsyncClient(served.url, await served.token("caller", "ci")) as client:
        with pytest.raises(ValueError, match="scope"):
            await run_with_local_tools_async(client, RUN, [], scope=scope)
