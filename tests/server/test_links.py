"""Questions that are put by a link to the console's page, over each transport in each era."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from mcp import MCPError, UrlElicitationRequiredError
from mcp import types as t

from packhost.gate.types import Prompt
from packhost.server.board import Board
from packhost.server.reaching import Ways

pytestmark = pytest.mark.anyio
WAYS = [
    ("stdio", "modern"),
    ("stdio", "legacy"),
    ("http", "modern"),
    ("http", "legacy"),
    ("sse", "legacy"),
]
CONSOLE = "http://127.0.0.1:8400"
PAGE = f"{CONSOLE}/console/approvals/apr_1"


class Deciding(Board):
    """Knows when the fake gate's questions are decided."""

    def __init__(self, host: Any) -> None:
        self._host = host

    async def decided(self, approval_id: str, timeout: float) -> bool:
        with anyio.fail_after(timeout):
            await self._host.gate.approvals[approval_id]["decided"].wait()
        return True


@pytest.fixture(params=WAYS, ids="-".join)
def linked(request: pytest.FixtureRequest, serve: Any) -> Any:
    """A host whose console is known, over the transport and for the era under test."""

    def prepare(host: Any) -> None:
        host.console = CONSOLE

    @asynccontextmanager
    async def serving() -> AsyncIterator[Any]:
        async with serve(*request.param, prepare=prepare) as made:
            if made.era == "legacy":
                made.server._host.board = Deciding(made.host)
            yield made

    return serving


Answering = Callable[[Any], Awaitable[str]]


@asynccontextmanager
async def person(served: Any, answer: Answering, told: list[Any] | None = None) -> AsyncIterator[Any]:
    """A client whose person answers what it is asked to open."""

    async def dialog(_: Any, params: Any) -> t.ElicitResult:
        action: Any = await answer(params)
        return t.ElicitResult(
            action=action, content={} if action == "accept" and params.mode == "form" else None
        )

    async def hear(message: Any) -> None:
        if told is not None:
            told.append(message)

    options: dict[str, Any] = {"elicitation_callback": dialog, "message_handler": hear}
    async with served.client(None, **options) as client:
        yield client


def code_of(result: Any) -> str:
    return str(result.meta["packhost/refusal"]["code"])


async def test_what_needs_an_operator_is_put_by_a_link_and_goes_on_when_the_console_decides(
    linked: Any,
) -> None:
    async with linked() as served:
        served.host.hold = 5.0
        seen: list[Any] = []

        async def opens(params: Any) -> str:
            seen.append(params)
            served.host.tasks.start_soon(decide)
            return "accept"

        async def decide() -> None:
            await anyio.sleep(0.1)
            assert served.gate.ran == []
            served.gate.decide("apr_1", "approve", "the console")

        async with person(served, opens) as client:
            result = await client.call_tool("demo_write", {"operator": True})
        assert result.content[0].text == "written"
        assert [(one.mode, one.url) for one in seen] == [("url", PAGE)]
        assert "opening the page approves nothing" in seen[0].message
        assert (seen[0].elicitation_id is None) == (served.era == "modern")


async def test_opening_the_page_approves_nothing(linked: Any) -> None:
    async with linked() as served:
        served.host.hold = 0.05

        async def opens(_: Any) -> str:
            return "accept"

        async with person(served, opens) as client:
            if served.era == "legacy":
                with pytest.raises(MCPError) as required:
                    await client.call_tool("demo_write", {"operator": True})
                found = UrlElicitationRequiredError.from_error(required.value.error)
                assert [(one.url, one.elicitation_id) for one in found.elicitations] == [(PAGE, "apr_1")]
            else:
                result = await client.call_tool("demo_write", {"operator": True})
                assert code_of(result) == "APPROVAL_REQUIRED"
        assert served.gate.ran == []
        assert served.gate.approvals["apr_1"]["status"] == "pending"


async def test_whoever_does_not_open_it_decides_nothing(linked: Any) -> None:
    async with linked() as served:
        served.host.hold = 0.05

        async def stays(_: Any) -> str:
            return "decline"

        async with person(served, stays) as client:
            result = await client.call_tool("demo_write", {"operator": True})
        assert code_of(result) == "APPROVAL_REQUIRED"
        assert served.gate.approvals["apr_1"]["status"] == "pending"


@pytest.mark.parametrize("linked", [way for way in WAYS if way[1] == "legacy"], indirect=True, ids="-".join)
async def test_a_client_with_a_session_is_told_once_it_is_decided(linked: Any) -> None:
    async with linked() as served:
        served.host.hold = 0.05
        told: list[Any] = []

        async def opens(_: Any) -> str:
            return "accept"

        async with person(served, opens, told) as client:
            with pytest.raises(MCPError):
                await client.call_tool("demo_write", {"operator": True})
            served.gate.decide("apr_1", "approve", "the console")
            with anyio.fail_after(5):
                while not any(isinstance(one, t.ElicitCompleteNotification) for one in told):
                    await anyio.sleep(0.02)
            result = await client.call_tool("demo_write", {"operator": True})
        assert result.content[0].text == "written"
        (one,) = [one for one in told if isinstance(one, t.ElicitCompleteNotification)]
        assert one.params.elicitation_id == "apr_1"


async def test_what_a_dialog_can_answer_is_put_by_its_form(linked: Any) -> None:
    async with linked() as served:
        modes = []

        async def agrees(params: Any) -> str:
            modes.append(params.mode)
            return "accept"

        async with person(served, agrees) as client:
            result = await client.call_tool("demo_write", {})
        assert (result.content[0].text, modes) == ("written", ["form"])


async def test_without_a_console_there_is_no_link(linked: Any) -> None:
    async with linked() as served:
        served.host.console = None
        modes = []

        async def agrees(params: Any) -> str:
            modes.append(params.mode)
            return "accept"

        async with person(served, agrees) as client:
            await client.call_tool("demo_write", {"operator": True})
        assert modes == ["form"]


async def test_a_call_that_asks_from_within_waits_for_the_console(linked: Any) -> None:
    async with linked() as served:
        served.host.hold = 0.3

        async def opens(_: Any) -> str:
            served.host.tasks.start_soon(decide)
            return "accept"

        async def decide() -> None:
            await anyio.sleep(0.1 if served.era == "legacy" else 0.5)
            served.gate.decide("apr_1", "approve", "the console")

        async with person(served, opens) as client:
            result = await client.call_tool("demo_turn", {"questions": 1, "operator": True})
        assert result.structured_content == {"said": ["yes"]}


QUESTION = Prompt("apr_1", "demo:write", "Run it?", 0.0, False)


@pytest.mark.parametrize(
    ("form", "link", "console", "page"),
    [
        (True, True, CONSOLE, None),
        (False, True, CONSOLE, PAGE),
        (False, True, None, None),
        (True, False, CONSOLE, None),
    ],
)
def test_a_link_is_for_clients_that_know_no_form(
    form: bool, link: bool, console: str | None, page: str | None
) -> None:
    ways = Ways(form, link, lambda: console)
    assert ways.page(QUESTION) == page
    assert ways.any == (form or page is not None)
    asked = ways.request(QUESTION)
    assert (asked is None) == (not form and page is None)
