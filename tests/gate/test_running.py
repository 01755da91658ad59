"""Steps six to eight: intent before effect, deadlines, outputs, and what is written down."""

from __future__ import annotations

import anyio
import pytest

from packhost.errors import StoreUnavailable, ToolFailed
from packhost.gate.types import Answer, Completed, Refusal
from packhost.rules.policy import Rule
from packhost.store.ops import calls

pytestmark = pytest.mark.anyio

OBJECT = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def only_call(bench):
    (call_id,) = bench.store.read(lambda tx: tx.execute("SELECT id FROM calls").fetchone())
    return bench.store.read(calls.by_id, call_id)


async def test_the_intent_of_a_write_is_committed_before_it_runs(bench):
    seen = []

    async def handler(context, arguments):
        seen.append(bench.store.read(calls.by_id, context.call_id).status)
        return {}

    bench.tool("change", handler, permission="write")
    await bench.call("change")
    assert seen == ["started"]
    assert only_call(bench).status == "ok"


async def test_an_intent_that_cannot_be_committed_means_no_call(bench):
    bench.tool("change", permission="write")
    await bench.gate.sessions.enter("s-1", "ann", "test-client")
    full = bench.store.read(lambda tx: tx.execute("PRAGMA page_count").fetchone()[0])

    def fill(tx):
        tx.execute(f"PRAGMA max_page_count={full}")

    await bench.store.write(fill)
    outcome = await bench.call("change", {"text": "x" * 100_000})
    assert isinstance(outcome, Refusal)
    assert outcome.code == "TOOL_INTENT_NOT_COMMITTED"
    assert bench.ran == []


async def test_a_call_past_its_deadline_is_stopped_and_its_effects_are_unknown(bench):
    async def handler(context, arguments):
        await anyio.sleep_forever()

    bench.tool("change", handler, permission="write", timeout="50ms")
    with anyio.fail_after(5):
        outcome = await bench.call("change")
    assert outcome.code == "TOOL_TIMEOUT"
    assert "unknown" in outcome.text
    assert only_call(bench).status == "unknown"


async def test_waiting_for_a_person_does_not_count_against_the_deadline(bench):
    bench.rules = [Rule("ask", "look", False, None, tool="t:inner")]
    bench.tool("inner")
    decided = anyio.Event()

    class Slow:
        async def ask(self, prompt):
            await decided.wait()
            return Answer("approve", by="p", channel="client")

    async def outer(context, arguments):
        return {"inner": await context.call_tool("t:inner", {})}

    bench.tool("outer", outer, required_scopes=("tool t:*",), timeout="100ms")
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:

            async def later():
                await anyio.sleep(0.3)  # three times the deadline: what is tested is that time
                decided.set()

            group.start_soon(later)
            outcome = await bench.call("outer", {}, Slow())
    assert isinstance(outcome, Completed), outcome


async def test_a_handler_says_what_failed(bench):
    async def handler(context, arguments):
        raise ToolFailed("the disk is on fire", hint="call someone")

    bench.tool("change", handler, permission="write")
    outcome = await bench.call("change")
    assert (outcome.code, outcome.message, outcome.hint) == (
        "TOOL_FAILED",
        "the disk is on fire",
        "call someone",
    )
    assert only_call(bench).status == "error"


async def test_a_handler_that_breaks_is_a_failed_tool_and_the_gate_lives(bench):
    async def handler(context, arguments):
        raise RuntimeError("boom")

    bench.tool("change", handler, permission="write")
    bench.tool("look")
    assert (await bench.call("change")).code == "TOOL_FAILED"
    assert isinstance(await bench.call("look"), Completed)


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ({"n": "x"}, "OUTPUT_INVALID"),
        ({"n": float("nan")}, "OUTPUT_INVALID"),
        ({"n": {1, 2}}, "OUTPUT_INVALID"),
        ({"n": 1, "more": "x" * 2000}, "OUTPUT_TOO_LARGE"),
    ],
    ids=["schema", "nan", "set", "large"],
)
async def test_an_output_that_may_not_pass_is_refused(bench, value, code):
    async def handler(context, arguments):
        return value

    bench.limits = type(bench.limits)(1 << 20, 1000)
    bench.tool("look", handler, output_schema=OBJECT)
    assert (await bench.call("look")).code == code


async def test_secrets_are_redacted_from_outputs_and_errors(bench):
    bench.secret_values = {"KEY": "hunter2"}

    async def good(context, arguments):
        return {"text": f"the key is {context.secret('KEY')}"}

    async def bad(context, arguments):
        raise ToolFailed(f"cannot use {context.secret('KEY')}")

    bench.bound.append("secret KEY")
    bench.tool("good", good, required_scopes=("secret KEY",))
    bench.tool("bad", bad, required_scopes=("secret KEY",))
    outcome = await bench.call("good")
    assert outcome.value == {"text": "the key is [REDACTED]"}
    assert "hunter2" not in outcome.text
    assert "hunter2" not in (await bench.call("bad")).text


async def test_a_secret_at_the_cut_of_a_long_error_leaves_no_beginning(bench):
    bench.secret_values = {"KEY": "hunter2-hunter2-hunter2"}

    async def bad(context, arguments):
        raise RuntimeError("x" * 490 + bench.secret_values["KEY"])

    bench.tool("bad", bad)
    text = (await bench.call("bad")).text
    assert "xxx" in text
    assert "hunter" not in text


async def test_a_secret_that_is_not_declared_is_denied(bench):
    bench.secret_values = {"KEY": "hunter2"}

    async def handler(context, arguments):
        return {"key": context.secret("KEY")}

    bench.tool("look", handler)
    assert (await bench.call("look")).code == "SCOPE_DENIED"


async def test_untrusted_output_comes_between_marks_with_a_nonce(bench):
    bench.tool("look", untrusted_output=True)
    first, second = await bench.call("look"), await bench.call("look")
    assert "UNTRUSTED_TOOL_OUTPUT" in first.text
    assert first.text != second.text


async def test_a_nested_call_needs_a_tool_scope(bench):
    async def outer(context, arguments):
        return await context.call_tool("t:inner", {})

    bench.tool("inner")
    bench.tool("outer", outer)
    assert (await bench.call("outer")).code == "SCOPE_DENIED"
    assert bench.ran == []


async def test_a_nested_call_is_recorded_in_the_run_of_its_caller(bench):
    async def outer(context, arguments):
        return await context.call_tool("t:inner", {})

    bench.tool("inner")
    bench.tool("outer", outer, required_scopes=("tool t:inner",))
    outcome = await bench.call("outer")
    await bench.store.flush()
    made = bench.store.read(calls.of_execution, outcome.run_id)
    assert [call.tool for call in made] == ["t:outer", "t:inner"]


async def test_a_cancelled_call_with_effects_is_recorded_as_unknown(bench):
    started = anyio.Event()

    async def handler(context, arguments):
        started.set()
        await anyio.sleep_forever()

    bench.tool("change", handler, permission="write")
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(bench.call, "change")
            await started.wait()
            group.cancel_scope.cancel()
    await bench.store.flush()
    assert (only_call(bench).status, only_call(bench).code) == ("unknown", "CANCELLED")


async def test_an_outcome_that_cannot_be_written_down_is_said_to_be_unknown(bench):
    async def handler(context, arguments):
        def stop(tx):
            tx.execute(f"PRAGMA max_page_count={tx.execute('PRAGMA page_count').fetchone()[0]}")

        await bench.store.write(stop)
        return {"text": "x" * 60_000}

    bench.tool("change", handler, permission="write")
    outcome = await bench.call("change")
    assert outcome.code == "EFFECTS_UNKNOWN"


async def test_the_store_error_is_never_taken_for_a_denial(bench):
    await bench.store.close()
    bench.tool("look")
    with pytest.raises(StoreUnavailable):
        await bench.call("look")


async def test_every_event_of_a_call_is_in_the_chain_in_order(bench):
    bench.tool("change", permission="write")
    await bench.call("change")
    kinds = [kind for kind in await bench.events() if kind.startswith("call.")]
    assert kinds == ["call.started", "call.ok"]
