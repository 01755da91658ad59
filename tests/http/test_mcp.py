"""Tokens at the doors of MCP: a request with one is for its principal, one without for the user."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import ElicitResult

from packhost.control import tokens
from packhost.http.api import Api, build_api
from packhost.http.limits import Allowance
from packhost.store.ops import approvals, sessions
from packhost.transports.http import serve_http

pytestmark = pytest.mark.anyio
PATIENCE = 30


class Doors:
    """A host behind all its HTTP doors."""

    def __init__(self, host: Any, url: str) -> None:
        self.host = host
        self.url = url

    async def headers(self, role: str = "caller", principal: str = "ci", **more: Any) -> dict[str, str]:
        made = await tokens.new(self.host.parts, {"role": role, "principal": principal, **more})
        return {"Authorization": f"Bearer {made['token']}"}


@pytest.fixture
async def doors(host, request) -> AsyncIterator[Doors]:
    """The host behind every HTTP door that there is, with the allowance that the test gives."""
    api = build_api(host.parts, host.cursor_key, host.version)
    if hasattr(request, "param"):
        api = Api(host.parts, host.cursor_key, host.version, allowance=request.param)
    found: list[str] = []
    async with anyio.create_task_group() as tasks:

        async def serve() -> None:
            await serve_http(host.server, "127.0.0.1:0", version="1", api=api, started=found.append)

        tasks.start_soon(serve)
        with anyio.fail_after(PATIENCE):
            while not found:
                await anyio.sleep(0.005)
        yield Doors(host, found[0])
        tasks.cancel_scope.cancel()


async def principal_seen(doors: Doors, headers: dict[str, str], era: str) -> str:
    async with httpx2.AsyncClient(headers=headers, timeout=30) as http:
        transport = streamable_http_client(f"{doors.url}/mcp", http_client=http)
        async with Client(transport, mode=era) as client:
            result = await client.call_tool("packhost_status", {})
            return str(re.search(r'"principal": ?"([^"]+)"', result.content[0].text)[1])


@pytest.mark.parametrize("era", ["auto", "legacy"])
async def test_a_request_with_a_token_is_for_its_principal(doors, era) -> None:
    with anyio.fail_after(PATIENCE):
        assert await principal_seen(doors, await doors.headers(), era) == "ci"
        assert await principal_seen(doors, {}, era) == doors.host.principal


async def test_a_token_that_may_read_no_secrets_gives_none_to_tools_of_its_own(doors) -> None:
    tool = {"name": "t", "config": {"headers": {"A": "{{secret:KEY}}"}}}
    arguments = {"messages": [{"role": "user", "content": "hi"}], "runtime_tools": [tool]}
    said = []
    for headers in (await doors.headers(), {}):
        async with httpx2.AsyncClient(headers=headers, timeout=30) as http:
            transport = streamable_http_client(f"{doors.url}/mcp", http_client=http)
            async with Client(transport) as client:
                result = await client.call_tool("agent-runtime_execute-turn", arguments)
                said.append("secrets:read" in result.content[0].text)
    assert said == [True, False]


@pytest.mark.parametrize("path", ["/mcp", "/sse", "/messages/"])
async def test_a_token_that_is_wrong_is_refused_even_from_the_same_user(doors, path) -> None:
    async with httpx2.AsyncClient(base_url=doors.url) as client:
        bad = await client.get(path, headers={"Authorization": "Bearer pkh_wrong"})
        assert bad.status_code == 401
        assert "invalid_token" in bad.headers["www-authenticate"]
        auditor = await client.get(path, headers=await doors.headers("auditor"))
        assert auditor.status_code == 403
        assert 'scope="mcp"' in auditor.headers["www-authenticate"]


async def test_the_api_wants_a_token_even_from_the_same_user(doors) -> None:
    async with httpx2.AsyncClient(base_url=doors.url) as client:
        for path in ("/v1", "/v1/runs", "/v1/status", "/v1/nothing"):
            assert (await client.get(path)).status_code == 401
        for path in ("/healthz", "/v1/openapi.json"):
            assert (await client.get(path)).status_code == 200
        with_token = await client.get("/v1/status", headers=await doors.headers())
        assert with_token.json()["identity"]["principal"] == "ci"


async def test_a_web_page_and_a_handlers_fetch_reach_no_api_even_with_a_token(doors) -> None:
    headers = await doors.headers()
    async with httpx2.AsyncClient(base_url=doors.url, headers=headers) as client:
        assert (await client.get("/v1/runs", headers={"Host": "evil.example"})).status_code == 421
        assert (await client.get("/v1/runs", headers={"Origin": "http://evil.example"})).status_code == 403
        fetched = await client.get("/v1/runs", headers={"Packhost-Fetch": "1"})
        assert fetched.status_code == 403


async def test_a_session_is_of_the_token_that_opened_it_alone(doors) -> None:
    mine, theirs = await doors.headers(), await doors.headers(principal="mallory")
    body = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "raw", "version": "1"},
        },
    }
    both = {"Accept": "application/json, text/event-stream"}
    async with httpx2.AsyncClient(base_url=doors.url, timeout=10) as client:
        opened = await client.post("/mcp", json=body, headers={**mine, **both})
        session = {"Mcp-Session-Id": opened.headers["mcp-session-id"], "MCP-Protocol-Version": "2025-11-25"}
        call = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        for headers, status in ((theirs, 404), ({}, 404), (mine, 200)):
            answer = await client.post("/mcp", json=call, headers={**headers, **both, **session})
            assert answer.status_code == status


async def test_over_sse_a_token_names_the_principal_too(doors) -> None:
    headers = await doors.headers()
    with anyio.fail_after(PATIENCE):
        async with Client(sse_client(f"{doors.url}/sse", headers=headers), mode="legacy") as client:
            await client.call_tool("workspace_read_file", {"path": "packhost.yaml"})
    found = doors.host.store.read(sessions.listing, 100)
    assert [row.principal for row in found] == ["ci"]
    assert doors.host.principal != "ci", os.getuid()


@pytest.mark.parametrize("era", ["auto", "legacy"])
async def test_an_end_user_answers_in_no_dialog_what_is_their_owners_to_answer(doors, era, project) -> None:
    shown: list[str] = []

    async def dialog(context: Any, params: Any) -> ElicitResult:
        shown.append(params.message)
        return ElicitResult(action="accept")

    arguments = {"path": "src/a.txt", "content": "a"}
    results = []
    with anyio.fail_after(PATIENCE):
        for role in ("end-user", "operator"):
            async with httpx2.AsyncClient(headers=await doors.headers(role, "ann"), timeout=30) as http:
                transport = streamable_http_client(f"{doors.url}/mcp", http_client=http)
                async with Client(transport, mode=era, elicitation_callback=dialog) as client:
                    results.append(await client.call_tool("workspace_write_file", arguments))
                    if role == "end-user":
                        assert shown == []
                        assert not (project / "src" / "a.txt").exists()
                        arguments = {**arguments, "content": "b"}
    assert results[0].is_error
    assert "APPROVAL_REQUIRED" in results[0].content[0].text
    assert (len(shown), (project / "src" / "a.txt").read_text()) == (1, "b")


async def test_neither_does_one_within_a_run_of_theirs(doors, project) -> None:
    async def dialog(context: Any, params: Any) -> ElicitResult:
        raise AssertionError("nothing is put to an end user")

    asked = {"messages": [{"role": "user", "content": "go"}], "loop": True}
    with anyio.fail_after(PATIENCE):
        async with httpx2.AsyncClient(headers=await doors.headers("end-user", "ann"), timeout=30) as http:
            transport = streamable_http_client(f"{doors.url}/mcp", http_client=http)
            results: list[Any] = []
            async with (
                Client(transport, mode="legacy", elicitation_callback=dialog) as client,
                anyio.create_task_group() as tasks,
            ):

                async def call() -> None:
                    results.append(await client.call_tool("agent-runtime_execute-turn", asked))

                tasks.start_soon(call)
                while not (rows := doors.host.store.read(approvals.listing, "pending")):
                    await anyio.sleep(0.01)
                await doors.host.gate.decide(rows[0].id, "approve", by="bob", channel="api")
    assert not results[0].is_error
    assert (project / "src" / "turn.txt").read_text() == "turned"


@pytest.mark.parametrize("doors", [Allowance(rate=0.5, burst=3)], indirect=True)
async def test_one_with_a_token_has_so_many_requests_and_is_told_when_to_come_back(doors) -> None:
    async def asked(headers: dict[str, str]) -> list[httpx2.Response]:
        async with httpx2.AsyncClient(headers=headers) as http:
            return [await http.post(f"{doors.url}/mcp", json={}) for _ in range(5)]

    answers = await asked(await doors.headers())
    assert [answer.status_code == 429 for answer in answers] == [False] * 3 + [True] * 2
    assert answers[-1].headers["retry-after"] == "2"
    assert answers[-1].json()["code"] == "LIMIT_EXCEEDED"
    for others in (await doors.headers("caller", "other"), {}):
        assert 429 not in {answer.status_code for answer in (await asked(others))[:3]}
    assert 429 not in {answer.status_code for answer in await asked({})}


@pytest.mark.parametrize("doors", [Allowance(streams=1)], indirect=True)
async def test_one_with_a_token_has_so_many_streams(doors) -> None:
    async with (
        httpx2.AsyncClient(headers=await doors.headers(), timeout=30) as http,
        http.stream("GET", f"{doors.url}/sse") as first,
    ):
        assert first.status_code == 200
        second = await http.get(f"{doors.url}/sse")
        assert (second.status_code, second.headers["retry-after"]) == (429, "5")
