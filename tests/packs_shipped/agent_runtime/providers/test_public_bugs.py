"""Kinds of faults that are public in other runtimes, and that must not happen here."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

from packhost_packs.agent_runtime.faults import TurnFault
from packhost_packs.agent_runtime.providers.base import TurnRequest
from packhost_packs.agent_runtime.providers.http import HttpProvider
from packhost_packs.agent_runtime.providers.protocols import ChatProtocol, MessagesProtocol

TEXT = '{"city": "Paris"}'
USE = {"type": "tool_use", "id": "tu_1", "name": "get_weather", "input": {}}


def piece(text: str) -> dict[str, Any]:
    return {"type": "input_json_delta", "partial_json": text}


def test_1_two_calls_at_index_0_are_never_merged(streams: Any) -> None:
    """ollama/ollama#15457"""
    calls = [streams.call(0, TEXT, id=one, name="get_weather") for one in ("a", "b")]
    reply = streams.read("chat", [streams.chat(*calls)])
    assert [(call["id"], call["input"]) for call in reply.requested] == [
        ("a", {"city": "Paris"}),
        ("b", {"city": "Paris"}),
    ]


def test_2_an_id_in_every_chunk_is_one_id(streams: Any) -> None:
    """SillyTavern/SillyTavern#5948"""
    same = {"id": "call_1", "type": "function", "name": "get_weather"}
    reply = streams.read("chat", [streams.chat(*(streams.call(0, char, **same) for char in TEXT))])
    assert reply.requested == ({"id": "call_1", "name": "get_weather", "input": {"city": "Paris"}},)


def test_3_a_call_without_an_id_is_refused_and_none_is_made_up(streams: Any) -> None:
    """vllm-project/vllm#18412"""
    fault = streams.fault("chat", streams.chat(streams.call(0, TEXT, name="get_weather")))
    assert (fault.outcome, fault.issue) == ("protocol_error", "CALL_ID_MISSING")


def test_4_empty_arguments_are_an_object_only_where_the_schema_allows_it(streams: Any) -> None:
    """openai/openai-agents-js#664"""
    free = streams.read("chat", [streams.chat(streams.call(0, "", id="c", name="list_all"))])
    assert free.requested[0]["input"] == {}
    fault = streams.fault("chat", streams.chat(streams.call(0, "", id="c", name="get_weather")))
    assert (fault.issue, fault.call.name) == ("INPUT_JSON_INCOMPLETE", "get_weather")


@pytest.mark.parametrize("protocol", ["chat", "messages"])
def test_5_a_stream_that_dies_after_the_name_invokes_nothing(streams: Any, protocol: str) -> None:
    """NousResearch/hermes-agent#81017"""
    data = {
        "chat": streams.chunk(streams.call(0, "", id="c", name="list_all")),
        "messages": streams.start() + b"".join(streams.block(0, {**USE, "name": "list_all"})),
    }[protocol]
    assert streams.fault(protocol, data).issue == "TERMINAL_MISSING"


@pytest.mark.parametrize("protocol", ["chat", "messages"])
def test_6_a_prefix_of_arguments_is_never_salvaged(streams: Any, protocol: str) -> None:
    """earendil-works/pi#6284"""
    for length in range(len(TEXT)):
        cut = TEXT[:length]
        data = {
            "chat": streams.chat(streams.call(0, cut, id="c", name="get_weather")),
            "messages": streams.messages((USE, piece(cut))),
        }[protocol]
        assert streams.fault(protocol, data).issue == "INPUT_JSON_INCOMPLETE"


@pytest.mark.parametrize(
    ("protocol", "stop"),
    [
        ("chat", "length"),
        ("chat", "content_filter"),
        ("messages", "max_tokens"),
        ("messages", "refusal"),
        ("messages", "model_context_window_exceeded"),
    ],
)
def test_7_a_whole_call_of_a_cut_or_filtered_reply_is_not_run(streams: Any, protocol: str, stop: str) -> None:
    """stefandevo/glm-acp-agent#113"""
    data = {
        "chat": streams.chat(streams.call(0, TEXT, id="c", name="get_weather"), finish=stop),
        "messages": streams.messages((USE, piece(TEXT)), stop=stop),
    }[protocol]
    reply = streams.read(protocol, [data])
    assert (reply.verdict in ("incomplete", "refused"), reply.requested, reply.blocks) == (True, (), ())


@pytest.mark.parametrize("made", [ChatProtocol(), MessagesProtocol()])
def test_8_and_9_every_call_has_its_result_at_the_head_of_the_next_message(made: Any) -> None:
    """HKUDS/OpenHarness#138, QwenLM/qwen-code#8161"""
    calls = [{"type": "tool_call", "id": one, "name": "t", "input": {}} for one in ("a", "b")]
    results = [
        {"type": "tool_result", "tool_use_id": one, "content": "failed", "is_error": True}
        for one in ("a", "b")
    ]
    history = [
        {"role": "user", "content": [{"type": "text", "text": "go"}]},
        {"role": "assistant", "content": calls},
        {"role": "user", "content": results},
        {"role": "user", "content": [{"type": "text", "text": "and then?"}]},
    ]
    sent = json.loads(made.body(TurnRequest("m", None, history, (), 9), stream=True))["messages"]
    inner = [one["content"] if isinstance(one["content"], list) else [one] for one in sent[2:]]
    after = [block for blocks in inner for block in blocks]
    assert [one.get("tool_use_id", one.get("tool_call_id")) for one in after] == ["a", "b", None]


@pytest.mark.parametrize("protocol", ["chat", "messages"])
def test_10_an_error_event_after_a_200_is_an_error(streams: Any, protocol: str) -> None:
    """use-agent-os/agent-os#2137"""
    error = b'event: error\ndata: {"type": "error", "error": {"message": "overloaded"}}\n\n'
    head = {
        "chat": streams.chunk({"content": "x"}),
        "messages": streams.start() + b"".join(streams.block(0, {"type": "text", "text": "x"})),
    }[protocol]
    fault = streams.fault(protocol, head + error)
    assert (fault.outcome, fault.message[-12:]) == ("provider_error", ": overloaded")


def test_11_signed_reasoning_in_fragments_goes_back_as_one(streams: Any) -> None:
    """agno-agi/agno#8794"""
    reply = streams.read("chat", [streams.capture("chat_reasoning_details")])
    sent = json.loads(ChatProtocol().body(TurnRequest("m", None, [reply.message()], (), 9), stream=True))
    assert sent["messages"][0]["reasoning_details"] == [
        {
            "type": "reasoning.text",
            "text": "One two",
            "index": 0,
            "format": "anthropic-claude-v1",
            "signature": "c2lnbmF0dXJl",
        },
        {
            "type": "reasoning.encrypted",
            "data": "ZW5jcnlwdGVk",
            "id": "rs_1",
            "index": 1,
            "format": "openai-responses-v1",
        },
    ]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("made", "name"), [(ChatProtocol(), "chat_call"), (MessagesProtocol(), "messages_call")]
)
async def test_13_a_body_that_never_closes_returns_at_the_deadline(
    streams: Any, connection: Any, made: Any, name: str
) -> None:
    """letta-ai/letta-code#3720"""
    provider = HttpProvider(connection(streams.capture(name), anyio.sleep_forever), made, drain=0.02)
    with anyio.fail_after(1):
        reply = await provider.turn(TurnRequest("m", None, [], streams.tools, 9))
    assert reply.verdict == "tools"


@pytest.mark.parametrize("protocol", ["chat", "messages"])
def test_15_a_tool_reason_without_calls_is_a_protocol_error(streams: Any, protocol: str) -> None:
    """mastra-ai/mastra#14187"""
    data = {
        "chat": streams.chat({"content": "x"}),
        "messages": streams.messages(({"type": "text", "text": "x"},)),
    }[protocol]
    fault = streams.fault(protocol, data)
    assert isinstance(fault, TurnFault)
    assert (fault.outcome, fault.issue) == ("protocol_error", "STOP_TOOL_WITHOUT_CALLS")
