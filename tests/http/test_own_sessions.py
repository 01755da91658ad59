"""The session of what a principal asks for by itself."""

from __future__ import annotations

import hashlib

import pytest

from packhost.http.cursors import Cursors
from packhost.http.kit import CLIENT

pytestmark = pytest.mark.anyio
WAIT = {"Prefer": "wait=20"}


async def test_nobody_takes_the_session_by_which_another_steers(served) -> None:
    mine = {"messages": [{"role": "user", "content": "go"}], "loop": True}
    named = f"ann\0{CLIENT}".encode()
    guessed = f"api-{hashlib.sha256(named).hexdigest()[:20]}"
    async with served.client("caller", "mallory") as other, served.client("caller", "ann") as client:
        taken = await other.post("/v1/runs", json={**mine, "session_id": guessed}, headers=WAIT)
        assert taken.status_code == 200
        run = (await client.post("/v1/runs", json=mine, headers=WAIT)).json()["agentExecutionId"]
        answer = await client.post(f"/v1/runs/{run}/abort", json={})
        assert answer.json()["code"] == "APPROVAL_REQUIRED", answer.text


def test_it_follows_from_key_and_principal() -> None:
    one, other = Cursors(b"k" * 32), Cursors(b"l" * 32)
    assert one.session("ann") == Cursors(b"k" * 32).session("ann")
    assert len({one.session("ann"), one.session("bob"), other.session("ann")}) == 3
