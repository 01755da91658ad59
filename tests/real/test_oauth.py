"""A real authorization server, and the MCP SDK's own client of it: the whole way to a call and a run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from mcp import Client
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from oauth_login import log_in

pytestmark = [pytest.mark.real, pytest.mark.anyio]


class Kept:
    """What the client keeps: nothing to begin with."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


class Person:
    """Opens the page that the client names, and brings back what it says in the end."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.opened: list[str] = []
        self._back = ""

    async def open(self, url: str) -> None:
        self.opened.append(url)
        self._back = await asyncio.to_thread(log_in, url, self.name)

    async def back(self) -> AuthorizationCodeResult:
        said = {name: values[0] for name, values in parse_qs(urlsplit(self._back).query).items()}
        return AuthorizationCodeResult(code=said["code"], state=said.get("state"), iss=said.get("iss"))


@asynccontextmanager
async def connected(url: str, kept: Kept, person: Person, scope: str | None = None) -> AsyncIterator[Client]:
    about = OAuthClientMetadata(
        client_name="a test", redirect_uris=["http://127.0.0.1:9/callback"], scope=scope
    )
    auth = OAuthClientProvider(url, about, kept, person.open, person.back)
    async with (
        httpx2.AsyncClient(auth=auth, timeout=30) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        yield client


async def test_the_sdks_client_finds_logs_in_and_calls(serve_oauth, guarded) -> None:
    with serve_oauth() as issuer, guarded(issuer) as server:
        kept, person = Kept(), Person("ann")
        async with connected(server["url"], kept, person) as client:
            result = await client.call_tool("packhost_status", {})
            text = await client.call_tool("workspace_read_file", {"path": "hello.txt"})
        assert f'"{issuer}#ann"' in result.content[0].text
        assert "the harbour opens at nine" in text.content[0].text
        asked = parse_qs(urlsplit(person.opened[0]).query)
        assert asked["resource"] == [server["url"]]
        assert asked["scope"] == ["mcp offline_access"]
        assert asked["code_challenge_method"] == ["S256"]

        # another connection needs no other login
        async with connected(server["url"], kept, person) as client:
            await client.call_tool("packhost_status", {})
        assert len(person.opened) == 1


async def test_a_token_for_one_door_opens_no_other_and_roles_follow_from_groups(serve_oauth, guarded) -> None:
    with serve_oauth() as issuer, guarded(issuer) as server:
        kept = Kept()
        async with connected(server["url"], kept, Person("ann")) as client:
            assert "operator" not in (await client.call_tool("packhost_status", {})).content[0].text
        assert kept.tokens is not None
        api = server["url"].replace("/mcp", "/v1")
        headers = {"Authorization": f"Bearer {kept.tokens.access_token}"}
        async with httpx2.AsyncClient(timeout=30) as http:
            refused = await http.get(f"{api}/runs", headers=headers)
        assert refused.status_code == 401
        assert "another resource" in refused.json()["detail"]


def credentials(issuer: str, resource: str, scope: str) -> dict[str, str]:
    """The headers of a program with a token of its own."""
    said = {"grant_type": "client_credentials", "scope": scope, "resource": resource}
    answer = httpx2.post(f"{issuer}/token", data=said, auth=("nightly", "only-for-tests"), timeout=10)
    assert answer.status_code == 200, answer.text
    return {"Authorization": f"Bearer {answer.json()['access_token']}"}


def test_a_program_with_credentials_uses_the_api_within_its_scopes(serve_oauth, guarded) -> None:
    with serve_oauth() as issuer, guarded(issuer) as server:
        api = server["url"].replace("/mcp", "/v1")
        where = httpx2.get(f"{api}/runs").headers["www-authenticate"]
        metadata = httpx2.get(where.partition('resource_metadata="')[2].partition('"')[0]).json()
        assert metadata["resource"] == api
        assert metadata["authorization_servers"] == [issuer]

        headers = credentials(issuer, api, "runs:read tools:read")
        status = httpx2.get(f"{api}/status", headers=headers).json()
        assert status["identity"]["principal"] == f"{issuer}#nightly"
        assert status["identity"]["scopes"] == ["runs:read", "tools:read"]
        assert httpx2.get(f"{api}/runs", headers=headers).status_code == 200

        denied = httpx2.get(f"{api}/audit/head", headers=headers)
        assert denied.status_code == 403
        assert 'error="insufficient_scope"' in denied.headers["www-authenticate"]
        more = credentials(issuer, api, f"runs:read {denied.json()['scope']}")
        beyond = httpx2.get(f"{api}/audit/head", headers=more)
        assert beyond.status_code == 403, "its role is `caller`, whatever it was granted"


def test_keys_that_were_replaced_count_no_more_and_new_ones_do(serve_oauth, guarded) -> None:
    ours = "      audience: [urn:harbour]\n"
    with serve_oauth() as issuer, guarded(issuer, ours) as server:
        old = credentials(issuer, "urn:harbour", "runs:read")
        assert httpx2.get(server["url"].replace("/mcp", "/v1/runs"), headers=old).status_code == 200
    with serve_oauth(int(issuer.rpartition(":")[2])) as issuer, guarded(issuer, ours) as server:
        runs = server["url"].replace("/mcp", "/v1/runs")
        new = credentials(issuer, "urn:harbour", "runs:read")
        assert httpx2.get(runs, headers=new).status_code == 200
        refused = httpx2.get(runs, headers=old)
        assert refused.status_code == 401
        assert "not signed by a key" in refused.json()["detail"]


def test_doctor_says_whose_tokens_are_taken_and_whether_keys_can_be_had(
    serve_oauth, guarded, workspace
) -> None:
    with serve_oauth() as issuer, guarded(issuer):
        found = workspace.run("doctor")
        assert f"{issuer}: 2 keys" in found


async def test_a_client_without_the_scope_is_told_which_and_logs_in_for_it(serve_oauth, guarded) -> None:
    with serve_oauth() as issuer, guarded(issuer) as server:
        kept, person = Kept(), Person("ann")
        about = {
            "redirect_uris": ["http://127.0.0.1:9/callback"],
            "token_endpoint_auth_method": "none",
            "grant_types": ["authorization_code", "refresh_token"],
        }
        registered = httpx2.post(f"{issuer}/reg", json=about, timeout=10).json()
        kept.client = OAuthClientInformationFull.model_validate(
            {**about, "client_id": registered["client_id"]}
        )
        little = credentials(issuer, server["url"], "runs:read")["Authorization"].removeprefix("Bearer ")
        kept.tokens = OAuthToken(access_token=little, scope="runs:read")
        async with connected(server["url"], kept, person) as client:
            result = await client.call_tool("packhost_status", {})
        assert f"{issuer}#ann" in result.content[0].text
        asked = parse_qs(urlsplit(person.opened[0]).query)["scope"][0].split()
        assert {"runs:read", "mcp"} <= set(asked)
