"""A provider that does not take a request: repeated where that spends nothing, and never after."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import anyio
import anyio.to_thread
import pytest

from packhost.store.ops import events

pytestmark = pytest.mark.anyio

TEXT = {"type": "text", "text": "done"}
AGAIN = {"retry-after": "0"}


@pytest.fixture
def told(lab: Any, provider: Any) -> Any:
    """The lab with the fake provider as its default model."""
    profile = {"provider": "messages_compatible", "model": "m-1", "base_url": provider.base_url}
    lab.section.update(default_model="main", models={"main": profile})
    return lab


def retried(lab: Any, run_id: str) -> list[dict[str, Any]]:
    page = lab.store.read(events.page, 0, run_id, 1_000)
    return [json.loads(record.data) for record in page if record.type == "turn.retried"]


@pytest.mark.parametrize("status", [429, 500, 502, 503, 529])
async def test_a_request_that_was_not_taken_is_sent_again_unchanged(
    told: Any, provider: Any, status: int
) -> None:
    provider.raw(b'{"error": {"message": "busy"}}', status, AGAIN)
    provider.raw(b"", status, AGAIN)
    provider.message([TEXT])
    value = (await told.turn()).value
    assert (value["outcome"], value["turns"], value["retries"]) == ("completed", 1, 2)
    assert provider.received[0].body == provider.received[1].body == provider.received[2].body
    await told.store.flush()
    assert [(one["retry"], one["status"]) for one in retried(told, value["run_id"])] == [
        (1, status),
        (2, status),
    ]
    types = await told.events(value["run_id"])
    assert (types.count("turn.started"), types.count("turn.completed")) == (1, 1)


async def test_whoever_waits_is_told_of_a_retry(told: Any, provider: Any) -> None:
    provider.raw(b'{"error": {"message": "busy"}}', 529, AGAIN)
    provider.message([TEXT])
    heard: list[str] = []

    async def progress(value: float, total: float | None, message: str | None) -> None:
        heard.append(message or "")

    await told.turn(progress=progress)
    assert any("529" in message and "busy" in message and "retry 1" in message for message in heard)


@pytest.mark.parametrize("asked", ["1", "date"])
async def test_the_time_that_a_provider_asks_for_is_kept(told: Any, provider: Any, asked: str) -> None:
    until = datetime.now(UTC) + timedelta(seconds=2)
    wait = format_datetime(until, usegmt=True) if asked == "date" else asked
    provider.raw(b"", 429, {"retry-after": wait})
    provider.message([TEXT])
    began = time.monotonic()
    assert (await told.turn()).value["outcome"] == "completed"
    assert time.monotonic() - began >= 0.9


@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 413, 422])
async def test_a_request_that_is_refused_is_not_repeated(told: Any, provider: Any, status: int) -> None:
    provider.raw(b'{"error": {"message": "no"}}', status, AGAIN)
    value = (await told.turn()).value
    assert (value["outcome"], value["error"]["status"], value["retries"]) == ("provider_error", status, 0)
    assert len(provider.received) == 1


STARTED = {"type": "message_start", "message": {"role": "assistant", "usage": {"input_tokens": 3}}}
OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}


@pytest.mark.parametrize(
    "sent",
    [
        [],
        [STARTED, OVERLOADED],
    ],
)
async def test_what_has_begun_to_be_answered_is_never_repeated(told: Any, provider: Any, sent: Any) -> None:
    body = "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in sent)
    provider.raw(body.encode(), 200, {"content-type": "text/event-stream"})
    value = (await told.turn()).value
    assert value["outcome"] in ("provider_error", "protocol_error")
    assert (value["retries"], len(provider.received)) == (0, 1)


async def test_an_error_in_the_place_of_a_streams_first_event_spent_nothing_either(
    told: Any, provider: Any
) -> None:
    body = f"event: error\ndata: {json.dumps(OVERLOADED)}\n\n".encode()
    provider.raw(body, 200, {"content-type": "text/event-stream"})
    provider.message([TEXT])
    value = (await told.turn()).value
    assert (value["outcome"], value["retries"]) == ("completed", 1)


async def test_retries_are_a_budget_of_the_whole_run(told: Any, provider: Any) -> None:
    use = {"type": "tool_use", "id": "c1", "name": "lab_note", "input": {}}
    provider.raw(b"", 503, AGAIN)
    provider.message([use], "tool_use")
    provider.raw(b"", 503, AGAIN)
    provider.raw(b"", 503, AGAIN)
    value = (await told.turn(loop=True, limits={"max_retries": 2})).value
    assert (value["outcome"], value["retries"], value["turns"]) == ("provider_error", 2, 1)
    assert "no retry is left after 2" in value["error"]["message"]
    assert len(provider.received) == 4


@pytest.mark.parametrize(
    ("wait", "limits", "why"), [("3600", {}, "300 s are the most"), ("20", {"wall_clock": 5}, "no time left")]
)
async def test_a_wait_that_is_too_long_ends_the_run(
    told: Any, provider: Any, wait: str, limits: Any, why: str
) -> None:
    provider.raw(b"", 429, {"retry-after": wait})
    with anyio.fail_after(2):
        value = (await told.turn(limits=limits)).value
    assert (value["outcome"], why in value["error"]["message"]) == ("provider_error", True)


async def test_a_pause_is_taken_while_the_run_waits_to_ask_again_and_spends_nothing(
    told: Any, provider: Any
) -> None:
    provider.raw(b"", 429, {"retry-after": "60"})
    run_id = await told.background()
    with anyio.fail_after(5):
        while "turn.retried" not in await told.events(run_id):
            await anyio.sleep(0.001)
        await told.runs.pause_by_person(run_id, by="ann")
        await told.until(run_id, "paused")
    assert len(provider.received) == 1
    provider.message([TEXT])
    await told.runs.resume_by_person(run_id, by="ann")
    row = await told.until(run_id, "completed")
    assert json.loads(row.result_json)["retries"] == 1


@pytest.mark.parametrize(
    "said",
    [
        "Invalid 'tools': array too long. Expected an array with maximum length 128, but got 129 instead.",
        "tools: List should have at most 128 items after validation, not 129",
    ],
)
async def test_a_provider_that_takes_fewer_tools_is_reported_as_such(
    told: Any, provider: Any, said: str
) -> None:
    provider.raw(json.dumps({"error": {"message": said}}).encode(), 400)
    value = (await told.turn()).value
    assert (value["outcome"], value["error"]["issue"]) == (
        "provider_error",
        "TOOL_COUNT_REFUSED_BY_PROVIDER",
    )
    assert "name fewer of them in `tools`" in value["error"]["message"]


THINKING = {"type": "thinking", "thinking": "…", "signature": "c2ln"}


async def test_thinking_goes_back_to_the_model_that_thought_it_and_to_no_other(
    told: Any, provider: Any
) -> None:
    told.section["models"]["other"] = {**told.section["models"]["main"], "model": "m-2"}
    for _ in range(4):
        provider.message([THINKING, TEXT])
    for profile in ("main", "main", "other", "main"):
        assert (await told.turn(model_profile=profile)).value["outcome"] == "completed"
    second, third, fourth = [one.body["messages"] for one in provider.received[1:]]
    assert second[1]["content"] == [THINKING, TEXT]
    assert [third[1]["content"], third[3]["content"]] == [[TEXT], [TEXT]]
    assert [fourth[n]["content"] for n in (1, 3, 5)] == [[THINKING, TEXT], [THINKING, TEXT], [TEXT]]
    assert fourth[:4] == [*second, fourth[3]]


async def test_text_is_reported_as_it_arrives_each_time_the_latest_piece(told: Any, provider: Any) -> None:
    sent = [
        {"type": "message_start", "message": {"type": "message", "role": "assistant", "content": []}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *(
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}}
            for piece in ("one ", "two ", "three")
        ),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}},
        {"type": "message_stop"},
    ]
    body = "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in sent).encode()
    heard: list[str] = []

    async def progress(value: float, total: float | None, message: str | None) -> None:
        heard.append(message or "")

    for stream in (True, False):
        heard.clear()
        provider.raw(body, 200, {"content-type": "text/event-stream"})
        value = (await told.turn(stream=stream, progress=progress)).value
        assert (value["outcome"], value["text"]) == ("completed", "one two three")
        assert heard[1:] == (["one ", "two ", "three"] if stream else [])


async def test_a_system_prompt_stays_as_it_was_when_the_run_began(told: Any, provider: Any) -> None:
    told.section["agents"] = {"helper": {"system": "Be brief."}}
    provider.raw(b"", 429, {"retry-after": "60"})
    run_id = await told.background(agent="helper")
    with anyio.fail_after(5):
        while "turn.retried" not in await told.events(run_id):
            await anyio.sleep(0.001)
    await told.runs.pause_by_person(run_id, by="ann")
    await told.until(run_id, "paused")
    told.section["agents"] = {"helper": {"system": "Be long."}}
    provider.message([TEXT])
    await told.runs.resume_by_person(run_id, by="ann")
    await told.until(run_id, "completed")
    assert [one.body["system"] for one in provider.received] == ["Be brief."] * 2
