"""Every address of the whole HTTP application by every method: nobody without the right gets further.

The addresses are read from the application itself, so that none is forgotten; what each needs is written
down here, so that none changes unseen.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import anyio
import pytest
from starlette.routing import BaseRoute, Mount

from packhost.app.mounting import console_of
from packhost.control import tokens
from packhost.control.operations import LocalControl
from packhost.http.api import Api
from packhost.http.limits import Allowance
from packhost.rules.identities import MOST, ROLES
from packhost.transports.http import build_app

pytestmark = pytest.mark.anyio

OPEN = frozenset(
    {
        "/healthz",
        "/v1/openapi.json",
        "/.well-known/jwks.json",
        "/.well-known/oauth-protected-resource{rest:path}",
    }
)
"""What anybody may read; of the console the page to sign in at, and what it is made of."""
API = {
    "/v1": {},
    "/v1/runs": {"GET": "runs:read", "POST": "runs:write"},
    "/v1/runs/{id}": {"GET": "runs:read"},
    "/v1/runs/{id}/result": {"GET": "runs:read"},
    "/v1/runs/{id}/events": {"GET": "runs:read"},
    "/v1/runs/{id}/pause": {"POST": "runs:write"},
    "/v1/runs/{id}/resume": {"POST": "runs:write"},
    "/v1/runs/{id}/abort": {"POST": "runs:write"},
    "/v1/sessions/{id}/autonomy": {"POST": "sessions:write"},
    "/v1/approvals": {"GET": "approvals:read"},
    "/v1/approvals/{id}": {"GET": "approvals:read"},
    "/v1/approvals/{id}/decide": {"POST": "approvals:decide"},
    "/v1/questions": {"GET": "approvals:read"},
    "/v1/questions/{id}": {"GET": "approvals:read"},
    "/v1/questions/{id}/answer": {"POST": "approvals:decide"},
    "/v1/grants": {"GET": "grants:read"},
    "/v1/grants/{id}/revoke": {"POST": "grants:write"},
    "/v1/tools": {"GET": "tools:read"},
    "/v1/tools/{tool}": {"GET": "tools:read"},
    "/v1/packs": {"GET": "tools:read"},
    "/v1/explain": {"POST": "tools:read"},
    "/v1/audit/head": {"GET": "audit:read"},
    "/v1/status": {"GET": "tools:read"},
}
"""The right that each method of each address needs; any other method is not answered."""
MCP = frozenset({"/mcp", "/sse", "/messages"})
CONSOLE = frozenset({"/console", "/console/{rest:path}"})
ANYBODY = frozenset({"/login"})
"""The console's addresses that need no session; `/static/` besides."""
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PROPFIND")
HOST = [(b"host", b"127.0.0.1:8321")]
Headers = list[tuple[bytes, bytes]]


def addresses(routes: Sequence[BaseRoute], before: str = "") -> Iterator[str]:
    """The paths of an application's routes, also of those below others."""
    for route in routes:
        path = before + route.path  # type: ignore[attr-defined]
        if isinstance(route, Mount) and route.routes:
            yield from addresses(route.routes, path)
        else:
            yield path


def asked(path: str) -> str:
    """An address that a route answers to."""
    return re.sub(r"\{\w+\}", "x", path.replace("{rest:path}", ""))


class World:
    """The application, asked without any connection: nobody is known by their process."""

    def __init__(self, door: Any, parts: Any, console: Any) -> None:
        self.door = door
        self.parts = parts
        self.console = console
        self.routes: Sequence[BaseRoute] = door._app.routes

    async def token(self, role: str, **more: Any) -> str:
        return str((await tokens.new(self.parts, {"role": role, "principal": "ann", **more}))["token"])

    async def ask(
        self, method: str, path: str, headers: Headers, body: bytes = b""
    ) -> tuple[int, dict[bytes, bytes]]:
        """The status and the headers of the answer; what comes after them is not waited for."""
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": HOST + headers,
            "client": ("127.0.0.1", 9),
            "server": ("127.0.0.1", 8321),
            "state": {},
        }
        found: list[tuple[int, dict[bytes, bytes]]] = []
        sent = False

        async def receive() -> dict[str, Any]:
            nonlocal sent
            if sent:
                await anyio.sleep_forever()
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        with anyio.fail_after(20), anyio.CancelScope() as answered:

            async def send(message: Any) -> None:
                if message["type"] == "http.response.start":
                    found.append((message["status"], dict(message["headers"])))
                    answered.cancel()

            await self.door(scope, receive, send)
        (answer,) = found
        return answer


@pytest.fixture
async def world(host: Any, root: Any) -> AsyncIterator[World]:
    """Everything that a host serves over HTTP."""
    api = Api(host.parts, host.cursor_key, host.version, allowance=Allowance(rate=1e9, burst=1e9))
    console = console_of(LocalControl(host.parts), root)
    door = build_app(host.server, "1", api, lambda: {"keys": []}, console)
    async with door._app.router.lifespan_context(door._app):
        yield World(door, host.parts, console)


def bearer(token: str) -> Headers:
    return [(b"authorization", f"Bearer {token}".encode())]


async def refused_ones(world: World) -> list[Headers]:
    """What names nobody."""
    token = await world.token("operator")
    row = await tokens.listing(world.parts, {})
    await tokens.revoke(world.parts, {"id": row["tokens"][0]["id"]})
    return [
        [],
        bearer("pkh_unknown"),
        bearer(token),
        bearer(""),
        [(b"authorization", b"Basic YTpi")],
        bearer("a") * 2,
    ]


async def test_every_address_is_written_down(world) -> None:
    found = {one.rstrip("/") for one in addresses(world.routes)}
    assert found == OPEN | set(API) | MCP | CONSOLE


async def test_nobody_gets_further_than_401_without_a_token_that_counts(world) -> None:
    strangers = await refused_ones(world)
    for path in sorted(
        {*API, *MCP, "/", "/nothing", "/v1/nothing", "/v1/runs/", "/MCP", "//v1/runs", "/mcp/x"}
    ):
        for method in METHODS:
            for headers in strangers:
                status, told = await world.ask(method, asked(path), headers, b"{}")
                assert status == 401, (method, path, headers)
                assert b"www-authenticate" in {name.lower() for name in told} or path not in API


async def test_a_token_opens_what_its_scopes_and_its_role_say_and_nothing_else(world) -> None:
    json_body = [(b"content-type", b"application/json")]
    for role in ROLES:
        whole = await world.token(role, scopes=sorted(MOST[role]))
        for right in sorted({right for rights in API.values() for right in rights.values()} | {"mcp"}):
            rest = sorted(MOST[role] - {right})
            without = await world.token(role, scopes=rest)
            for path, rights in API.items():
                for method, needed in rights.items():
                    if needed != right:
                        continue
                    status, _ = await world.ask(method, asked(path), bearer(without) + json_body, b"{}")
                    assert status == 403, (role, method, path)
                    status, _ = await world.ask(method, asked(path), bearer(whole) + json_body, b"{}")
                    allowed = right in MOST[role]
                    assert (status not in (401, 403)) == allowed, (role, method, path, status)
            if right == "mcp":
                for path in MCP:
                    assert (await world.ask("POST", path, bearer(without), b"{}"))[0] == 403, (role, path)


async def test_a_method_that_is_not_there_is_answered_by_nothing(world) -> None:
    token = bearer(await world.token("operator"))
    for path, rights in API.items():
        for method in set(METHODS) - set(rights):
            status, _ = await world.ask(method, asked(path), token, b"{}")
            assert status == (405 if rights else 404), (method, path)


async def test_what_is_open_tells_the_same_to_everybody(world) -> None:
    for path in OPEN:
        for headers in await refused_ones(world):
            status, _ = await world.ask("GET", asked(path), headers)
            assert status in (200, 404), path


async def test_the_console_shows_a_stranger_the_page_to_sign_in_at_and_nothing_else(world) -> None:
    pages = [*(page.path for page in world.console._pages), "/live", "/nothing"]
    actions = [*(action.path for _, action in world.console._actions._targets), "/leave", "/nothing"]
    cookie = [(b"cookie", b"__Host-packhost=made-up")]
    for headers in [*await refused_ones(world), cookie, bearer(await world.token("operator"))]:
        for path in pages:
            status, told = await world.ask("GET", f"/console{asked(path)}", headers)
            led = status == 303 and told[b"location"].startswith(b"/console/login?")
            assert led or status in (401, 403), (path, status)
        for path in actions:
            for method in set(METHODS) - {"GET", "HEAD"}:
                own = [(b"sec-fetch-site", b"same-origin"), *headers]
                status, _ = await world.ask(method, f"/console{asked(path)}", own)
                assert status in (401, 403, 405), (method, path, status)
    for path in ANYBODY:
        assert (await world.ask("GET", f"/console{path}", []))[0] == 200
