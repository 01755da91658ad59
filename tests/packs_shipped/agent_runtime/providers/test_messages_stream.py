"""Streamed Messages: order, blocks, deltas and their ends."""

from __future__ import annotations

import json
from typing import Any

import pytest

A = {"city": "Paris"}
TEXT = {"type": "text", "text": ""}
USE = {"type": "tool_use", "id": "tu_1", "name": "get_weather", "input": {}}


def said(text: str) -> dict[str, Any]:
    return {"type": "text_delta", "text": text}


def piece(text: str) -> dict[str, Any]:
    return {"type": "input_json_delta", "partial_json": text}


WEATHER = (USE, piece('{"city": '), piece('"Paris"}'))


def test_text_and_calls_are_put_together_in_their_order(streams: Any) -> None:
    second = {**USE, "id": "tu_2", "name": "list_all"}
    reply = streams.read("messages", [streams.messages((TEXT, said("a"), said("b")), WEATHER, (second,))])
    assert reply.blocks == (
        {"type": "text", "text": "ab"},
        {"type": "tool_call", "id": "tu_1", "name": "get_weather", "input": A},
        {"type": "tool_call", "id": "tu_2", "name": "list_all", "input": {}},
    )
    assert reply.native["content"][1] == {**USE, "input": A}
    assert reply.usage.as_json() == {"input_tokens": 5, "output_tokens": 3}


@pytest.mark.parametrize(
    ("start", "deltas"),
    [
        ({"type": "tool_use", "id": "tu_1", "name": "list_all"}, []),
        ({"type": "tool_use", "id": "tu_1", "name": "list_all", "input": {}}, [piece("")]),
        ({"type": "tool_use", "id": "tu_1", "name": "list_all", "input": None}, [piece("{}")]),
        ({"type": "tool_use", "id": "tu_1", "name": "list_all", "input": {}}, [piece("{"), piece("}")]),
    ],
)
def test_a_call_without_arguments_has_many_forms(streams: Any, start: Any, deltas: Any) -> None:
    reply = streams.read("messages", [streams.messages((start, *deltas))])
    assert reply.requested == ({"id": "tu_1", "name": "list_all", "input": {}},)


def test_no_input_for_a_tool_that_needs_some_is_a_typed_invalid_input(streams: Any) -> None:
    fault = streams.fault("messages", streams.messages((USE,)))
    assert (fault.issue, fault.call.id) == ("INPUT_JSON_INCOMPLETE", "tu_1")


def test_an_input_may_come_whole_at_the_start_but_not_twice(streams: Any) -> None:
    start = {**USE, "input": A}
    assert streams.read("messages", [streams.messages((start,))]).requested[0]["input"] == A
    twice = streams.messages((start, piece('{"city": "Rom"}')))
    assert streams.fault("messages", twice).issue == "CONTRACT_INPUT_MISMATCH"


def test_thinking_is_kept_whole_with_its_signature_and_goes_back_unmodified(streams: Any) -> None:
    thinking = {"type": "thinking", "thinking": "", "signature": ""}
    deltas = [
        {"type": "thinking_delta", "thinking": "o"},
        {"type": "thinking_delta", "thinking": "k"},
        {"type": "signature_delta", "signature": "c2ln"},
    ]
    redacted = {"type": "redacted_thinking", "data": "eA=="}
    reply = streams.read("messages", [streams.messages((thinking, *deltas), (redacted,), WEATHER)])
    assert [block["type"] for block in reply.blocks] == ["tool_call"]
    assert reply.message()["native"]["content"] == [
        {"type": "thinking", "thinking": "ok", "signature": "c2ln"},
        redacted,
        {**USE, "input": A},
    ]


def test_blocks_of_a_tool_of_the_providers_own_are_kept_and_never_pending(streams: Any) -> None:
    server = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}}
    found = {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []}
    reply = streams.read("messages", [streams.messages((server, piece('{"q": 1}')), (found,), WEATHER)])
    assert [call["id"] for call in reply.requested] == ["tu_1"]
    assert reply.native["content"][:2] == [{**server, "input": {"q": 1}}, found]


def test_citations_are_kept(streams: Any) -> None:
    cited = {"type": "citations_delta", "citation": {"cited_text": "a"}}
    reply = streams.read("messages", [streams.messages((TEXT, said("a"), cited, cited), stop="end_turn")])
    assert reply.native["content"][0]["citations"] == [{"cited_text": "a"}] * 2


@pytest.mark.parametrize(
    ("blocks", "stop", "outcome", "issue"),
    [
        ([WEATHER], "end_turn", "protocol_error", "CALLS_WITHOUT_TOOL_STOP"),
        ([(TEXT,)], "tool_use", "protocol_error", "STOP_TOOL_WITHOUT_CALLS"),
        ([WEATHER], "pause_turn", "unsupported", "PAUSE_TURN_UNHANDLED"),
        ([WEATHER], "compaction", "protocol_error", "STOP_UNKNOWN"),
        ([WEATHER], None, "protocol_error", "TERMINAL_EARLY"),
        ([WEATHER], 3, "protocol_error", "STOP_UNKNOWN"),
        ([WEATHER, WEATHER], "tool_use", "protocol_error", "CALL_ID_DUPLICATE"),
        ([({**USE, "id": None},)], "tool_use", "protocol_error", "CALL_ID_MISSING"),
        ([({**USE, "id": ""},)], "tool_use", "protocol_error", "CALL_ID_EMPTY"),
        ([({**USE, "name": None},)], "tool_use", "protocol_error", "CALL_NAME_MISSING"),
        ([(USE, piece('{"city": "Par'))], "tool_use", "protocol_error", "INPUT_JSON_INCOMPLETE"),
        ([(USE, piece("[]"))], "tool_use", "protocol_error", "INPUT_NOT_OBJECT"),
        ([({**USE, "input": [1]},)], "tool_use", "protocol_error", "INPUT_NOT_OBJECT"),
        ([({**USE, "caller": {"type": "code"}},)], "tool_use", "unsupported", "PROGRAMMATIC_CALLER"),
        ([({"type": "hologram"},)], "end_turn", "unsupported", "BLOCK_UNKNOWN"),
        ([({"type": "tool_result"},)], "end_turn", "unsupported", "BLOCK_UNKNOWN"),
        ([({},)], "end_turn", "protocol_error", "BLOCK_UNKNOWN"),
        ([(TEXT, piece("{}"))], "end_turn", "protocol_error", "DELTA_TYPE_MISMATCH"),
        ([(USE, said("x"))], "tool_use", "protocol_error", "DELTA_TYPE_MISMATCH"),
        ([(TEXT, {"type": "hologram_delta"})], "end_turn", "protocol_error", "DELTA_TYPE_MISMATCH"),
        ([(TEXT, {"type": "text_delta"})], "end_turn", "protocol_error", "SSE_MALFORMED"),
        ([(TEXT, "x")], "end_turn", "protocol_error", "SSE_MALFORMED"),
    ],
)
def test_what_breaks_the_protocol_fails_closed(
    streams: Any, blocks: Any, stop: Any, outcome: str, issue: str
) -> None:
    fault = streams.fault("messages", streams.messages(*blocks, stop=stop))
    assert (fault.outcome, fault.issue) == (outcome, issue)


def test_events_out_of_order_are_refused(streams: Any) -> None:
    opened, first = b"".join(streams.block(0, TEXT, stop=False)), b"".join(streams.block(0, TEXT))
    delta = streams.event("content_block_delta", index=0, delta=said("x"))
    stopped = streams.event("content_block_stop", index=0)
    ending = streams.event("message_delta", delta={"stop_reason": "end_turn"})
    wrong = {
        "no start": first,
        "a second start": streams.start() * 2,
        "a start that is no message": streams.event("message_start", message=None),
        "a start with content": streams.start(content=[TEXT]),
        "a start with a reason": streams.start(stop_reason="end_turn"),
        "a start of the user's": streams.start(role="user"),
        "the wrong index": streams.start() + b"".join(streams.block(1, TEXT)),
        "the same index": streams.start() + first * 2,
        "no index": streams.start() + b"".join(streams.block(None, TEXT)),
        "a delta of no block": streams.start() + delta,
        "a delta of a stopped block": streams.start() + first + delta,
        "a block that stops twice": streams.start() + opened + stopped * 2,
        "a block after the reason": streams.start() + ending + first,
        "a reason before the start": ending,
    }
    for name, data in wrong.items():
        assert (name, streams.fault("messages", data).issue) == (name, "EVENT_ORDER")


def test_an_end_needs_every_block_stopped_and_a_reason(streams: Any) -> None:
    opened = b"".join(streams.block(0, TEXT, said("x"), stop=False))
    assert streams.fault("messages", streams.messages(opened)).issue == "BLOCK_NOT_STOPPED"
    assert streams.fault("messages", streams.messages((TEXT,), stop=None)).issue == "TERMINAL_EARLY"


def test_an_end_of_file_is_no_terminal_marker(streams: Any) -> None:
    whole = streams.messages(WEATHER)
    for cut in range(len(whole) - 1):
        assert streams.fault("messages", whole[:cut]).issue == "TERMINAL_MISSING"


def test_a_message_delta_may_come_twice_with_cumulative_usage(streams: Any) -> None:
    early = streams.event("message_delta", delta={}, usage={"output_tokens": 1, "input_tokens": 9})
    reply = streams.read("messages", [streams.messages((TEXT, said("x")), early, stop="end_turn")])
    assert reply.usage.as_json() == {"input_tokens": 9, "output_tokens": 3}
    conflict = streams.messages(
        streams.event("message_delta", delta={"stop_reason": "refusal"}), stop="end_turn"
    )
    assert streams.fault("messages", conflict).issue == "STOP_CONFLICT"


def test_pings_and_unknown_events_are_passed_over_anywhere(streams: Any) -> None:
    ping, later = streams.event("ping"), streams.event("content_block_reconsidered", index=0)
    data = ping + streams.messages((TEXT, said("x")), ping, later, stop="end_turn")
    assert streams.read("messages", [data]).text == "x"


@pytest.mark.parametrize(
    ("data", "issue"),
    [
        (b'event: ping\ndata: {"type": "message_stop"}\n\n', "SSE_MALFORMED"),
        (b'data: {"typ": "ping"}\n\n', "SSE_MALFORMED"),
        (b"data: [DONE]\n\n", "SSE_MALFORMED"),
        (b'data: {"type": "ping", "type": "ping"}\n\n', "INPUT_DUPLICATE_KEY"),
    ],
)
def test_an_event_that_contradicts_itself_is_refused(streams: Any, data: bytes, issue: str) -> None:
    assert streams.fault("messages", streams.messages(data)).issue == issue


def test_the_name_of_an_event_may_be_left_out(streams: Any) -> None:
    data = b"".join(
        line + b"\n" for line in streams.messages(WEATHER).split(b"\n") if not line.startswith(b"event")
    )
    assert streams.read("messages", [data]).verdict == "tools"


@pytest.mark.parametrize(
    ("stop", "verdict"),
    [
        ("max_tokens", "incomplete"),
        ("model_context_window_exceeded", "incomplete"),
        ("refusal", "refused"),
        ("stop_sequence", "final"),
    ],
)
def test_a_reply_that_may_not_be_run_keeps_its_text_and_no_call(
    streams: Any, stop: str, verdict: str
) -> None:
    blocks = [(TEXT, said("so far"))] + ([(USE, piece('{"ci'))] if verdict != "final" else [])
    reply = streams.read("messages", [streams.messages(*blocks, stop=stop)])
    assert (reply.verdict, reply.text, reply.requested) == (verdict, "so far", ())


@pytest.mark.parametrize(("kind", "status"), [("overloaded_error", 529), ("api_error", 500), ("other", None)])
def test_an_error_after_a_200_is_a_provider_error(streams: Any, kind: str, status: int | None) -> None:
    error = streams.event("error", error={"type": kind, "message": "busy"})
    early, late = streams.fault("messages", error), streams.fault("messages", streams.start() + error)
    assert (early.outcome, early.status, early.begun) == ("provider_error", status, status is None)
    assert (late.outcome, late.status, late.begun) == ("provider_error", status, True)
    unnamed = streams.frame({"type": "error", "error": {"type": kind}})
    assert streams.fault("messages", unnamed).outcome == "provider_error"
    assert streams.fault("messages", b"event: error\ndata: not json\n\n").outcome == "provider_error"
    assert streams.fault("messages", b"event: error\ndata\n\n").outcome == "provider_error"


@pytest.mark.parametrize("more", [b"event: ping\n", b'data: {"type": "ping"}\n\n', b": late\n\n", b"\x00"])
def test_every_byte_after_the_marker_but_a_line_end_is_refused(streams: Any, more: bytes) -> None:
    data = streams.messages((TEXT, said("x")), stop="end_turn")
    assert streams.fault("messages", data + more).issue == "POST_TERMINAL_DATA"
    assert streams.fault("messages", [data, more]).issue == "POST_TERMINAL_DATA"
    assert streams.read("messages", [data, b"\r\n"]).verdict == "final"


def test_a_snapshot_is_the_latest_piece_alone(streams: Any) -> None:
    thinking = ({"type": "thinking", "thinking": ""}, {"type": "thinking_delta", "thinking": "hm"})
    shown = streams.machine("messages").feed(
        streams.messages(thinking, (TEXT, said("ab"), said("c")), WEATHER)
    )
    assert [(s.kind, s.block, s.delta, s.name) for s in shown] == [
        ("thinking", 0, "hm", None),
        ("text", 1, "ab", None),
        ("text", 1, "c", None),
        ("call", 2, '{"city": ', "get_weather"),
        ("call", 2, '"Paris"}', "get_weather"),
    ]


def test_native_content_is_what_was_streamed_as_json(streams: Any) -> None:
    number = '{"city": "Paris", "n": [1.0, 1e2, -0, 10000000000000000000001]}'
    reply = streams.read("messages", [streams.messages((USE, piece(number)))])
    assert json.dumps(reply.native["content"][0]["input"]) == json.dumps(json.loads(number))
