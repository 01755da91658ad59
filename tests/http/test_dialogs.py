"""Whose word counts at a client's dialog: the user's own, and that of a token which may decide."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client, types
from mcp.client.streamable_http import streamable_http_client
from projects import SETTINGS

from packhost.cli.run import run
from packhost.control import tokens
from packhost.http.api import build_api
from packhost.transports.http import serve_http

pytestmark = pytest.mark.anyio
PATIENCE = 60
WRITE = {"path": "src/plan.txt", "content": "sail at nine"}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace whose writes are asked for, and where nobody is waited for long."""
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    (folder / "packhost.yaml").write_text(SETTINGS + "approvals: {hold: 200ms}\n")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("CLAUDECODE", "CURSOR_AGENT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(folder)
    assert run(["accept", "--yes"]) == 0
    return folder


class Served:
    """A host, and clients of it that say yes to everything that they are asked."""

    def __init__(self, host: Any, url: str) -> None:
        self.host = host
        self.url = url
        self.shown: list[str] = []

    async def _yes(self, context: Any, params: Any) -> types.ElicitResult:
        self.shown.append(params.message)
        return types.ElicitResult(action="accept", content={})

    async def call(self, token: dict[str, Any] | None, mode: str, tool: str, arguments: Any) -> Any:
        headers = {}
        if token is not None:
            made = await tokens.new(self.host.parts, {"principal": "remote", **token})
            headers = {"Authorization": f"Bearer {made['token']}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=PATIENCE) as http,
            Client(
                streamable_http_client(f"{self.url}/mcp", http_client=http),
                mode=mode,
                elicitation_callback=self._yes,
            ) as client,
        ):
            return await client.call_tool(tool, arguments)


@pytest.fixture
async def served(host) -> AsyncIterator[Served]:
    api = build_api(host.parts, host.cursor_key, host.version)
    found: list[str] = []
    async with anyio.create_task_group() as tasks:

        async def serve() -> None:
            await serve_http(host.server, "127.0.0.1:0", version="1", api=api, started=found.append)

        tasks.start_soon(serve)
        with anyio.fail_after(PATIENCE):
            while not found:
                await anyio.sleep(0.005)
        yield Served(host, found[0])
        tasks.cancel_scope.cancel()


OWN = None
CALLER = {"role": "caller"}
END_USER = {"role": "end-user"}
ONLY_MCP = {"role": "operator", "scopes": ["mcp"]}
OPERATOR = {"role": "operator"}


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize(
    ("token", "counts"),
    [(OWN, True), (CALLER, False), (END_USER, False), (ONLY_MCP, False), (OPERATOR, True)],
)
async def test_a_client_approves_at_its_dialog_only_what_its_token_may_decide(
    served, project, token, counts, mode
) -> None:
    with anyio.fail_after(PATIENCE):
        result = await served.call(token, mode, "workspace_write_file", WRITE)
    assert (project / "src/plan.txt").exists() is counts
    assert bool(served.shown) is counts
    assert bool(result.is_error) is not counts
    assert counts or "APPROVAL_REQUIRED" in result.content[0].text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("token", "counts"),
    [(OWN, True), (CALLER, False), (END_USER, False), (ONLY_MCP, False), (OPERATOR, True)],
)
async def test_a_change_of_the_settings_is_accepted_only_by_who_answers_for_them(
    served, project, token, counts
) -> None:
    with (project / "packhost.yaml").open("a") as file:
        file.write("variables: {_tenant: {id: evil}}\n")
    served.host.configuration()
    with anyio.fail_after(PATIENCE):
        await served.call(token, "auto", "packhost_status", {})
    assert bool(served.shown) is counts
    assert ("_tenant" in served.host.workspace.accepted.variables) is counts


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_an_end_user_answers_at_no_dialog_what_a_program_of_their_name_asked(
    served, project, mode
) -> None:
    with anyio.fail_after(PATIENCE):
        await served.call(CALLER, mode, "workspace_write_file", WRITE)
        result = await served.call(END_USER, mode, "workspace_write_file", WRITE)
    assert served.shown == []
    assert not (project / "src/plan.txt").exists()
    assert "APPROVAL_REQUIRED" in result.content[0].text
