"""What `_meta` asks of a call, over each transport in each era: a key of the client's own, and an intent."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.anyio

WAYS = pytest.mark.parametrize(
    ("transport", "era"),
    [("stdio", "modern"), ("stdio", "legacy"), ("http", "modern"), ("http", "legacy"), ("sse", "legacy")],
)


@WAYS
async def test_a_key_and_an_intent_reach_the_gate_with_the_call(serve: Any, transport: str, era: str) -> None:
    async with serve(transport, era) as served, served.client() as client:
        for meta in ({}, {"packhost/idempotency-key": "k-1"}, {"packhost/intent": "mandatory"}):
            await client.call_tool("demo_echo", {"a": 1}, meta=meta)
        await client.call_tool("demo_echo", {"a": 1}, meta={"packhost/idempotency-key": "k-1"})
    plain, keyed, held, again = served.gate.requests
    assert (plain.idem_key, plain.caller.intent) == (None, "best-effort")
    assert (held.idem_key, held.caller.intent) == (None, "mandatory")
    assert keyed.idem_key is not None
    assert keyed.idem_key.startswith("own:")
    assert again.idem_key == keyed.idem_key


@WAYS
@pytest.mark.parametrize(
    "meta",
    [
        {"packhost/idempotency-key": ""},
        {"packhost/idempotency-key": "with space"},
        {"packhost/idempotency-key": 3},
        {"packhost/intent": "none"},
    ],
)
async def test_a_demand_that_cannot_be_met_is_refused_and_nothing_runs(
    serve: Any, transport: str, era: str, meta: dict[str, Any]
) -> None:
    async with serve(transport, era) as served, served.client() as client:
        result = await client.call_tool("demo_echo", {"a": 1}, meta=meta)
    assert result.is_error
    assert result.meta["packhost/refusal"]["code"] == "INVALID_INPUT"
    assert served.gate.requests == []
