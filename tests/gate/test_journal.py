"""A call with effects and a journal that cannot be written, and what secrets leave behind in one that can."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from packhost.errors import PackhostError
from packhost.gate.types import CallRequest
from packhost.store.ops import events

pytestmark = pytest.mark.anyio

CANARY = "canary/sëcret-value"


async def close(bench: Any) -> None:
    """The writer is gone."""
    await bench.store.close()


async def fill(bench: Any) -> None:
    """The disk has no page left for the journal."""
    full = bench.store.read(lambda tx: tx.execute("PRAGMA page_count").fetchone()[0])
    await bench.store.write(lambda tx: tx.execute(f"PRAGMA max_page_count={full}").fetchone())


async def lock(bench: Any) -> None:
    """Another process keeps the database for itself."""
    await bench.store.write(lambda tx: tx.execute("PRAGMA busy_timeout=50").fetchone())
    bench.other = sqlite3.connect(bench.store.path, isolation_level=None)
    bench.other.execute("BEGIN IMMEDIATE")


@pytest.mark.parametrize("fault", [close, fill, lock], ids=lambda fault: fault.__name__)
@pytest.mark.parametrize(
    ("permission", "idempotent"), [("write", False), ("write", True), ("admin", True), ("read", False)]
)
async def test_a_call_with_effects_never_runs_when_the_journal_cannot_be_written(
    bench: Any, fault: Callable[[Any], Awaitable[None]], permission: str, idempotent: bool
) -> None:
    bench.tool("act", permission=permission, idempotent=idempotent)
    bench.autonomy = type(bench.autonomy)("autonomous", "autonomous")
    bench.reload()
    await bench.call("act")
    bench.ran.clear()
    await fault(bench)
    with anyio.fail_after(10):
        outcome = await bench.call("act", {"text": "x" * 200_000})
    assert bench.ran == []
    assert outcome.code in ("TOOL_INTENT_NOT_COMMITTED", "STORE_UNAVAILABLE")
    if fault is lock:
        bench.other.close()


@pytest.mark.parametrize("fault", [fill, lock], ids=lambda fault: fault.__name__)
@pytest.mark.parametrize(("intent", "runs"), [("best-effort", True), ("mandatory", False)])
async def test_a_call_that_only_reads_waits_for_its_intent_where_it_was_made_mandatory(
    bench: Any, fault: Callable[[Any], Awaitable[None]], intent: Any, runs: bool
) -> None:
    bench.tool("look", permission="read")
    await bench.call("look")
    bench.ran.clear()
    await fault(bench)
    with anyio.fail_after(10):
        outcome = await bench.call("look", {"text": "x" * 200_000}, intent=intent)
    assert bench.ran == (["look"] if runs else [])
    if not runs:
        assert outcome.code in ("TOOL_INTENT_NOT_COMMITTED", "STORE_UNAVAILABLE")
    if fault is lock:
        bench.other.close()


async def test_a_call_that_only_reads_is_refused_by_a_host_that_ends(bench: Any) -> None:
    bench.tool("look", permission="read")
    await bench.call("look")
    await close(bench)
    assert (await bench.call("look")).code == "TOOL_INTENT_NOT_COMMITTED"
    assert bench.ran == ["look"]


async def test_what_a_call_calls_is_held_to_the_same_intent(bench: Any) -> None:
    seen: list[str] = []

    async def outer(context: Any, arguments: Any) -> Any:
        return await context.call_tool("t:inner", {})

    async def inner(context: Any, arguments: Any) -> Any:
        seen.append(context.caller.intent)
        return {}

    bench.tool("inner", inner)
    bench.tool("outer", outer, required_scopes=["tool t:inner"])
    await bench.call("outer")
    await bench.call("outer", intent="mandatory")
    assert seen == ["best-effort", "mandatory"]


async def test_a_resolved_secret_is_in_no_event_prompt_progress_or_refusal(bench: Any) -> None:
    told: list[str | None] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        told.append(message)

    async def handler(context: Any, arguments: Any) -> Any:
        bench.secret_values["KEY"] = CANARY
        await context.report_progress(1, 2, f"with {context.secret('KEY')}")
        return {CANARY: [CANARY]}

    bench.bound.append("secret KEY")
    bench.secret_values["KEY"] = CANARY
    bench.tool("act", handler, required_scopes=["secret KEY"])
    bench.tool(
        "say", permission="admin", input_schema={"type": "object", "properties": {"n": {"type": "integer"}}}
    )
    done = await bench.gate.call(CallRequest("t_act", {"text": CANARY}, bench.caller, progress))
    waits = await bench.call("say", {"text": CANARY})
    refused = await bench.call("say", {"n": CANARY})
    await bench.store.flush()
    shown = repr([done, waits, refused, told, bench.pending(), bench.store.read(events.page, 0, None, 100)])
    assert "[REDACTED]" in shown
    assert CANARY not in shown


async def test_a_value_that_breaks_json_once_redacted_is_still_answered(bench: Any) -> None:
    bench.secret_values["KEY"] = "1234"

    async def handler(context: Any, arguments: Any) -> Any:
        return {"number": 91234, "text": "x1234"}

    bench.tool("act", handler)
    outcome = await bench.call("act")
    assert outcome.value == {"number": "9[REDACTED]", "text": "x[REDACTED]"}


@pytest.mark.parametrize("permission", ["read", "write"])
async def test_half_a_character_keeps_no_call_and_no_end_out_of_the_record(bench, permission):
    async def half(context: Any, arguments: Any) -> Any:
        if arguments:
            raise PackhostError("no \ud800", code="TOOL_FAILED")
        return {"\ud800": "\udfff", "whole": "\U0001f600"}

    bench.tool("half", half, permission=permission)
    outcome = await bench.call("half")
    assert outcome.value == {"\\ud800": "\\udfff", "whole": "\U0001f600"}
    assert (await bench.call("half", {"fail": True})).code == "TOOL_FAILED"
    assert (await bench.call("half", {"x": "\ud800"})).code == "INVALID_INPUT"
    await bench.store.flush()
    types = [event.type for event in bench.store.read(events.page, 0, None, 100)]
    assert [name for name in types if name.startswith("call.")] == [
        "call.started",
        "call.ok",
        "call.started",
        "call.error",
        "call.refused",
    ]
