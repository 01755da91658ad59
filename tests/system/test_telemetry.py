"""Traces and metrics of a real host, sent to a receiver over HTTP and read by OpenTelemetry's messages."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

pytestmark = pytest.mark.slow

SECRET = "canary-of-an-argument"
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CONFIG = """
packhost: 1
bound: [path read **, path write src/**, path write .agent-runtime/**]
secrets: {{COLLECTOR: env:COLLECTOR_TOKEN}}
telemetry: {{endpoint: "{endpoint}", headers: {{authorization: COLLECTOR}}}}
agent_runtime:
  default_model: demo
  models:
    demo:
      provider: scripted
      script:
        - tool_calls: [{{id: c1, name: workspace_read_file, arguments: {{path: README.md}}}}]
        - text: Done.
"""


class Receiver:
    """A collector that keeps what it was sent."""

    def __init__(self) -> None:
        self.bodies: dict[str, list[bytes]] = {"/v1/traces": [], "/v1/metrics": []}
        self.tokens: set[str | None] = set()
        kept = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                kept.bodies[self.path].append(self.rfile.read(int(self.headers["content-length"])))
                kept.tokens.add(self.headers["authorization"])
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Nothing of it is printed."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def spans(self) -> list[Any]:
        requests = map(ExportTraceServiceRequest.FromString, self.bodies["/v1/traces"])
        return [
            span
            for request in requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def metrics(self) -> dict[str, list[Any]]:
        """The points of the last that was sent, by name."""
        found: dict[str, list[Any]] = {}
        for request in map(ExportMetricsServiceRequest.FromString, self.bodies["/v1/metrics"]):
            for resource in request.resource_metrics:
                for scope in resource.scope_metrics:
                    for metric in scope.metrics:
                        kind = metric.WhichOneof("data")
                        found[metric.name] = list(getattr(metric, kind).data_points)
        return found

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


def facts(span: Any) -> dict[str, Any]:
    """A span's attributes, or a point's."""

    def plain(value: Any) -> Any:
        kind = value.WhichOneof("value")
        if kind == "array_value":
            return [plain(one) for one in value.array_value.values]
        return getattr(value, kind)

    return {one.key: plain(one.value) for one in span.attributes}


@pytest.fixture
def told(world: Any, receiver: Receiver) -> Receiver:
    """What a host told after a call, a refused one and a run of two turns."""
    world.write("README.md", "hello")
    world.write("packhost.yaml", CONFIG.format(endpoint=receiver.endpoint))
    world.env["COLLECTOR_TOKEN"] = "token-for-the-collector"
    world.accept()
    client = world.raw("auto").start()
    trace = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
    done = client.ask("tools/call", name="workspace_read_file", arguments={"path": "README.md"}, _meta=trace)
    assert "isError" not in client.answer(done)["result"] or not client.answer(done)["result"]["isError"]
    client.answer(client.call("workspace_read_file", path=f"../{SECRET}"))
    turn = {"messages": [{"role": "user", "content": SECRET}], "loop": True}
    answer = client.answer(client.call("agent-runtime_execute-turn", **turn))
    assert json.loads(answer["result"]["content"][0]["text"])["outcome"] == "completed", answer
    client.close()
    return receiver


def test_calls_and_turns_are_told_of_by_the_conventions_and_without_their_content(told: Receiver) -> None:
    spans = told.spans()
    calls = [span for span in spans if span.name == "packhost.tool.call"]
    first = next(span for span in calls if span.trace_id.hex() == TRACE)
    above = next(span for span in spans if span.span_id == first.parent_span_id)
    assert (above.name, above.parent_span_id.hex()) == ("tools/call workspace_read_file", PARENT)
    said = facts(first)
    assert said["gen_ai.operation.name"] == "execute_tool"
    assert said["gen_ai.tool.name"] == "workspace:read_file"
    assert (said["mcp.method.name"], said["packhost.decision"]) == ("tools/call", "allow")
    assert (said["packhost.enforcement"], said["packhost.run.id"][:4]) == ("host", "run_")
    refused = next(span for span in calls if facts(span).get("packhost.code") == "SCOPE_DENIED")
    assert (facts(refused)["error.type"], refused.status.code) == ("SCOPE_DENIED", 2)
    # the run within its call, its turns within it
    outer = next(
        span for span in calls if facts(span).get("gen_ai.tool.name") == "agent-runtime:execute-turn"
    )
    agent = next(span for span in spans if span.name.startswith("invoke_agent"))
    assert agent.parent_span_id == outer.span_id
    assert agent.trace_id == outer.trace_id
    chats = [span for span in spans if span.name == "chat demo"]
    assert [span.parent_span_id for span in chats] == [agent.span_id] * 2
    assert {tuple(facts(span)["gen_ai.response.finish_reasons"]) for span in chats} == {
        ("tool_use",),
        ("end_turn",),
    }
    assert all(facts(span)["gen_ai.request.model"] == "demo" for span in chats)
    assert all(span.end_time_unix_nano >= span.start_time_unix_nano for span in spans)
    inner = [span for span in calls if facts(span).get("gen_ai.tool.call.id") == "c1"]
    assert [facts(span)["packhost.run.id"] for span in inner] == [facts(agent)["packhost.run.id"]]
    everything = b"".join(told.bodies["/v1/traces"] + told.bodies["/v1/metrics"])
    assert SECRET.encode() not in everything
    assert told.tokens == {"token-for-the-collector"}


def test_what_a_host_does_is_counted(told: Receiver) -> None:
    found = told.metrics()
    durations = {facts(point)["gen_ai.tool.name"]: point for point in found["packhost.tool.call.duration"]}
    assert durations["agent-runtime:execute-turn"].count == 1
    decisions = {facts(point)["packhost.code"]: point.as_int for point in found["packhost.decisions"]}
    assert decisions == {"ok": 3, "SCOPE_DENIED": 1}
    runs = {facts(point)["packhost.run.status"]: point.as_int for point in found["packhost.runs"]}
    assert runs == {"completed": 1}
    assert [point.as_int for point in found["packhost.approvals.pending"]] == [0]
    assert sum(point.count for point in found["packhost.store.batch.size"]) > 0
    assert sum(point.count for point in found["packhost.store.commit.duration"]) > 0
    turns = list(found["gen_ai.client.operation.duration"])
    assert [point.count for point in turns] == [2]
    assert {facts(point)["gen_ai.token.type"] for point in found["gen_ai.client.token.usage"]} == {
        "input",
        "output",
    }


def test_a_collector_that_is_not_there_takes_nothing_from_a_host(world: Any) -> None:
    world.write("README.md", "hello")
    world.env["OTEL_EXPORTER_OTLP_ENDPOINT"] = "http://127.0.0.1:9"
    client = world.raw("auto").start()
    assert "hello" in json.dumps(client.answer(client.call("workspace_read_file", path="README.md")))
    client.close()
    assert client.process.returncode == 0


def test_an_endpoint_that_was_not_accepted_is_told_nothing(world: Any, receiver: Receiver) -> None:
    world.write("README.md", "hello")
    world.write("packhost.yaml", CONFIG.format(endpoint=receiver.endpoint))
    client = world.raw("auto").start()
    client.answer(client.call("workspace_read_file", path="README.md"))
    client.close()
    assert receiver.bodies == {"/v1/traces": [], "/v1/metrics": []}
