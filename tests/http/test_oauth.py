"""Access tokens of an authorization server at every door: what lets in, what does not, and what is told."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import anyio
import httpx2
import pytest
from authorization import AuthorizationServer
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import SubscriptionLost

from packhost.control import tokens
from packhost.http.api import Api
from packhost.oauth.issuers import Issuers
from packhost.oauth.keys import AGAIN
from packhost.store.ops import sessions
from packhost.transports import door
from packhost.transports.http import serve_http

pytestmark = pytest.mark.anyio
PATIENCE = 30
DOORS = ("/mcp", "/v1")
EVERYTHING = "mcp tools:read runs:read runs:write approvals:read approvals:decide grants:read audit:read"
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "raw", "version": "1"},
    },
}
BOTH = {"Accept": "application/json, text/event-stream"}


class Guarded:
    """A host that takes the tokens of one authorization server."""

    def __init__(self, host: Any, url: str, server: AuthorizationServer, settings: list[Any]) -> None:
        self.host = host
        self.url = url
        self.server = server
        self._settings = settings

    def settle(self, **more: Any) -> None:
        """Other settings, from the next request on."""
        own = {key: more.pop(key) for key in ("required", "resource", "scopes") if key in more}
        self._settings[0] = self.server.settings(**more).model_copy(update=own)

    def token(self, where: str, **claims: Any) -> str:
        given = {"aud": f"{self.url}{where}", "scope": EVERYTHING, **claims}
        return self.server.token(**given)

    async def ask(self, where: str, token: str | None = None, **headers: str) -> httpx2.Response:
        """A request that any right lets through: one of MCP at `/mcp`, a list of runs at `/v1`."""
        sent = {**BOTH, **headers, **({} if token is None else {"Authorization": f"Bearer {token}"})}
        async with httpx2.AsyncClient(base_url=self.url, timeout=10) as client:
            if where == "/mcp":
                return await client.post("/mcp", json=INITIALIZE, headers=sent)
            return await client.get("/v1/runs", headers=sent)


@pytest.fixture
async def guarded(host) -> AsyncIterator[Guarded]:
    """The host behind its doors, with an authorization server."""
    server = AuthorizationServer()
    settings = [server.settings()]
    issuers = Issuers(lambda: settings[0], server.fetch)
    api = Api(host.parts, host.cursor_key, host.version, issuers=issuers)
    found: list[str] = []
    async with anyio.create_task_group() as tasks:

        async def serve() -> None:
            await serve_http(host.server, "127.0.0.1:0", version="1", api=api, started=found.append)

        tasks.start_soon(serve)
        with anyio.fail_after(PATIENCE):
            while not found:
                await anyio.sleep(0.005)
        yield Guarded(host, found[0], server, settings)
        tasks.cancel_scope.cancel()


def challenge(answer: httpx2.Response) -> dict[str, str]:
    """The members of the challenge."""
    scheme, _, rest = answer.headers["www-authenticate"].partition(" ")
    assert scheme == "Bearer"
    return dict(re.findall(r'(\w+)="([^"]*)"', rest))


async def test_a_sound_token_lets_in_at_its_door_and_a_whole_address_at_each(guarded) -> None:
    port = guarded.url.rpartition(":")[2]
    for where in DOORS:
        for audience in (where, f"{where}/", "", "/"):
            answer = await guarded.ask(where, guarded.token("", aud=f"{guarded.url}{audience}"))
            assert answer.status_code == 200, audience
        same = f"http://localhost:{port}{where}"
        assert (await guarded.ask(where, guarded.token("", aud=same))).status_code == 200


@pytest.mark.parametrize("where", DOORS)
async def test_what_does_not_hold_is_a_401_that_says_where_to_go(guarded, where) -> None:
    for claims in (
        {"aud": "https://other.example/mcp"},
        {"aud": "http://127.0.0.1:1/mcp"},
        {"iss": "https://evil.example"},
        {"exp": 1_000_000_000},
        {"nbf": 9_999_999_999},
        {"sub": None},
    ):
        answer = await guarded.ask(where, guarded.token(where, **claims))
        assert answer.status_code == 401, claims
        assert challenge(answer)["error"] == "invalid_token"
        assert challenge(answer)["resource_metadata"] == (
            f"{guarded.url}/.well-known/oauth-protected-resource{where}"
        )
        assert answer.json()["code"] == "UNAUTHENTICATED"


async def test_a_token_for_one_door_opens_no_other(guarded) -> None:
    for where, other in (DOORS, DOORS[::-1]):
        answer = await guarded.ask(where, guarded.token(other))
        assert answer.status_code == 401
        assert "another resource" in answer.json()["detail"]


async def test_the_word_of_a_request_makes_no_address_ours(guarded) -> None:
    for where in DOORS:
        token = guarded.token(where, aud=f"http://127.0.0.1:1{where}")
        assert (await guarded.ask(where, token, Host="127.0.0.1:1")).status_code == 401


async def test_a_token_that_is_not_signed_gets_nowhere(guarded) -> None:
    for where in DOORS:
        none = guarded.server.forged({"alg": "none", "kid": "k1"}, aud=f"{guarded.url}{where}")
        assert (await guarded.ask(where, none)).status_code == 401


async def test_a_huge_header_is_refused(guarded) -> None:
    for where in DOORS:
        answer = await guarded.ask(where, guarded.token(where, more="x" * 20_000))
        assert answer.status_code == 401
        assert challenge(answer)["error"] == "invalid_request"


@pytest.mark.parametrize("where", DOORS)
async def test_what_cannot_be_checked_is_unavailable_and_not_unauthenticated(guarded, where) -> None:
    guarded.server.down = True
    answer = await guarded.ask(where, guarded.token(where))
    assert answer.status_code == 503
    assert answer.json()["code"] == "KEYS_UNAVAILABLE"
    assert int(answer.headers["retry-after"]) == AGAIN
    assert "www-authenticate" not in answer.headers


@pytest.mark.parametrize("where", DOORS)
async def test_without_the_scope_the_answer_names_it(guarded, where) -> None:
    needed = {"/mcp": "mcp", "/v1": "runs:read"}[where]
    for scope in ("", "openid profile", "runs:readx", None):
        answer = await guarded.ask(where, guarded.token(where, scope=scope))
        assert answer.status_code == 403
        told = challenge(answer)
        assert (told["error"], told["scope"]) == ("insufficient_scope", needed)
        assert told["resource_metadata"].endswith(where)
        assert answer.json()["scope"] == needed
    assert (await guarded.ask(where, guarded.token(where, scope=f"a {needed}"))).status_code == 200


@pytest.mark.parametrize("where", DOORS)
async def test_scopes_may_have_names_of_the_authorization_servers_own(guarded, where) -> None:
    guarded.settle(scopes={"harbour.use": ("mcp", "runs:read"), "harbour.steer": ("runs:write",)})
    answer = await guarded.ask(where, guarded.token(where))
    assert answer.status_code == 403, "ours mean nothing then"
    assert challenge(answer)["scope"] == "harbour.use"
    assert (await guarded.ask(where, guarded.token(where, scope="harbour.use"))).status_code == 200
    found = (await guarded.ask(where)).headers.get("www-authenticate", "")
    assert where == "/v1" or not found, "our own process needs no token at /mcp"


async def test_a_scope_beyond_the_role_gives_nothing(guarded) -> None:
    async with httpx2.AsyncClient(base_url=guarded.url) as client:

        async def status(path: str, role: str, scope: str) -> int:
            guarded.settle(role=role)
            headers = {"Authorization": f"Bearer {guarded.token('/v1', scope=scope)}"}
            return int((await client.get(path, headers=headers)).status_code)

        assert await status("/v1/audit/head", "caller", "audit:read") == 403
        assert await status("/v1/audit/head", "auditor", "audit:read") == 200
        assert await status("/v1/audit/head", "operator", "runs:read") == 403
        assert await status("/v1/runs", "none", "runs:read") == 403


async def test_roles_follow_from_claims_and_the_first_that_fits_counts(guarded) -> None:
    rules = [
        {"claim": "realm_access.roles", "value": "harbour-masters", "role": "operator"},
        {"claim": "client_id", "value": "nightly", "role": "auditor"},
    ]
    guarded.settle(roles=rules)

    async def role(**claims: Any) -> str:
        headers = {"Authorization": f"Bearer {guarded.token('/v1', **claims)}"}
        async with httpx2.AsyncClient(base_url=guarded.url) as client:
            return str((await client.get("/v1/status", headers=headers)).json()["identity"]["role"])

    assert await role(realm_access={"roles": ["crew", "harbour-masters"]}) == "operator"
    assert await role(client_id="nightly") == "auditor"
    assert await role(realm_access={"roles": "harbour-mastersx"}) == "caller"
    assert await role(realm_access=["roles"], role="operator", roles=["operator"]) == "caller"


async def test_the_metadata_say_what_rfc_9728_asks(guarded) -> None:
    for where in ("/mcp", "/sse", "/v1", ""):
        await _check_metadata(guarded, where)


async def _check_metadata(guarded: Guarded, where: str) -> None:
    async with httpx2.AsyncClient(base_url=guarded.url) as client:
        answer = await client.get(f"/.well-known/oauth-protected-resource{where}")
        named = await client.get(
            f"/.well-known/oauth-protected-resource{where}",
            headers={"Host": guarded.url.removeprefix("http://").replace("127.0.0.1", "localhost")},
        )
    assert answer.headers["content-type"] == "application/json"
    found = answer.json()
    assert found["resource"] == f"{guarded.url}{where}"
    assert named.json()["resource"] == found["resource"].replace("127.0.0.1", "localhost")
    assert found["authorization_servers"] == [guarded.server.issuer]
    assert found["bearer_methods_supported"] == ["header"]
    assert "secrets:read" not in found["scopes_supported"]
    assert ("mcp" in found["scopes_supported"]) is (where != "/v1")
    assert set(found) == {
        "resource",
        "resource_name",
        "authorization_servers",
        "scopes_supported",
        "bearer_methods_supported",
    }


async def test_there_are_no_metadata_of_what_there_is_not(guarded) -> None:
    async with httpx2.AsyncClient(base_url=guarded.url) as client:
        for path in ("/nothing", "/mcp/x", "x", "/v1/runs"):
            answer = await client.get(f"/.well-known/oauth-protected-resource{path}")
            assert answer.status_code in (401, 404), path
        guarded.settle()
        guarded._settings[0] = guarded._settings[0].model_copy(update={"issuers": ()})
        assert (await client.get("/.well-known/oauth-protected-resource")).status_code == 404
        assert "resource_metadata" not in (await client.get("/v1/runs")).headers["www-authenticate"]


async def test_an_address_that_others_reach_is_the_resource_and_wants_a_token_of_everybody(guarded) -> None:
    guarded.settle(resource="https://tools.example/packhost")
    assert (await guarded.ask("/mcp")).status_code == 401
    told = challenge(await guarded.ask("/mcp"))
    assert told["resource_metadata"] == (
        "https://tools.example/.well-known/oauth-protected-resource/packhost/mcp"
    )
    assert told["scope"] == "mcp"
    async with httpx2.AsyncClient(base_url=guarded.url) as client:
        found = await client.get("/.well-known/oauth-protected-resource/packhost/mcp")
    assert found.json()["resource"] == "https://tools.example/packhost/mcp"
    assert (await guarded.ask("/mcp", guarded.token("/mcp"))).status_code == 401
    sound = guarded.token("", aud="https://tools.example/packhost/mcp")
    page = {"Host": "tools.example", "Origin": "https://tools.example"}
    for named in ({}, page):
        assert (await guarded.ask("/mcp", sound, **named)).status_code == 200
    assert (await guarded.ask("/mcp", sound, Host="tools.example.evil")).status_code == 421
    guarded.settle(required=False)
    assert (await guarded.ask("/mcp", **page)).status_code == 421, "it is the proxy's name no more"


async def test_own_processes_need_a_token_where_that_is_required(guarded) -> None:
    assert (await guarded.ask("/mcp")).status_code == 200
    guarded.settle(required=True)
    answer = await guarded.ask("/mcp")
    assert answer.status_code == 401
    assert "error" not in challenge(answer), "it brought none, so nothing was wrong with it"
    async with httpx2.AsyncClient(base_url=guarded.url) as client:
        assert (await client.get("/sse")).status_code == 401
        assert (await client.post("/messages/")).status_code == 401
        assert (await client.get("/healthz")).status_code == 200


async def test_a_proxy_of_the_same_user_lends_nobody_that_user(guarded) -> None:
    for header in ("Forwarded", "Via", "X-Forwarded-For", "X-Real-IP"):
        answer = await guarded.ask("/mcp", **{header: "for=192.0.2.1"})
        assert answer.status_code == 401
        assert (await guarded.ask("/mcp", guarded.token("/mcp"), **{header: "1.1 a"})).status_code == 200


async def test_tokens_made_here_count_beside_the_others(guarded) -> None:
    made = await tokens.new(guarded.host.parts, {"role": "caller", "principal": "ci"})
    for where in DOORS:
        assert (await guarded.ask(where, made["token"])).status_code == 200
    listed = await tokens.listing(guarded.host.parts, {"all": True})
    assert [one["principal"] for one in listed["tokens"]] == ["ci"]


async def test_no_trace_of_an_access_token_is_kept(guarded) -> None:
    token = guarded.token("/v1")
    for where in DOORS:
        await guarded.ask(where, guarded.token(where))
    await guarded.ask("/v1", token)
    await guarded.host.store.flush()
    kept = b"".join(path.read_bytes() for path in guarded.host.root.state.rglob("*") if path.is_file())
    for part in token.split("."):
        assert part.encode() not in kept


async def whoami(guarded: Guarded, token: str, mode: str) -> str:
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(headers=headers, timeout=30) as http:
        transport = streamable_http_client(f"{guarded.url}/mcp", http_client=http)
        async with Client(transport, mode=mode) as client:
            result = await client.call_tool("packhost_status", {})
            return str(re.search(r'"principal": ?"([^"]+)"', result.content[0].text)[1])


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_over_mcp_a_call_is_for_whom_the_token_stands(guarded, mode) -> None:
    with anyio.fail_after(PATIENCE):
        assert await whoami(guarded, guarded.token("/mcp"), mode) == "https://id.example#ann"
    found = guarded.host.store.read(sessions.listing, 100)
    assert {row.principal for row in found} <= {"https://id.example#ann"}


async def test_nobody_else_speaks_on_a_connection_over_sse(guarded) -> None:
    def headers(**claims: Any) -> dict[str, str]:
        return {"Authorization": f"Bearer {guarded.token('/sse', **claims)}"}

    with anyio.fail_after(PATIENCE):
        async with (
            httpx2.AsyncClient(base_url=guarded.url, timeout=PATIENCE) as client,
            client.stream("GET", "/sse", headers=headers()) as stream,
        ):
            lines = stream.aiter_lines()
            while not (line := await anext(lines)).startswith("data:"):
                pass
            where = line.removeprefix("data:").strip()
            for sent, status in ((headers(sub="mallory"), 404), ({}, 404), (headers(jti="renewed"), 202)):
                answer = await client.post(where, json=INITIALIZE, headers=sent)
                assert answer.status_code == status


async def test_a_session_outlives_its_token_and_is_nobody_elses(guarded) -> None:
    def headers(**claims: Any) -> dict[str, str]:
        return {**BOTH, "Authorization": f"Bearer {guarded.token('/mcp', **claims)}"}

    async with httpx2.AsyncClient(base_url=guarded.url, timeout=10) as client:
        opened = await client.post("/mcp", json=INITIALIZE, headers=headers())
        session = {"Mcp-Session-Id": opened.headers["mcp-session-id"], "MCP-Protocol-Version": "2025-11-25"}
        call = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        for claims, status in (
            ({"exp": 9_000_000_000, "jti": "renewed"}, 200),
            ({"sub": "mallory"}, 404),
            ({"client_id": "another"}, 404),
            ({"exp": 1_000_000_000}, 401),
        ):
            answer = await client.post("/mcp", json=call, headers={**headers(**claims), **session})
            assert answer.status_code == status, claims
        made = await tokens.new(guarded.host.parts, {"role": "caller", "principal": "https://id.example#ann"})
        own = {**BOTH, "Authorization": f"Bearer {made['token']}"}
        assert (await client.post("/mcp", json=call, headers={**own, **session})).status_code == 404


async def test_whoever_listens_is_cut_off_once_their_token_has_ended(guarded, monkeypatch) -> None:
    monkeypatch.setattr(door, "LOOK_EVERY", 0.05)
    now = guarded.host.store.now()
    token = guarded.token("/sse", exp=int(now) - 29)
    headers = {"Authorization": f"Bearer {token}"}
    with anyio.fail_after(PATIENCE):
        async with (
            httpx2.AsyncClient(base_url=guarded.url, timeout=PATIENCE) as client,
            client.stream("GET", "/sse", headers=headers) as stream,
        ):
            assert stream.status_code == 200
            assert "event: endpoint" in [line async for line in stream.aiter_lines()]


async def test_a_stream_of_events_ends_with_the_token(guarded, monkeypatch) -> None:
    monkeypatch.setattr("packhost.http.events.ALIVE_EVERY", 0.05)
    run = await tokens.new(guarded.host.parts, {"role": "operator", "principal": "root"})
    body = {"messages": [{"role": "user", "content": "hi"}], "loop": True}
    async with httpx2.AsyncClient(base_url=guarded.url, timeout=PATIENCE) as client:
        operator = {"Authorization": f"Bearer {run['token']}"}
        started = await client.post("/v1/runs", json=body, headers=operator)
        guarded.settle(role="operator")
        ending = guarded.token("/v1", exp=int(guarded.host.store.now()) - 29)
        url = f"{started.headers['location']}/events"
        with anyio.fail_after(PATIENCE):
            async with client.stream("GET", url, headers={"Authorization": f"Bearer {ending}"}) as stream:
                assert stream.status_code == 200
                assert not any(
                    [line.startswith("event: run.completed") async for line in stream.aiter_lines()]
                )


async def test_a_subscription_ends_once_its_token_is_revoked(guarded, monkeypatch) -> None:
    monkeypatch.setattr(door, "LOOK_EVERY", 0.05)
    made = await tokens.new(guarded.host.parts, {"role": "caller", "principal": "ci"})
    headers = {"Authorization": f"Bearer {made['token']}"}
    with anyio.fail_after(PATIENCE):
        async with (
            httpx2.AsyncClient(headers=headers, timeout=PATIENCE) as http,
            Client(streamable_http_client(f"{guarded.url}/mcp", http_client=http)) as client,
            client.listen(tools_list_changed=True) as subscription,
        ):
            await tokens.revoke(guarded.host.parts, {"id": made["id"]})
            with pytest.raises(SubscriptionLost):
                async for _ in subscription:
                    pass
