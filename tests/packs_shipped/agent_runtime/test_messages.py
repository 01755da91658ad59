"""The Messages adapter: request bytes and reply bytes, without any I/O."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packhost.errors import PackhostError
from packhost.kinds.context import OfferedTool
from packhost_packs.agent_runtime.faults import TurnFault
from packhost_packs.agent_runtime.providers import messages
from packhost_packs.agent_runtime.providers.base import Reply, TurnRequest
from packhost_packs.agent_runtime.providers.protocols import MessagesProtocol
from packhost_packs.agent_runtime.stream.limits import SafetyLimits

TOOL = OfferedTool("lab_echo", "lab:echo", "Echoes.", {"type": "object"})
TEXT = {"type": "text", "text": "hm"}
THINKING = {"type": "thinking", "thinking": "…", "signature": "c2ln"}
USE = {"type": "tool_use", "id": "tu_1", "name": "lab_echo", "input": {"b": 1, "a": [True]}}


def reply(content: Any = None, stop: Any = "end_turn", **more: Any) -> bytes:
    body = {"type": "message", "role": "assistant", "content": content or [TEXT], "stop_reason": stop, **more}
    return json.dumps(body).encode()


def parse(body: bytes) -> Reply:
    return messages.parse_reply(body, SafetyLimits())


def fault_of(body: bytes) -> TurnFault:
    with pytest.raises(TurnFault) as caught:
        parse(body)
    return caught.value


def request(history: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    turn = TurnRequest("m", more.get("system"), history, more.get("tools", ()), more.get("max_tokens", 9))
    return json.loads(messages.request_body(turn))


def test_a_request_carries_model_tools_and_a_positive_max_tokens() -> None:
    sent = request([{"role": "user", "content": [TEXT]}], tools=(TOOL,), system="be brief")
    assert sent == {
        "model": "m",
        "max_tokens": 9,
        "system": "be brief",
        "tools": [{"name": "lab_echo", "description": "Echoes.", "input_schema": {"type": "object"}}],
        "messages": [{"role": "user", "content": [TEXT]}],
    }
    assert MessagesProtocol().headers(stream=True)["anthropic-version"] == "2023-06-01"
    assert messages.KEY_HEADER == "x-api-key"


@pytest.mark.parametrize("count", [0, -1])
def test_a_max_tokens_that_is_not_positive_is_never_sent(count: int) -> None:
    with pytest.raises(PackhostError, match="max_tokens"):
        request([], max_tokens=count)


def test_results_lead_one_user_message_also_when_more_text_follows() -> None:
    result = {"type": "tool_result", "tool_use_id": "tu_1", "content": "1", "is_error": False}
    sent = request(
        [
            {"role": "user", "content": [TEXT]},
            {"role": "assistant", "content": [{"type": "tool_call", "id": "tu_1", "name": "t", "input": {}}]},
            {"role": "user", "content": [result]},
            {"role": "user", "content": [TEXT]},
        ]
    )["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "user"]
    assert sent[1]["content"] == [{"type": "tool_use", "id": "tu_1", "name": "t", "input": {}}]
    assert sent[2]["content"] == [result, TEXT]


def test_thinking_and_unknown_members_go_back_byte_for_byte() -> None:
    content = [THINKING, {"type": "redacted_thinking", "data": "eA=="}, {**TEXT, "citations": None}, USE]
    came = parse(reply(content, "tool_use"))
    assert [block["type"] for block in came.blocks] == ["text", "tool_call"]
    sent = messages.wire_messages([came.message()])
    assert json.dumps(sent[0]["content"]) == json.dumps(content)


def test_a_tool_only_reply_is_a_request_with_its_own_ids() -> None:
    came = parse(reply([USE], "tool_use"))
    assert came.verdict == "tools"
    assert came.requested == ({"id": "tu_1", "name": "lab_echo", "input": {"b": 1, "a": [True]}},)
    assert came.text == ""


def test_text_that_looks_like_a_call_is_only_text() -> None:
    text = '{"tool_calls": [{"id": "x", "name": "lab_echo", "input": {}}]} <tool_use>lab_echo</tool_use>'
    came = parse(reply([{"type": "text", "text": text}]))
    assert (came.verdict, came.requested, came.text) == ("final", (), text)


@pytest.mark.parametrize(
    ("stop", "verdict"),
    [
        ("end_turn", "final"),
        ("stop_sequence", "final"),
        ("max_tokens", "incomplete"),
        ("model_context_window_exceeded", "incomplete"),
        ("refusal", "refused"),
    ],
)
def test_a_stop_reason_decides_what_a_reply_comes_to(stop: str, verdict: str) -> None:
    assert parse(reply([TEXT], stop)).verdict == verdict


@pytest.mark.parametrize("stop", ["max_tokens", "refusal"])
def test_calls_of_a_cut_or_refused_reply_are_not_runnable(stop: str) -> None:
    assert parse(reply([TEXT, USE], stop)).verdict in ("incomplete", "refused")


@pytest.mark.parametrize(
    ("content", "stop", "outcome", "issue"),
    [
        ([USE], "end_turn", "protocol_error", "CALLS_WITHOUT_TOOL_STOP"),
        ([TEXT], "tool_use", "protocol_error", "STOP_TOOL_WITHOUT_CALLS"),
        ([TEXT], None, "protocol_error", "STOP_MISSING"),
        ([TEXT], "compaction", "protocol_error", "STOP_UNKNOWN"),
        ([TEXT], "pause_turn", "unsupported", "PAUSE_TURN_UNHANDLED"),
        ([USE, USE], "tool_use", "protocol_error", "CALL_ID_DUPLICATE"),
        ([{**USE, "id": None}], "tool_use", "protocol_error", "CALL_ID_MISSING"),
        ([{**USE, "id": ""}], "tool_use", "protocol_error", "CALL_ID_EMPTY"),
        ([{**USE, "input": "{}"}], "tool_use", "protocol_error", "INPUT_NOT_OBJECT"),
        ([{**USE, "caller": {"type": "code"}}], "tool_use", "unsupported", "PROGRAMMATIC_CALLER"),
        ([{"type": "container_upload", "file_id": "f"}], "end_turn", "unsupported", "BLOCK_UNKNOWN"),
        ([{"type": "tool_result"}], "end_turn", "unsupported", "BLOCK_UNKNOWN"),
        ([{"type": "hologram"}], "end_turn", "unsupported", "BLOCK_UNKNOWN"),
        ([{"type": "text"}], "end_turn", "protocol_error", "BLOCK_UNKNOWN"),
        (["text"], "end_turn", "protocol_error", "BLOCK_UNKNOWN"),
        ([TEXT] * 1025, "end_turn", "limit_exceeded", "LIMIT_BLOCKS"),
        ([{**USE, "id": str(n)} for n in range(129)], "tool_use", "limit_exceeded", "LIMIT_TOOL_CALLS"),
        ([{**USE, "input": {"x": "y" * 1_048_600}}], "tool_use", "limit_exceeded", "LIMIT_ARGUMENT_BYTES"),
    ],
)
def test_what_breaks_the_protocol_fails_closed(content: Any, stop: Any, outcome: str, issue: str) -> None:
    fault = fault_of(reply(content, stop))
    assert (fault.outcome, fault.issue) == (outcome, issue)


def test_a_direct_caller_is_accepted() -> None:
    assert parse(reply([{**USE, "caller": {"type": "direct"}}], "tool_use")).requested


@pytest.mark.parametrize(
    ("body", "issue"),
    [
        (b"", "INPUT_JSON_INVALID"),
        (reply()[:-1], "INPUT_JSON_INVALID"),
        (b"\xef\xbb\xbf" + reply(), "INPUT_JSON_INVALID"),
        (b'{"type": "message", "type": "message"}', "INPUT_DUPLICATE_KEY"),
        (b'{"type": NaN}', "INPUT_NONFINITE_NUMBER"),
        (b'{"type": 1e999}', "INPUT_NONFINITE_NUMBER"),
        (b'{"type": "\xff"}', "SSE_INVALID_UTF8"),
        (b'{"type": "\\ud800"}', "INPUT_JSON_INVALID"),
        (b"[" * 100_000, "INPUT_JSON_INVALID"),
        (b"[]", "INPUT_NOT_OBJECT"),
        (b'{"type": "message", "role": "user"}', "EVENT_ORDER"),
    ],
)
def test_a_body_that_is_not_strict_json_of_a_message_is_a_protocol_error(body: bytes, issue: str) -> None:
    fault = fault_of(body)
    assert (fault.outcome, fault.issue) == ("protocol_error", issue)


def test_blocks_of_a_tool_of_the_providers_own_are_kept_and_never_pending() -> None:
    server = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"q": "x"}}
    result = {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []}
    came = parse(reply([server, result, USE], "tool_use"))
    assert [call["id"] for call in came.requested] == ["tu_1"]
    assert messages.wire_messages([came.message()])[0]["content"] == [server, result, USE]


def test_an_error_after_a_200_is_a_provider_error() -> None:
    assert fault_of(b'{"type": "error", "error": {"message": "overloaded"}}').outcome == "provider_error"


def test_usage_counts_cached_tokens_as_input_and_ignores_nonsense() -> None:
    usage = {"input_tokens": 3, "cache_read_input_tokens": 4, "output_tokens": True}
    came = parse(reply(usage=usage))
    assert came.usage.as_json() == {"input_tokens": 7, "output_tokens": 0}


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_give_a_reply_or_a_typed_fault(body: bytes) -> None:
    with suppress(TurnFault):
        assert parse(body).verdict in ("final", "tools", "incomplete", "refused")


@given(st.integers(0, len(reply([TEXT, USE], "tool_use")) - 1))
def test_no_prefix_of_a_reply_is_ever_salvaged(length: int) -> None:
    assert fault_of(reply([TEXT, USE], "tool_use")[:length]).outcome == "protocol_error"
