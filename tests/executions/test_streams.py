"""Streamed turns over a real HTTP server on loopback, through the whole host."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import anyio
import anyio.to_thread
import pytest

from packhost.store.ops import events

pytestmark = pytest.mark.anyio

SECRET = "sk-very-secret"
EVENT_STREAM = {"content-type": "text/event-stream"}


@pytest.fixture
def told(lab: Any, provider: Any) -> Callable[..., Any]:
    """The lab with the fake provider as its default model, by a protocol."""

    def made(protocol: str, base: str = "") -> Any:
        lab.secrets["KEY"] = SECRET
        lab.section["default_model"] = "main"
        profile = {"provider": protocol, "model": "m-1", "api_key": "KEY", "drain": "100ms"}
        lab.section["models"] = {"main": {**profile, "base_url": provider.base_url + base}}
        return lab

    return made


def chat(*deltas: Any, finish: str = "stop") -> bytes:
    """A whole stream of Chat Completions."""
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": finish})
    frames = [json.dumps({"choices": [choice]}) for choice in choices]
    usage = json.dumps({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}})
    return "".join(f"data: {frame}\n\n" for frame in [*frames, usage, "[DONE]"]).encode()


def note(arguments: str = '{"z": 1}') -> dict[str, Any]:
    """A delta that asks for `lab:note`."""
    function = {"name": "lab_note", "arguments": arguments}
    signed = {"extra_content": {"google": {"thought_signature": "dGhvdWdodA=="}}}
    return {"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": function, **signed}]}


async def test_a_loop_of_chat_completions_gives_reasoning_back_and_its_results_lead(
    told: Any, provider: Any
) -> None:
    provider.raw(chat({"reasoning": "hm"}, note(), finish="tool_calls"), headers=EVENT_STREAM)
    provider.raw(chat({"content": "do"}, {"content": "ne"}), headers=EVENT_STREAM)
    outcome = await told("openai_compatible", "/v1").turn(loop=True)
    assert (outcome.value["outcome"], outcome.value["text"]) == ("completed", "done")
    assert outcome.value["usage"] == {"input_tokens": 10, "output_tokens": 4}
    first, second = provider.received
    assert first.path == "/v1/chat/completions"
    assert first.headers["authorization"] == f"Bearer {SECRET}"
    assert "x-api-key" not in first.headers
    assert first.headers["accept-encoding"] == "identity"
    assert (first.body["stream"], "tool_choice" in first.body) == (True, False)
    assert second.body["messages"][: len(first.body["messages"])] == first.body["messages"]
    assert second.body["tools"] == first.body["tools"]
    asked, answer = second.body["messages"][-2:]
    (call,) = note()["tool_calls"]
    del call["index"]
    assert asked == {"role": "assistant", "content": None, "reasoning": "hm", "tool_calls": [call]}
    assert (answer["role"], answer["tool_call_id"]) == ("tool", "c1")


async def test_a_stream_that_is_cut_runs_nothing_and_is_asked_for_once(told: Any, provider: Any) -> None:
    whole = chat(note(), finish="tool_calls")
    provider.raw(whole[:-8], headers=EVENT_STREAM)
    outcome = await told("openai_compatible").turn(loop=True)
    value = outcome.value
    assert (value["outcome"], value["error"]["issue"]) == ("protocol_error", "TERMINAL_MISSING")
    assert (value["tool_calls"], len(provider.received)) == (0, 1)


async def test_a_stream_that_never_closes_is_left_after_its_marker(told: Any, provider: Any) -> None:
    provider.stall(after=chat({"content": "done"}))
    with anyio.fail_after(5):
        outcome = await told("openai_compatible").turn()
    assert (outcome.value["outcome"], outcome.value["text"]) == ("completed", "done")
    assert await anyio.to_thread.run_sync(provider.gone.wait, 5)


async def test_an_abort_in_the_middle_of_a_stream_is_one_cancelled_within_a_tenth_of_a_second(
    told: Any, provider: Any
) -> None:
    provider.stall(after=chat({"content": "x"})[:40])
    lab = told("openai_compatible")
    run_id = await lab.background()
    assert await anyio.to_thread.run_sync(provider.asked.wait, 5)
    started = anyio.current_time()
    with anyio.fail_after(1):
        view = await lab.runs.abort_by_person(run_id, by="ann")
    assert anyio.current_time() - started < 0.1
    assert (view.status, view.outcome) == ("aborted", "cancelled")
    assert await anyio.to_thread.run_sync(provider.gone.wait, 5)
    ended = {f"run.{status}" for status in ("aborted", "completed", "failed", "interrupted")}
    told_of = [event.type for event in lab.store.read(events.page, 0, None, 1000)]
    assert [type for type in told_of if type in ended] == ["run.aborted"]
