"""Chat Completions, not streamed: request bytes and whole replies."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packhost.errors import PackhostError
from packhost_packs.agent_runtime.faults import TurnFault
from packhost_packs.agent_runtime.providers import chat
from packhost_packs.agent_runtime.providers.arguments import allows_nothing
from packhost_packs.agent_runtime.providers.base import Reply, TurnRequest
from packhost_packs.agent_runtime.providers.protocols import ChatProtocol, path_below
from packhost_packs.agent_runtime.stream.limits import SafetyLimits

CALL = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": 1.0}'}}

CUSTOM = {"id": "c1", "type": "custom", "custom": {"name": "f", "input": "x"}}


def reply(message: Any = None, finish: Any = "stop", **more: Any) -> bytes:
    given = {"role": "assistant", "content": "hm"} if message is None else {"role": "assistant", **message}
    choices = [{"index": 0, "message": given, "finish_reason": finish}]
    return json.dumps({"object": "chat.completion", "choices": choices, **more}).encode()


def parse(body: bytes) -> Reply:
    return chat.parse_reply(body, {}, SafetyLimits())


def fault_of(body: bytes) -> TurnFault:
    with pytest.raises(TurnFault) as caught:
        parse(body)
    return caught.value


def request(history: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    turn = TurnRequest("m", more.pop("system", None), history, more.pop("tools", ()), more.pop("max", 9))
    return json.loads(chat.request_body(turn, **more))


def user(*texts: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text} for text in texts]}


def test_a_request_names_no_choice_of_tool_and_one_reply(streams: Any) -> None:
    sent = request([user("hi")], system="be brief", tools=streams.tools[:1], stream=True)
    assert sent == {
        "model": "m",
        "max_tokens": 9,
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "get_weather",
                    "description": "Weather.",
                    "parameters": streams.tools[0].input_schema,
                },
            }
        ],
        "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}],
    }
    assert (chat.KEY_HEADER, chat.KEY_SCHEME) == ("authorization", "Bearer")
    assert ChatProtocol().headers(stream=True)["accept"] == "text/event-stream"


def test_max_tokens_is_positive_and_may_have_its_other_name() -> None:
    with pytest.raises(PackhostError, match="max_tokens"):
        request([], max=0)
    sent = request([user("hi")], max_tokens_field="max_completion_tokens")
    assert (sent["max_completion_tokens"], "max_tokens" in sent) == (9, False)


def test_results_are_messages_of_their_own_and_lead() -> None:
    call = {"type": "tool_call", "id": "c1", "name": "t", "input": {"b": 1, "a": 2}}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "18 C", "is_error": False}
    sent = request(
        [
            user("a", "b"),
            {"role": "assistant", "content": [{"type": "text", "text": "let me see"}, call]},
            {"role": "user", "content": [result, {"type": "text", "text": "and?"}]},
        ]
    )["messages"]
    function = {"name": "t", "arguments": '{"b":1,"a":2}'}
    assert sent == [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {
            "role": "assistant",
            "content": "let me see",
            "tool_calls": [{"id": "c1", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "18 C"},
        {"role": "user", "content": "and?"},
    ]


def test_a_tool_only_reply_is_a_request_with_its_own_ids() -> None:
    came = parse(reply({"content": None, "tool_calls": [CALL]}, "tool_calls"))
    assert (came.verdict, came.text) == ("tools", "")
    assert came.requested == ({"id": "c1", "name": "get_weather", "input": {"city": 1.0}},)


@pytest.mark.parametrize("echo", [True, False])
def test_reasoning_goes_back_byte_for_byte_unless_the_profile_says_no(echo: bool) -> None:
    state = {
        "reasoning_content": "so",
        "reasoning_details": [{"type": "reasoning.text", "text": "so", "signature": "c2ln", "index": 0}],
        "extra_content": {"google": {"thought_signature": "dA=="}},
    }
    signed = {**CALL, "extra_content": {"google": {"thought_signature": "dg=="}}}
    came = parse(reply({"content": None, **state, "tool_calls": [signed]}, "tool_calls"))
    wire = chat.wire_messages([came.message()], echo_reasoning=echo)
    kept = state if echo else {}
    assert json.dumps(wire) == json.dumps(
        [{"role": "assistant", "content": None, **kept, "tool_calls": [signed]}]
    )


def test_history_of_the_other_protocol_is_sent_in_this_ones_form() -> None:
    native = {"protocol": "messages", "content": [{"type": "thinking", "thinking": "x", "signature": "y"}]}
    message = {"role": "assistant", "content": [{"type": "text", "text": "hi"}], "native": native}
    assert chat.wire_messages([message]) == [{"role": "assistant", "content": "hi"}]


@pytest.mark.parametrize(
    ("message", "finish", "outcome", "issue"),
    [
        ({"content": None, "tool_calls": [CALL]}, "stop", "protocol_error", "CALLS_WITHOUT_TOOL_STOP"),
        ({"content": None, "tool_calls": None}, "tool_calls", "protocol_error", "STOP_TOOL_WITHOUT_CALLS"),
        ({"content": "x"}, None, "protocol_error", "STOP_MISSING"),
        ({"content": "x"}, "function_call", "unsupported", "CUSTOM_CALL_UNSUPPORTED"),
        ({"function_call": {"name": "f"}}, "stop", "unsupported", "CUSTOM_CALL_UNSUPPORTED"),
        (
            {"tool_calls": [{**CALL, "type": "custom"}]},
            "tool_calls",
            "unsupported",
            "CUSTOM_CALL_UNSUPPORTED",
        ),
        ({"tool_calls": [CALL, CALL]}, "tool_calls", "protocol_error", "CALL_ID_DUPLICATE"),
        ({"tool_calls": [{**CALL, "id": None}]}, "tool_calls", "protocol_error", "CALL_ID_MISSING"),
        ({"tool_calls": [{**CALL, "function": None}]}, "tool_calls", "protocol_error", "CALL_NAME_MISSING"),
        ({"tool_calls": [{**CALL, "function": 3}]}, "tool_calls", "protocol_error", "CALL_NAME_MISSING"),
        ({"content": [{"type": "text"}]}, "stop", "unsupported", "BLOCK_UNKNOWN"),
        ({"role": "user", "content": "x"}, "stop", "protocol_error", "EVENT_ORDER"),
        ({"tool_calls": [CALL] * 129}, "tool_calls", "limit_exceeded", "LIMIT_TOOL_CALLS"),
        ({"reasoning_details": [{}] * 1025, "content": ""}, "stop", "limit_exceeded", "LIMIT_BLOCKS"),
    ],
)
def test_what_breaks_the_protocol_fails_closed(message: Any, finish: Any, outcome: str, issue: str) -> None:
    fault = fault_of(reply(message, finish))
    assert (fault.outcome, fault.issue) == (outcome, issue)


@pytest.mark.parametrize(
    ("body", "outcome", "issue"),
    [
        (b"", "protocol_error", "INPUT_JSON_INVALID"),
        (b"[]", "protocol_error", "INPUT_NOT_OBJECT"),
        (b"{}", "protocol_error", "EVENT_ORDER"),
        (b'{"choices": []}', "protocol_error", "EVENT_ORDER"),
        (b'{"choices": [{}, {}]}', "unsupported", "EVENT_ORDER"),
        (b'{"choices": [{"index": 1}]}', "unsupported", "EVENT_ORDER"),
        (b'{"error": {"message": "no", "code": 503}}', "provider_error", "PROVIDER_ERROR_EVENT"),
        (reply()[:-1], "protocol_error", "INPUT_JSON_INVALID"),
    ],
)
def test_a_body_that_is_no_reply_of_one_choice_is_refused(body: bytes, outcome: str, issue: str) -> None:
    fault = fault_of(body)
    assert (fault.outcome, fault.issue) == (outcome, issue)


@pytest.mark.parametrize(
    ("base_url", "path"),
    [
        ("https://h", "/v1/chat/completions"),
        ("https://h/", "/v1/chat/completions"),
        ("https://h/v1", "/chat/completions"),
        ("https://h/api/v1/", "/chat/completions"),
        ("https://h/v1beta/openai", "/chat/completions"),
    ],
)
def test_a_base_url_may_hold_the_version_or_leave_it_out(base_url: str, path: str) -> None:
    assert path_below(base_url, "/v1/chat/completions") == path


@pytest.mark.parametrize(
    ("base_url", "path"),
    [("https://h", "/v1/messages"), ("https://h/anthropic", "/v1/messages"), ("https://h/v1", "/messages")],
)
def test_a_version_is_never_said_twice(base_url: str, path: str) -> None:
    assert path_below(base_url, "/v1/messages") == path


@pytest.mark.parametrize(
    ("schema", "allowed"),
    [
        ({}, True),
        ({"type": "object", "properties": {"a": {}}}, True),
        ({"required": []}, True),
        ({"required": ["a"]}, False),
        ({"minProperties": 1}, False),
        ({"anyOf": [{"required": ["a"]}]}, False),
        ({"$ref": "#/$defs/a"}, False),
    ],
)
def test_a_schema_takes_no_arguments_only_when_it_plainly_does(schema: Any, allowed: bool) -> None:
    assert allows_nothing(schema) is allowed


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_give_a_reply_or_a_typed_fault(body: bytes) -> None:
    with suppress(TurnFault):
        assert parse(body).verdict in ("final", "tools", "incomplete", "refused")


@given(st.integers(0, len(reply({"tool_calls": [CALL]}, "tool_calls")) - 1))
def test_no_prefix_of_a_reply_is_ever_salvaged(length: int) -> None:
    assert fault_of(reply({"tool_calls": [CALL]}, "tool_calls")[:length]).outcome == "protocol_error"
