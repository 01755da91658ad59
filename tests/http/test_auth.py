"""Who gets in: no request without a right goes further than 401 or 403."""

from __future__ import annotations

import re

import anyio
import pytest

from packhost.http.api import ENDPOINTS
from packhost.http.auth import Authenticator
from packhost.http.kit import Endpoint
from packhost.http.limits import Allowance
from packhost.rules.identities import MOST, ROLES, Right
from packhost.store.ops import tokens

pytestmark = pytest.mark.anyio


def path_of(endpoint: Endpoint) -> str:
    return "/v1" + re.sub(r"\{\w+\}", "some", endpoint.path)


@pytest.mark.parametrize(
    "header",
    [None, "Bearer pkh_unknown", "Basic dXNlcjpwYXNz", "Bearer", "bearer é".encode("latin-1")],
)
async def test_without_a_known_token_nothing_is_answered(records, header) -> None:
    headers = {} if header is None else {"Authorization": header}
    async with records.serve() as served, served.anyone() as client:
        for endpoint in ENDPOINTS:
            answer = await client.request(endpoint.method, path_of(endpoint), headers=headers, content=b"{{{")
            assert answer.status_code == 401, endpoint.path
            assert answer.headers["www-authenticate"].startswith("Bearer realm=")
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.json()["code"] == "UNAUTHENTICATED"


async def test_not_even_what_there_is_is_told_without_a_token(records) -> None:
    async with records.serve() as served, served.anyone() as stranger, served.client() as client:
        for path in ("/v1", "/v1/", "/v1/nothing", "/v1/runs/", "/v1/runs/a/b/c", "/v1//runs"):
            assert (await stranger.get(path)).status_code == 401, path
            assert (await client.get(path)).status_code == 404, path


@pytest.mark.parametrize("role", ROLES)
async def test_a_token_without_the_scope_is_forbidden_whatever_it_asks(records, role) -> None:
    async with records.serve() as served:
        for endpoint in ENDPOINTS:
            others = sorted(MOST[role] - {endpoint.right})
            async with served.client(role, "somebody", scopes=others) as client:
                answer = await client.request(endpoint.method, path_of(endpoint), content=b"{{{")
            assert answer.status_code == 403, endpoint.path
            assert f'scope="{endpoint.right}"' in answer.headers["www-authenticate"]
            assert answer.json()["scope"] == endpoint.right


def test_what_each_role_may_do_is_written_down() -> None:
    uses: set[Right] = {"mcp", "tools:read", "runs:read", "runs:write", "sessions:write", "approvals:read"}
    sees: set[Right] = {"tools:read", "runs:read", "approvals:read", "grants:read", "audit:read"}
    decides: set[Right] = {"approvals:decide", "grants:write"}
    assert {
        "caller": uses | {"secrets:read"},
        "end-user": uses | {"approvals:decide"},
        "operator": uses | sees | decides | {"secrets:read"},
        "auditor": sees,
    } == MOST


async def test_the_document_is_open_to_everybody(records) -> None:
    async with records.serve() as served, served.anyone() as client:
        assert (await client.get("/v1/openapi.json")).status_code == 200


async def test_a_token_that_was_revoked_or_has_expired_counts_no_more(records, monkeypatch) -> None:
    async with records.serve() as served:
        async with served.client() as client:
            assert (await client.get("/v1/runs")).status_code == 200
            (row,) = records.store.read(tokens.listing)
            await records.store.write(tokens.revoke, row.id, "me")
            assert (await client.get("/v1/runs")).status_code == 401
        async with served.client(expires_in=60) as client:
            assert (await client.get("/v1/runs")).status_code == 200
            await records.store.write(
                lambda tx: tx.execute("UPDATE tokens SET expires_at=?", (tx.now() - 1,)) and None
            )
            assert (await client.get("/v1/runs")).status_code == 401


async def test_a_tokens_last_use_is_noted(records) -> None:
    async with records.serve() as served, served.client() as client:
        (row,) = records.store.read(tokens.listing)
        assert row.last_used_at is None
        await client.get("/v1/runs")
        await records.store.flush()
        (row,) = records.store.read(tokens.listing)
        assert row.last_used_at is not None
        await client.get("/v1/runs")
        await records.store.flush()
        assert records.store.read(tokens.listing) == (row,)


async def test_two_authorization_headers_are_none(records) -> None:
    async with records.serve() as served:
        token = await served.token("caller", "ci")
        twice = [(b"authorization", f"Bearer {token}".encode())] * 2
        with pytest.raises(Exception, match="no bearer token"):
            await Authenticator(records.store).identify({"type": "http", "path": "/v1", "headers": twice})


async def test_a_principal_that_asks_too_often_is_told_when_to_come_back(records) -> None:
    async with records.serve(Allowance(rate=0.5, burst=3)) as served, served.client() as client:
        codes = [(await client.get("/v1/runs")).status_code for _ in range(4)]
        assert codes == [200, 200, 200, 429]
        refused = await client.get("/v1/runs")
        assert refused.json()["code"] == "LIMIT_EXCEEDED"
        assert int(refused.headers["retry-after"]) in (1, 2)
        async with served.client(principal="another") as other:
            assert (await other.get("/v1/runs")).status_code == 200


async def test_requests_at_once_are_limited(records) -> None:
    run = await records.run()
    async with records.serve(Allowance(at_once=2)) as served, served.client() as client:
        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(lambda: client.get(f"/v1/runs/{run}/result", headers={"Prefer": "wait=30"}))
            with anyio.fail_after(20):
                while (answer := await client.get("/v1/runs")).status_code == 200:
                    await anyio.sleep(0.01)
            assert answer.status_code == 429
            await records.end(run)
        assert (await client.get("/v1/runs")).status_code == 200
