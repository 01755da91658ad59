"""A server that breaks on demand and judges its client: packhost, in both protocols, over all its faults."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anyio
import pytest
from mcp import Client

pytestmark = [pytest.mark.real, pytest.mark.anyio]

READ = {"name": "workspace_read_file", "arguments": {"path": "hello.txt"}}
PARALLEL = [READ, {"name": "workspace_read_file", "arguments": {"path": "absent.txt"}}]
TRUNCATED = "truncated_stream_accepted"

SCENARIOS: dict[str, tuple[list[dict[str, Any]], str, str | None]] = {
    "nothing": ([], "completed", None),
    "429 with a wait": ([{"type": "fail", "status": 429, "retry_after": 1}], "completed", None),
    "503 twice": ([{"type": "fail", "status": 503, "times": 2}], "completed", None),
    "529": ([{"type": "fail", "status": 529}], "completed", None),
    "500": ([{"type": "fail", "status": 500}], "completed", None),
    "400": ([{"type": "fail", "status": 400}], "provider_error", "PROVIDER_ERROR_EVENT"),
    "401": ([{"type": "fail", "status": 401}], "provider_error", "PROVIDER_ERROR_EVENT"),
    "404": ([{"type": "fail", "status": 404}], "provider_error", "PROVIDER_ERROR_EVENT"),
    "422": ([{"type": "fail", "status": 422}], "provider_error", "PROVIDER_ERROR_EVENT"),
    "503 for ever": (
        [{"type": "fail", "status": 503, "times": None}],
        "provider_error",
        "PROVIDER_ERROR_EVENT",
    ),
    "a delay": ([{"type": "delay", "seconds": 0.3}], "completed", None),
    "a delay that is too long": ([{"type": "delay", "seconds": 4}], "provider_error", "TERMINAL_MISSING"),
    "a slow first token": ([{"type": "slow_first_token", "seconds": 0.3}], "completed", None),
    "a call": ([{"type": "reply", "tool_calls": [READ]}], "completed", None),
    "two calls": ([{"type": "reply", "tool_calls": PARALLEL, "text": "Both."}], "completed", None),
    "a cut reply": ([{"type": "reply", "text": "a b", "finish_reason": "length"}], "incomplete", None),
    "a cut call": (
        [{"type": "reply", "tool_calls": [READ], "finish_reason": "length"}],
        "incomplete",
        None,
    ),
    "a filtered reply": (
        [{"type": "reply", "text": "a b", "finish_reason": "content_filter"}],
        "refused",
        None,
    ),
    "a call that stops like text": (
        [{"type": "reply", "tool_calls": [READ], "finish_reason": "stop"}],
        "protocol_error",
        "CALLS_WITHOUT_TOOL_STOP",
    ),
    "an unknown reason": (
        [{"type": "reply", "text": "a", "finish_reason": "dunno"}],
        "protocol_error",
        "STOP_UNKNOWN",
    ),
    "an unknown tool": ([{"type": "tool_fault", "kind": "unknown_tool"}], "completed", None),
    "malformed arguments": (
        [{"type": "tool_fault", "kind": "malformed_arguments"}],
        "protocol_error",
        "INPUT_JSON_INCOMPLETE",
    ),
    "a stall": (
        [{"type": "stream_fault", "kind": "stall", "after_chunks": 2, "stall_seconds": 4}],
        "provider_error",
        "TERMINAL_MISSING",
    ),
}
for chunks in (0, 1, 3):
    for kind, outcome, issue in (
        ("disconnect", "provider_error", "TERMINAL_MISSING"),
        ("truncate", "protocol_error", "TERMINAL_MISSING"),
        ("malformed", "protocol_error", "SSE_MALFORMED"),
    ):
        fault = {"type": "stream_fault", "kind": kind, "after_chunks": chunks}
        SCENARIOS[f"{kind} after {chunks} chunks"] = ([fault], outcome, issue)


@pytest.fixture(scope="module")
def llmock(oracles: Any) -> Iterator[Any]:
    """The server, on loopback."""
    from llmock.testing import LLMockServer

    with LLMockServer() as server:
        yield server


async def come_of(client: Client, server: Any, scenario: str) -> tuple[str, str | None, set[str]]:
    """What one run comes to: outcome, issue, and the errors that the server finds in its client."""
    from llmock.scenarios import behavior_from_dict
    from llmock.verdict import judge

    server.state.reset()
    if behaviors := SCENARIOS[scenario][0]:
        server.state.scenarios.add(*map(behavior_from_dict, behaviors))
    asked = {"messages": [{"role": "user", "content": "Read hello.txt"}], "tools": ["workspace:read_file"]}
    session = f"s-{list(SCENARIOS).index(scenario)}"
    with anyio.fail_after(60):
        result = await client.call_tool(
            "agent-runtime_execute-turn", {**asked, "loop": True, "session_id": session}
        )
    assert not result.is_error, result.content
    assert result.structured_content is not None
    found = judge(server.state.journal.records(wait=2.0))
    issue = result.structured_content.get("error", {}).get("issue")
    return result.structured_content["outcome"], issue, {one.code for one in found.errors}


def wanted(scenario: str) -> tuple[str, str | None, set[str]]:
    """What it has to come to.

    Of a reply that was cut after it had begun the server sees no retry, which would spend tokens twice and is
    ruled out; it cannot see that the turn failed.
    """
    _, outcome, issue = SCENARIOS[scenario]
    return outcome, issue, {TRUNCATED} if scenario.startswith("truncate") else set()


@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
async def test_every_fault_has_its_outcome_and_the_servers_approval(
    speaking_to: Any, llmock: Any, protocol: str
) -> None:
    came = {}
    async with speaking_to(protocol, llmock.base_url(protocol)) as client:
        for scenario in SCENARIOS:
            came[scenario] = await come_of(client, llmock, scenario)
    assert came == {scenario: wanted(scenario) for scenario in SCENARIOS}


@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
async def test_without_a_stream_it_is_the_same(speaking_to: Any, llmock: Any, protocol: str) -> None:
    chosen = ["nothing", "503 twice", "two calls", "a cut reply", "an unknown tool"]
    came = {}
    async with speaking_to(protocol, llmock.base_url(protocol), stream=False) as client:
        for scenario in chosen:
            came[scenario] = await come_of(client, llmock, scenario)
    assert came == {scenario: wanted(scenario) for scenario in chosen}
