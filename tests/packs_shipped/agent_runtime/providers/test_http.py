"""A turn over a connection: one deadline, a bounded drain, and exactly one outcome."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from packhost.errors import ToolFailed
from packhost_packs.agent_runtime.faults import ReaderLost, TurnFault
from packhost_packs.agent_runtime.providers.base import Reply, Snapshot, TurnRequest
from packhost_packs.agent_runtime.providers.complaints import retry_after
from packhost_packs.agent_runtime.providers.http import HttpProvider
from packhost_packs.agent_runtime.providers.protocols import ChatProtocol, MessagesProtocol

pytestmark = pytest.mark.anyio

SAID = {"role": "user", "content": [{"type": "text", "text": "hi"}]}
PROTOCOLS = {"chat": ChatProtocol, "messages": MessagesProtocol}


def request(*history: Any, tools: Any = ()) -> TurnRequest:
    return TurnRequest("m", None, history or (SAID,), tools, 9)


@pytest.fixture
def said(streams: Any) -> Callable[[str], bytes]:
    """A whole stream of one protocol that says `ab`."""

    def stream(protocol: str) -> bytes:
        if protocol == "chat":
            return streams.chat({"content": "a"}, {"content": "b"}, finish="stop")
        deltas = [{"type": "text_delta", "text": text} for text in "ab"]
        return streams.messages(({"type": "text", "text": ""}, *deltas), stop="end_turn")

    return stream


def provider(protocol: str, connection: Any, **options: Any) -> HttpProvider:
    return HttpProvider(connection, PROTOCOLS[protocol](), **{"timeout": 5.0, "drain": 0.05, **options})


async def turn(made: HttpProvider, **options: Any) -> Reply:
    with anyio.fail_after(2):
        return await made.turn(request(), **options)


async def fault(made: HttpProvider, **options: Any) -> TurnFault:
    with pytest.raises(TurnFault) as caught:
        await turn(made, **options)
    return caught.value


both = pytest.mark.parametrize("protocol", ["chat", "messages"])


@both
async def test_a_stream_is_asked_for_and_read(protocol: str, said: Any, connection: Any) -> None:
    used = connection(said(protocol))
    assert (await turn(provider(protocol, used))).text == "ab"
    ((path, body, headers),) = used.sent
    assert body["stream"] is True
    assert headers["accept"] == "text/event-stream"
    assert (path, headers.get("anthropic-version")) == {
        "chat": ("/v1/chat/completions", None),
        "messages": ("/v1/messages", "2023-06-01"),
    }[protocol]
    assert used.closed.is_set()


@both
async def test_a_whole_reply_is_asked_for_without_a_stream(protocol: str, connection: Any) -> None:
    message = {"role": "assistant", "content": "ab"}
    body = {
        "chat": {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]},
        "messages": {**message, "type": "message", "content": [{"type": "text", "text": "ab"}]}
        | {"stop_reason": "end_turn"},
    }[protocol]
    data = json.dumps(body).encode()
    used = connection(data[:7], data[7:])
    assert (await turn(provider(protocol, used, stream=False))).text == "ab"
    assert "stream" not in used.sent[0][1]
    for headers in ({}, {"content-type": "application/json; charset=utf-8"}):
        answered = connection(data[:7], data[7:], headers=headers)
        assert (await turn(provider(protocol, answered))).text == "ab"


@both
async def test_a_body_that_never_closes_is_left_at_the_drains_deadline(
    protocol: str, said: Any, connection: Any
) -> None:
    used = connection(said(protocol), anyio.sleep_forever, b"unseen")
    started = anyio.current_time()
    assert (await turn(provider(protocol, used))).text == "ab"
    assert 0.04 < anyio.current_time() - started < 1
    assert used.closed.is_set()


@both
async def test_a_chunk_after_the_marker_and_before_the_deadline_is_refused(
    protocol: str, said: Any, connection: Any
) -> None:
    late = provider(protocol, connection(said(protocol), b": late\n\n"), drain=1.0)
    assert (await fault(late)).issue == "POST_TERMINAL_DATA"


@both
async def test_line_ends_do_not_move_the_drains_deadline(protocol: str, said: Any, connection: Any) -> None:
    async def a_moment() -> None:
        await anyio.sleep(0.02)

    dripping = [piece for _ in range(100) for piece in (b"\n", a_moment)]
    started = anyio.current_time()
    assert (await turn(provider(protocol, connection(said(protocol), *dripping)))).text == "ab"
    assert anyio.current_time() - started < 1


@both
async def test_a_close_that_hangs_does_not_hold_the_reply(protocol: str, said: Any, connection: Any) -> None:
    for pieces in ([said(protocol)], [said(protocol), anyio.sleep_forever]):
        used = connection(*pieces)
        used.at_close = anyio.sleep_forever
        assert (await turn(provider(protocol, used))).text == "ab"


@both
async def test_a_connection_that_breaks_off_after_the_marker_takes_nothing_away(
    protocol: str, said: Any, connection: Any
) -> None:
    broken = ToolFailed("the provider's reply broke off")
    assert (await turn(provider(protocol, connection(said(protocol), broken)))).text == "ab"
    half = said(protocol)[:-5]
    lost = await fault(provider(protocol, connection(half, broken)))
    assert (lost.outcome, lost.issue, lost.begun) == ("provider_error", "TERMINAL_MISSING", True)


@both
async def test_without_a_marker_the_nearer_deadline_names_itself(protocol: str, connection: Any) -> None:
    made = provider(protocol, connection(b": ping\n\n", anyio.sleep_forever), timeout=0.02)
    late = await fault(made, deadline=math.inf)
    assert (late.outcome, late.issue) == ("provider_error", "TERMINAL_MISSING")
    made = provider(protocol, connection(b": ping\n\n", anyio.sleep_forever))
    spent = await fault(made, deadline=anyio.current_time() + 0.02)
    assert (spent.outcome, spent.issue) == ("limit_exceeded", "BUDGET_WALL_CLOCK")


@both
async def test_the_runs_deadline_in_the_drain_leaves_a_complete_reply(
    protocol: str, said: Any, connection: Any
) -> None:
    made = provider(protocol, connection(said(protocol), anyio.sleep_forever), drain=60.0)
    assert (await turn(made, deadline=anyio.current_time() + 0.05)).text == "ab"


@both
@pytest.mark.parametrize("body", ["stream", "whole"])
async def test_a_cancellation_ends_a_body_read_at_once_and_shows_nothing_more(
    protocol: str, body: str, said: Any, connection: Any
) -> None:
    reading, shown, ended = anyio.Event(), [], []

    async def stall() -> None:
        reading.set()
        await anyio.sleep_forever()

    async def show(snapshot: Snapshot) -> None:
        shown.append(snapshot.delta)

    half = b'{"half": ' if body == "whole" else said(protocol)[:-80]
    used = connection(half, stall)
    used.at_close = anyio.sleep_forever

    async def run() -> None:
        try:
            await provider(protocol, used, stream=body == "stream").turn(request(), emit=show)
        except BaseException as error:
            ended.append(type(error))
            raise

    with anyio.fail_after(1):
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await reading.wait()
            before, started = list(shown), anyio.current_time()
            group.cancel_scope.cancel()
    assert anyio.current_time() - started < 0.1
    assert used.closed.is_set()
    assert shown == before
    assert ended == [anyio.get_cancelled_exc_class()]


@both
async def test_a_lost_reader_is_one_client_disconnect(protocol: str, said: Any, connection: Any) -> None:
    told = []

    async def leave(snapshot: Snapshot) -> None:
        told.append(snapshot.delta)
        raise ReaderLost

    used = connection(said(protocol), anyio.sleep_forever)
    lost = await fault(provider(protocol, used), emit=leave)
    assert (lost.outcome, lost.issue) == ("client_disconnect", "CLIENT_DISCONNECT")
    assert told == ["a"]
    assert used.closed.is_set()


@both
async def test_a_reader_that_hangs_does_not_outlast_the_deadline(
    protocol: str, said: Any, connection: Any
) -> None:
    async def hang(snapshot: Snapshot) -> None:
        await anyio.sleep_forever()

    made = provider(protocol, connection(said(protocol)[:-80]), timeout=0.05)
    assert (await fault(made, emit=hang)).issue == "TERMINAL_MISSING"


@both
@pytest.mark.parametrize("status", [302, 400, 401, 429, 500, 529])
async def test_an_error_status_spent_nothing_and_says_when_to_come_back(
    protocol: str, status: int, connection: Any
) -> None:
    body = json.dumps({"type": "error", "error": {"message": "slow\n\x1b[31mdown"}}).encode()
    used = connection(body, status=status, headers={"retry-after": "7"})
    refused = await fault(provider(protocol, used))
    assert (refused.outcome, refused.status, refused.retry_after, refused.begun) == (
        "provider_error",
        status,
        7.0,
        False,
    )
    assert refused.message == f"the provider answered with status {status}: slow [31mdown"


@pytest.mark.parametrize("body", [b"", b"<html>", b"\xff", b"[]", b"null", b'{"error": 3}', b"{" * 9])
async def test_an_errors_body_may_be_anything(body: bytes, connection: Any) -> None:
    refused = await fault(provider("chat", connection(body, status=502)))
    assert refused.message == "the provider answered with status 502"


async def test_an_errors_body_is_read_to_64_kib_and_may_break_off(connection: Any) -> None:
    endless = connection(*[b"x" * 4096] * 17, anyio.sleep_forever, status=500)
    assert (await fault(provider("chat", endless))).status == 500
    broken = connection(b'{"error": {"message": "busy"}}', ToolFailed("broke off"), status=503)
    assert (await fault(provider("chat", broken))).message.endswith(": busy")


@pytest.mark.parametrize(
    ("status", "words", "refused"),
    [
        (400, "Invalid 'tools': array too long. Expected an array with maximum length 128", True),
        (400, "too many tools: at most 128 are allowed", True),
        (400, "[] is too long - 'functions' exceeds the limit of 64", True),
        (400, "max_tokens is too large", False),
        (400, "tools.0.name: String should match pattern", False),
        (500, "too many tools", False),
    ],
)
async def test_a_refused_number_of_tools_is_told_apart(
    status: int, words: str, refused: bool, connection: Any
) -> None:
    body = json.dumps({"error": {"message": words}}).encode()
    issue = (await fault(provider("chat", connection(body, status=status)))).issue
    assert issue == ("TOOL_COUNT_REFUSED_BY_PROVIDER" if refused else "PROVIDER_ERROR_EVENT")


@pytest.mark.parametrize(("data", "begun"), [({}, True), ({"sent": True}, True), ({"sent": False}, False)])
async def test_a_request_that_was_not_sent_spent_nothing(
    refusing: Any, data: dict[str, bool], begun: bool
) -> None:
    lost = await fault(provider("chat", refusing(**data)))
    assert (lost.outcome, lost.begun) == ("provider_error", begun)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "3"}, 0.25),
        ({"retry-after": "99999999"}, 86400.0),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:00 GMT"}, 20.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:01 GMT"}, 0.0),
        ({"retry-after": "Thu, 01 Jan 9999999 00:00:01 GMT"}, None),
    ],
)
def test_a_wait_is_read_from_seconds_milliseconds_or_a_date(headers: Any, seconds: float | None) -> None:
    assert retry_after(headers, 40.0) == seconds


@both
async def test_a_later_request_begins_with_the_very_bytes_of_the_one_before(
    protocol: str, streams: Any, connection: Any
) -> None:
    names = {
        "chat": ("chat_reasoning_details", "chat_thought_signature", "chat_parallel"),
        "messages": ("messages_thinking", "messages_parallel", "messages_call"),
    }[protocol]
    history: list[Any] = [SAID]
    before = b""
    for name in names:
        made = provider(protocol, connection(streams.capture(name)))
        asked = request(*history, tools=streams.tools)
        sent = made.protocol.body(asked, stream=True)
        assert sent.startswith(before)
        before = sent[: sent.rindex(b"]")]
        with anyio.fail_after(2):
            reply = await made.turn(asked)
        results = [
            {"type": "tool_result", "tool_use_id": call["id"], "content": "ok", "is_error": False}
            for call in reply.requested
        ]
        kept = json.loads(json.dumps(reply.message()))
        history += [kept, {"role": "user", "content": results}]
