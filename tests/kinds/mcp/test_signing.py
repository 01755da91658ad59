"""Signing in to a server by OAuth: once by a person, and from then on by what was kept."""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
import stat
from collections.abc import AsyncIterator
from typing import Any

import anyio
import httpx2
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from packhost.errors import ConfigInvalid, ToolFailed
from packhost.kinds.mcp.pins import live_pins
from packhost.kinds.mcp.signing import log_in
from packhost.manifest.upstream import UpstreamSpec

pytestmark = pytest.mark.anyio
ECHO = {"name": "echo", "description": "Echo.", "inputSchema": {"type": "object"}}


class Authority:
    """A server that wants a token, and the authority that gives one."""

    def __init__(self) -> None:
        self.base = ""
        self.tokens: set[str] = set()
        self.codes: set[str] = set()
        self.asked: list[dict[str, Any]] = []
        self.refuses = False

    def app(self) -> Starlette:
        paths = {
            "/.well-known/oauth-protected-resource/mcp": self.resource,
            "/.well-known/oauth-authorization-server": self.authority,
            "/register": self.register,
            "/authorize": self.authorize,
            "/token": self.token,
            "/mcp": self.mcp,
        }
        return Starlette(
            routes=[Route(path, serve, methods=["GET", "POST"]) for path, serve in paths.items()]
        )

    async def resource(self, _: Request) -> Response:
        return JSONResponse({"resource": f"{self.base}/mcp", "authorization_servers": [self.base]})

    async def authority(self, _: Request) -> Response:
        ends = {name: f"{self.base}/{path}" for name, path in (
            ("authorization_endpoint", "authorize"), ("token_endpoint", "token"),
            ("registration_endpoint", "register"),
        )}  # fmt: skip
        more = {"response_types_supported": ["code"], "code_challenge_methods_supported": ["S256"]}
        return JSONResponse({"issuer": self.base, **ends, **more})

    async def register(self, request: Request) -> Response:
        return JSONResponse({**await request.json(), "client_id": "registered"}, status_code=201)

    async def authorize(self, request: Request) -> Response:
        self.asked.append(dict(request.query_params))
        back, state = request.query_params["redirect_uri"], request.query_params["state"]
        if self.refuses:
            return RedirectResponse(f"{back}?error=access_denied&state={state}", status_code=302)
        code = secrets.token_hex(8)
        self.codes.add(code)
        return RedirectResponse(f"{back}?code={code}&state={state}", status_code=302)

    async def token(self, request: Request) -> Response:
        form = await request.form()
        self.asked.append({key: str(value) for key, value in form.items()})
        if form["grant_type"] == "authorization_code":
            self.codes.remove(str(form["code"]))
        token = secrets.token_hex(8)
        self.tokens.add(token)
        return JSONResponse({"access_token": token, "token_type": "Bearer", "refresh_token": "again"})

    async def mcp(self, request: Request) -> Response:
        if request.headers.get("authorization", "").removeprefix("Bearer ") not in self.tokens:
            where = f'Bearer resource_metadata="{self.base}/.well-known/oauth-protected-resource/mcp"'
            return Response(status_code=401, headers={"www-authenticate": where})
        if request.method == "GET":
            return Response(status_code=405)
        message = await request.json()
        results = {
            "initialize": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "guarded", "version": "1"},
            },
            "tools/list": {"tools": [ECHO]},
            "tools/call": {"content": [{"type": "text", "text": "let in"}]},
        }
        if "id" not in message:
            return Response(status_code=202)
        return JSONResponse({"jsonrpc": "2.0", "id": message["id"], "result": results[message["method"]]})


@pytest.fixture
async def authority(anyio_backend: str) -> AsyncIterator[Authority]:
    found = Authority()
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    found.base = f"http://127.0.0.1:{listening.getsockname()[1]}"
    runner = uvicorn.Server(uvicorn.Config(found.app(), log_level="error", timeout_graceful_shutdown=1))
    runner.capture_signals = contextlib.nullcontext  # type: ignore[method-assign, assignment]
    async with anyio.create_task_group() as group:
        group.start_soon(runner.serve, [listening])
        with anyio.fail_after(10):
            while not runner.started:
                await anyio.sleep(0.01)
        try:
            yield found
        finally:
            runner.should_exit = True
    listening.close()


def guarded(authority: Authority, **more: Any) -> UpstreamSpec:
    return UpstreamSpec(url=f"{authority.base}/mcp", transport="http", era="legacy", auth=more or "oauth")


async def signed_in(world: Any, spec: UpstreamSpec) -> str:
    """A person at a browser, which follows where it is sent."""
    async with anyio.create_task_group() as group:

        async def browse(url: str) -> None:
            async with httpx2.AsyncClient(follow_redirects=True, trust_env=False) as browser:
                await browser.get(url)

        name = await log_in(
            "up", spec, world.state, world.secrets.__getitem__, lambda url: group.start_soon(browse, url)
        )
    return name


async def test_a_person_signs_in_once_and_calls_go_through_from_then_on(
    world: Any, said: Any, authority: Authority
) -> None:
    spec = guarded(authority)
    pack = world.pack(spec, live_pins(tools=[ECHO]))
    with pytest.raises(ToolFailed, match="nobody has signed in") as refused:
        await world.call(pack, "echo")
    assert "packhost upstream login up" in refused.value.hint
    assert await signed_in(world, spec) == "guarded"
    assert authority.asked[0]["code_challenge_method"] == "S256"
    file = world.state / "upstreams" / "up.oauth"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    await anyio.sleep(0.6)  # the pause after the refused start
    assert said(await world.call(pack, "echo")) == "let in"
    await world.kind.close()


async def test_what_was_kept_is_renewed_without_a_person(world: Any, said: Any, authority: Authority) -> None:
    spec = guarded(authority)
    await signed_in(world, spec)
    file = world.state / "upstreams" / "up.oauth"
    kept = json.loads(file.read_text())
    assert kept["tokens"]["refresh_token"] == "again"
    authority.tokens.clear()  # the server forgets it: a person is told to sign in anew
    pack = world.pack(spec, live_pins(tools=[ECHO]))
    with pytest.raises(ToolFailed, match="wants a person to sign in"):
        await world.call(pack, "echo")
    await world.kind.close()


async def test_a_client_id_of_ones_own_is_used_with_its_secret(world: Any, authority: Authority) -> None:
    world.secrets["CLIENT"] = "s3cret-value"
    await signed_in(world, guarded(authority, client_id="mine", client_secret="{{secret:CLIENT}}"))
    assert authority.asked[0]["client_id"] == "mine"
    assert authority.asked[1]["client_secret"] == "s3cret-value"


async def test_signing_in_that_comes_to_nothing_says_why(world: Any, authority: Authority) -> None:
    authority.refuses = True
    with pytest.raises(ExceptionGroup) as failed:
        await signed_in(world, guarded(authority))
    (why,) = failed.value.exceptions
    assert isinstance(why, ToolFailed)
    assert "access_denied" in why.message
    with pytest.raises(ConfigInvalid, match="not one to sign in to"):
        await log_in("up", UpstreamSpec(command=("x",)), world.state, str, print)
