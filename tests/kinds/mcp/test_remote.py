"""Servers by URL: both eras, the older transport, headers, lost sessions."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
import uvicorn
from mcp import types
from mcp.server import Server
from mcp.server.sse import SseServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from packhost.errors import PackhostError, ToolFailed
from packhost.kinds.context import Elicited
from packhost.kinds.mcp.pins import live_pins
from packhost.manifest.upstream import UpstreamSpec

pytestmark = pytest.mark.anyio
ECHO = types.Tool(name="echo", description="Echo.", input_schema={"type": "object"})
WAIT = types.Tool(name="wait", description="Wait.", input_schema={"type": "object"})
ASK = types.Tool(name="ask", description="Ask.", input_schema={"type": "object"})
FORM = {"type": "object", "properties": {"seat": {"type": "string"}}}


class Far:
    """A real server of the SDK's, over HTTP."""

    def __init__(self) -> None:
        self.url = ""
        self.headers: list[dict[str, str]] = []
        self.manager: StreamableHTTPSessionManager | None = None
        self.status: int | None = None
        self.cancelled = anyio.Event()
        self.waiting = anyio.Event()

    async def listed(self, *_: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[ECHO, WAIT, ASK])

    async def call(self, ctx: Any, params: types.CallToolRequestParams) -> Any:
        if params.name == "wait":
            self.waiting.set()
            try:
                await anyio.sleep(60)
            except anyio.get_cancelled_exc_class():
                self.cancelled.set()
                raise
        if params.name == "ask":
            return await self._ask(ctx, params)
        said = json.dumps({"said": (params.arguments or {}).get("text")})
        return types.CallToolResult(content=[types.TextContent(type="text", text=said)])

    async def _ask(self, ctx: Any, params: types.CallToolRequestParams) -> Any:
        if ctx.protocol_version == "2026-07-28":
            if not params.input_responses:
                form = types.ElicitRequestFormParams(message="Seat?", requested_schema=FORM)
                wanted = {"seat": types.ElicitRequest(params=form)}
                return types.InputRequiredResult(input_requests=wanted, request_state="1")
            answer: Any = params.input_responses["seat"]
        else:
            answer = await ctx.session.elicit_form("Seat?", FORM, related_request_id=ctx.request_id)
        said = json.dumps(answer.content)
        return types.CallToolResult(content=[types.TextContent(type="text", text=said)])


@asynccontextmanager
async def served(far: Far, *, events: bool = False) -> AsyncIterator[Far]:
    server: Server[Any] = Server("far", on_list_tools=far.listed, on_call_tool=far.call)
    sse = SseServerTransport("/messages/")

    async def stream(request: Request) -> Response:
        async with sse.connect_sse(request.scope, request.receive, request._send) as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())
        return Response()

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        far.manager = StreamableHTTPSessionManager(app=server)
        async with far.manager.run():
            yield

    class Watched:
        def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
            self.app = app

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "http":
                far.headers.append({name.decode(): value.decode() for name, value in scope["headers"]})
                if far.status is not None:
                    await Response("no", status_code=far.status)(scope, receive, send)
                    return
            await self.app(scope, receive, send)

    async def modern(scope: Any, receive: Any, send: Any) -> None:
        assert far.manager is not None
        await StreamableHTTPASGIApp(far.manager)(scope, receive, send)

    routes: list[Any] = (
        [Route("/sse", stream), Mount("/messages/", app=sse.handle_post_message)]
        if events
        else [Mount("/mcp", app=modern)]
    )
    app = Watched(Starlette(routes=routes, lifespan=lifespan))
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    far.url = f"http://127.0.0.1:{listening.getsockname()[1]}/{'sse' if events else 'mcp/'}"
    config = uvicorn.Config(app, log_level="error", lifespan="on", timeout_graceful_shutdown=1)
    runner = uvicorn.Server(config)
    runner.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    runner.capture_signals = contextlib.nullcontext  # type: ignore[method-assign, assignment]
    async with anyio.create_task_group() as group:
        group.start_soon(runner.serve, [listening])
        try:
            with anyio.fail_after(10):
                while not runner.started:
                    await anyio.sleep(0.01)
            yield far
        finally:
            runner.should_exit = True
    listening.close()


@pytest.fixture
async def far(anyio_backend: str) -> AsyncIterator[Far]:
    async with served(Far()) as found:
        yield found


def pack(world: Any, far: Far, **spec: Any) -> Any:
    return world.pack(UpstreamSpec(url=far.url, **spec), live_pins(tools=[ECHO, WAIT, ASK]))


@pytest.mark.parametrize(("era", "version"), [("auto", "2026-07-28"), ("legacy", "2025-11-25")])
async def test_a_server_by_url_is_called_in_either_era(
    world: Any, said: Any, far: Far, era: Any, version: str
) -> None:
    content = await world.call(pack(world, far, era=era), "echo", {"text": "hello"})
    assert json.loads(said(content)) == {"said": "hello"}
    assert world.kind.servers.listing()[0]["protocol"] == version
    assert world.kind.enforcement(world.tool(pack(world, far), "echo")) == "host"
    await world.kind.close()


async def test_headers_carry_secrets_by_reference(world: Any, far: Far) -> None:
    world.secrets["KEY"] = "s3cret-value"
    spec = {"headers": {"authorization": "Bearer {{secret:KEY}}", "x-team": "blue"}}
    await world.call(pack(world, far, **spec), "echo")
    assert all(one["authorization"] == "Bearer s3cret-value" for one in far.headers)
    assert far.headers[-1]["x-team"] == "blue"
    await world.kind.close()


@pytest.mark.parametrize("era", ["auto", "legacy"])
async def test_a_question_over_http_is_put_too(
    world: Any, said: Any, context: Any, far: Far, era: Any
) -> None:
    ctx = context(answers=[Elicited("accept", {"seat": "aisle"})])
    content = await world.call(pack(world, far, era=era), "ask", context=ctx)
    assert json.loads(said(content)) == {"seat": "aisle"}
    await world.kind.close()


@pytest.mark.parametrize("era", ["auto", "legacy"])
async def test_giving_up_a_call_over_http_reaches_the_server(world: Any, far: Far, era: Any) -> None:
    up = pack(world, far, era=era)
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: world.call(up, "wait"))
        with anyio.fail_after(10):
            await far.waiting.wait()
        group.cancel_scope.cancel()
    with anyio.fail_after(10):
        await far.cancelled.wait()
    await world.kind.close()


async def test_a_session_that_the_server_lost_is_opened_anew_and_the_call_made_there(
    world: Any, said: Any, far: Far
) -> None:
    up = pack(world, far, era="legacy")
    await world.call(up, "echo")
    assert far.manager is not None
    for transport in list(far.manager._server_instances.values()):
        await transport.terminate()
    far.manager._server_instances.clear()
    assert json.loads(said(await world.call(up, "echo", {"text": "again"}))) == {"said": "again"}
    await world.kind.close()


async def test_the_older_transport_is_found_where_there_is_no_other(world: Any, said: Any) -> None:
    async with served(Far(), events=True) as far:
        content = await world.call(pack(world, far), "echo", {"text": "old"})
        assert json.loads(said(content)) == {"said": "old"}
        await world.kind.close()


async def test_a_server_that_cannot_be_reached_says_so(world: Any) -> None:
    far = Far()
    far.url = "http://127.0.0.1:9/mcp"
    with pytest.raises(ToolFailed, match="it cannot be reached"):
        await world.call(pack(world, far), "echo")


async def test_a_server_that_fails_says_so(world: Any, far: Far) -> None:
    far.status = 500
    with pytest.raises(PackhostError, match="did not start"):
        await world.call(pack(world, far, transport="http"), "echo")
    await world.kind.close()
