"""A gate that is watched does the same, and whoever looks on is told of each step."""

from __future__ import annotations

import os
from typing import Any

import anyio
import anyio.abc
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from packhost.gate.gate import Gate
from packhost.gate.observed import ObservedGate, together
from packhost.gate.types import Answer, Completed, Refusal
from packhost.rules.policy import Rule
from packhost.telemetry.calls import CallObserver, Origins
from packhost.telemetry.logs import LogObserver
from packhost.telemetry.metrics import Instruments

pytestmark = pytest.mark.anyio
CANARY = "canary-of-an-argument"


class Watch:
    """The spans and numbers of a gate that is watched."""

    def __init__(self, store: Any) -> None:
        self.exporter = InMemorySpanExporter()
        tracing = TracerProvider(shutdown_on_exit=False)
        tracing.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.metering = MeterProvider([self.reader], shutdown_on_exit=False)
        self.tracer = tracing.get_tracer("test")
        instruments = Instruments(self.metering.get_meter("test"), store)
        self.observer = together([CallObserver(self.tracer, instruments, Origins()), LogObserver()])

    @property
    def spans(self) -> list[Any]:
        return list(self.exporter.get_finished_spans())

    def points(self, name: str) -> list[Any]:
        found = self.reader.get_metrics_data()
        assert found is not None
        return [
            point
            for resource in found.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]


@pytest.fixture
def watch(bench: Any) -> Watch:
    """Watches the bench's gate from now on."""
    made = Watch(bench.store)
    bench.gate = ObservedGate(
        observer=made.observer,
        store=bench.store,
        key=b"k" * 32,
        root_descriptor=os.open(bench.root, os.O_RDONLY | os.O_DIRECTORY),
        owner="host_test",
        configuration=bench.configuration,
        services=lambda: None,
    )
    return made


def rule(decide: Any) -> Rule:
    return Rule(decide=decide, reason="", relaxable=False, place=None, tool="t:*")


async def test_a_call_that_went_well_is_a_span_without_its_content(bench: Any, watch: Watch) -> None:
    bench.tool("look")
    assert isinstance(await bench.call("look", {"text": CANARY}), Completed)
    (span,) = watch.spans
    said = dict(span.attributes)
    assert (span.name, said["gen_ai.tool.name"], said["packhost.decision"]) == (
        "packhost.tool.call",
        "t:look",
        "allow",
    )
    assert (said["gen_ai.conversation.id"], said["packhost.enforcement"]) == ("s-1", "host")
    assert span.status.is_ok or span.status.status_code.name == "UNSET"
    assert CANARY not in span.to_json()


async def test_a_refused_call_says_its_code(bench: Any, watch: Watch) -> None:
    bench.tool("look")
    bench.rules = [rule("deny")]
    bench.reload()
    assert isinstance(await bench.call("look", {}), Refusal)
    (span,) = watch.spans
    assert (span.attributes["packhost.code"], span.attributes["packhost.decision"]) == (
        "POLICY_DENIED",
        "deny",
    )
    (point,) = watch.points("packhost.decisions")
    assert dict(point.attributes) == {"packhost.decision": "deny", "packhost.code": "POLICY_DENIED"}


async def test_a_call_of_no_tool_is_told_of_as_well(bench: Any, watch: Watch) -> None:
    assert isinstance(await bench.call("none", {}), Refusal)
    (span,) = watch.spans
    assert span.attributes["packhost.code"] == "TOOL_NOT_FOUND"
    assert "gen_ai.tool.name" not in span.attributes


async def test_the_time_in_which_a_person_was_asked_is_told(bench: Any, watch: Watch) -> None:
    class Slow:
        async def ask(self, prompt: Any) -> Answer:
            await anyio.sleep(0.03)
            return Answer("approve", by="person", channel="client")

    bench.tool("look")
    bench.rules = [rule("ask")]
    bench.reload()
    assert isinstance(await bench.call("look", {}, Slow()), Completed)
    (span,) = watch.spans
    assert span.attributes["packhost.approval.wait"] >= 0.03
    assert span.attributes["packhost.approval.id"].startswith("ap_")
    (waited,) = watch.points("packhost.approval.wait")
    assert waited.count == 1


async def test_a_decision_from_elsewhere_is_counted_by_its_channel(bench: Any, watch: Watch) -> None:
    bench.tool("look")
    bench.rules = [rule("ask")]
    bench.reload()
    await bench.call("look", {}, attended=False)
    (row,) = bench.pending()
    assert [point.value for point in watch.points("packhost.approvals.pending")] == [1]
    await bench.gate.decide(row.id, "deny", by="ann", channel="cli")
    (point,) = watch.points("packhost.approval.decision.duration")
    assert (point.attributes["packhost.channel"], point.attributes["packhost.approval.status"]) == (
        "cli",
        "denied",
    )
    assert [point.value for point in watch.points("packhost.approvals.pending")] == [0]


async def test_a_nested_call_is_a_span_within_the_one_that_made_it(bench: Any, watch: Watch) -> None:
    async def outer(context: Any, arguments: Any) -> Any:
        return await context.call_tool("t_inner", {})

    bench.tool("inner")
    bench.tool("outer", outer, required_scopes=["tool t:inner"])
    assert isinstance(await bench.call("outer", {}), Completed)
    inner, around = watch.spans
    assert inner.parent.span_id == around.context.span_id
    assert inner.attributes["gen_ai.tool.name"] == "t:inner"


async def test_what_a_handler_raised_is_a_code_and_no_text(bench: Any, watch: Watch) -> None:
    async def broken(context: Any, arguments: Any) -> Any:
        raise ValueError(CANARY)

    bench.tool("broken", broken)
    await bench.call("broken", {})
    (span,) = watch.spans
    assert (span.attributes["error.type"], span.status.status_code.name) == ("TOOL_FAILED", "ERROR")
    assert CANARY not in span.to_json()


async def test_a_cancelled_call_is_over_for_whoever_looks_on(bench: Any, watch: Watch) -> None:
    begun = anyio.Event()

    async def waits(context: Any, arguments: Any) -> Any:
        begun.set()
        await anyio.sleep_forever()

    bench.tool("waits", waits)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bench.call, "waits", {})
        await begun.wait()
        tasks.cancel_scope.cancel()
    (span,) = watch.spans
    assert span.attributes["error.type"] == "CancelledError"


async def test_a_request_that_a_tool_makes_names_its_span(bench: Any, watch: Watch) -> None:
    seen: list[bytes] = []

    async def handle(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            seen.append(await stream.receive())
            await stream.send(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")

    async def fetches(context: Any, arguments: Any) -> Any:
        return (await context.fetch(f"http://127.0.0.1:{port}/")).status

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        scope = f"network 127.0.0.1:{port}"
        bench.bound.append(scope)
        bench.tool("fetches", fetches, required_scopes=[scope])
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, handle)
            assert isinstance(await bench.call("fetches", {}), Completed)
            tasks.cancel_scope.cancel()
    (span,) = watch.spans
    context = span.context
    assert f"traceparent: 00-{context.trace_id:032x}-{context.span_id:016x}-".encode() in seen[0]


async def test_an_unwatched_gate_sends_no_trace_along(bench: Any) -> None:
    assert type(bench.gate) is Gate
    found: list[Any] = []

    async def looks(context: Any, arguments: Any) -> Any:
        from packhost.kinds.egress import TRACING

        found.append(TRACING.get())

    bench.tool("looks", looks)
    await bench.call("looks", {})
    assert found == [None]


@pytest.mark.parametrize("way", ["plain", "watched"])
async def test_a_watched_gate_leaves_the_same_record(
    way: str, bench: Any, request: pytest.FixtureRequest
) -> None:
    if way == "watched":
        request.getfixturevalue("watch")
    bench.tool("look")
    bench.tool("write", permission="write")
    await bench.call("look", {})
    bench.rules = [rule("deny")]
    bench.reload()
    await bench.call("look", {})
    bench.rules = []
    bench.reload()
    await bench.call("write", {})
    kinds = [type for type in await bench.events() if type != "session.opened"]
    assert kinds == ["call.started", "call.ok", "call.refused", "call.started", "call.ok"]
