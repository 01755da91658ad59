"""Whom a call is made for follows from the token, and from no argument: in a call, in a run, in a request."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from authorization import AuthorizationServer
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from packhost.cli.run import run
from packhost.http.api import Api
from packhost.oauth.issuers import Issuers
from packhost.store.ops import executions
from packhost.transports.http import serve_http

pytestmark = pytest.mark.anyio
PATIENCE = 60
MANIFEST = """\
packhost: 1
id: who
version: 1.0.0
title: Who
description: Says whom it is for.
tools:
  - name: tell
    title: Tell
    description: Tells whom it is for.
    kind: python
    target: who:tell
    permission: read
    hidden_parameters: [_tenant, _endUser]
    input_schema:
      type: object
      properties: {_tenant: {type: object}, _endUser: {type: object}}
"""
HANDLER = """\
def tell(context, arguments):
    return {"tenant": arguments["_tenant"]["id"], "user": arguments["_endUser"]["id"]}
"""
SETTINGS = """\
packhost: 1
packs: [agent-runtime, workspace, {path: ./who}]
bound: [path read **, path write .agent-runtime/**]
enforcement: {require: advisory}
variables: {_tenant: {id: harbour}}
agent_runtime:
  default_model: main
  models:
    main:
      provider: scripted
      script:
        - tool_calls: [{id: c1, name: who_tell, arguments: {_tenant: {id: evil}}}]
        - text: Done.
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace with a tool that tells whom it is for."""
    folder = tmp_path / "project"
    (folder / "who").mkdir(parents=True)
    (folder / "who/pack.yaml").write_text(MANIFEST)
    (folder / "who/who.py").write_text(HANDLER)
    (folder / "packhost.yaml").write_text(SETTINGS)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("CLAUDECODE", "CURSOR_AGENT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(folder)
    assert run(["accept", "--yes"]) == 0
    return folder


@pytest.fixture
async def url(host, server) -> AsyncIterator[str]:
    """The host behind its doors; the token's claim `org` is the tenant."""
    issuers = Issuers(lambda: server.settings(tenant="org", role="end-user"), server.fetch)
    api = Api(host.parts, host.cursor_key, host.version, issuers=issuers)
    found: list[str] = []
    async with anyio.create_task_group() as tasks:

        async def serve() -> None:
            await serve_http(host.server, "127.0.0.1:0", version="1", api=api, started=found.append)

        tasks.start_soon(serve)
        with anyio.fail_after(PATIENCE):
            while not found:
                await anyio.sleep(0.005)
        yield found[0]
        tasks.cancel_scope.cancel()


@pytest.fixture
def server() -> AuthorizationServer:
    return AuthorizationServer()


async def told(url: str, headers: dict[str, str], arguments: dict[str, Any]) -> Any:
    async with (
        httpx2.AsyncClient(headers=headers, timeout=PATIENCE) as http,
        Client(streamable_http_client(f"{url}/mcp", http_client=http)) as client,
    ):
        result = await client.call_tool("who_tell", arguments)
        return result.structured_content


@pytest.mark.slow
async def test_the_tenant_and_the_end_user_are_those_of_the_token(host, url, server) -> None:
    def headers(door: str, **claims: Any) -> dict[str, str]:
        token = server.token(aud=f"{url}{door}", scope="mcp runs:read runs:write", **claims)
        return {"Authorization": f"Bearer {token}"}

    north = {"tenant": "north/1", "user": "https://id.example#north%2F1/ann"}
    for arguments in ({}, {"_tenant": {"id": "evil"}, "_endUser": {"id": "evil"}}):
        assert await told(url, headers("/mcp", org="north/1"), arguments) == north
        assert await told(url, {}, arguments) == {"tenant": "harbour", "user": host.principal}

    async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as client:
        assert (await client.get("/v1/runs", headers=headers("/v1"))).status_code == 401, "no tenant"
        mine = headers("/v1", org="north/1")
        body = {"messages": [{"role": "user", "content": "hi"}], "loop": True}
        evil = {**body, "variables": {"_tenant": {"id": "evil"}}}
        assert (await client.post("/v1/runs", json=evil, headers=mine)).status_code == 400
        started = await client.post("/v1/runs", json=body, headers=mine)
        assert started.status_code == 202, started.text
        where = started.headers["location"]
        done = await client.get(f"{where}/result", headers={**mine, "Prefer": "wait=30"})
        assert done.json()["status"] == "completed", done.text
        row = host.store.read(executions.get, where.rpartition("/")[2])
        assert json.loads(row.spec_json)["tenant"] == "north/1"
        assert _results(host, row.id) == [north]
        other = headers("/v1", org="south")
        assert (await client.get(where, headers=other)).status_code == 404
        assert (await client.get("/v1/runs", headers=other)).json()["runs"] == []


def _results(host: Any, run_id: str) -> list[Any]:
    """What the calls of a run gave."""
    rows = host.store.read(
        lambda tx: tx.execute("SELECT result_json FROM calls WHERE execution_id=?", (run_id,)).fetchall()
    )
    return [json.loads(row[0]) for row in rows]
