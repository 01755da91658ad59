"""Well-formed streams, put together here and by the providers' own clients: the messages are equal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packhost_packs.agent_runtime.providers.base import Reply
from packhost_packs.agent_runtime.providers.chat_stream import ChatStream
from packhost_packs.agent_runtime.providers.messages_stream import MessagesStream
from packhost_packs.agent_runtime.stream.limits import SafetyLimits

pytestmark = pytest.mark.real

CAPTURES = Path(__file__).parents[1] / "packs_shipped/agent_runtime/captures"
NAMES = sorted(path.stem for path in CAPTURES.glob("*.sse"))


class _Pieces(httpx2.SyncByteStream):
    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces

    def __iter__(self) -> Iterator[bytes]:
        yield from self._pieces


def answering(pieces: list[bytes]) -> httpx2.Client:
    """A client whose every request is answered by these pieces."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        headers = {"content-type": "text/event-stream"}
        return httpx2.Response(200, headers=headers, stream=_Pieces(pieces))

    return httpx2.Client(transport=httpx2.MockTransport(answer))


def by_openai(oracles: Any, pieces: list[bytes]) -> dict[str, Any]:
    """The message that the official client of Chat Completions puts together."""
    client = oracles.openai.OpenAI(api_key="k", base_url="http://mock/v1", http_client=answering(pieces))
    asked = [{"role": "user", "content": "hi"}]
    with client.chat.completions.stream(model="m", messages=asked) as stream:
        choice = stream.get_final_completion().choices[0]
    return {**choice.message.to_dict(), "finish_reason": choice.finish_reason}


def by_anthropic(oracles: Any, pieces: list[bytes]) -> dict[str, Any]:
    """The message that the official client of Messages puts together."""
    client = oracles.anthropic.Anthropic(api_key="k", base_url="http://mock", http_client=answering(pieces))
    asked = [{"role": "user", "content": "hi"}]
    with client.messages.stream(model="m", max_tokens=9, messages=asked) as stream:
        message = stream.get_final_message()
    return {
        "content": [block.to_dict() for block in message.content],
        "stop_reason": message.stop_reason,
        "output_tokens": message.usage.output_tokens,
    }


def here(name: str, pieces: list[bytes]) -> Reply:
    """The reply that our own machine puts together."""
    machine = (ChatStream if name.startswith("chat") else MessagesStream)(SafetyLimits(), {})
    for piece in pieces:
        machine.feed(piece)
    return machine.finish()


def assert_same(name: str, reply: Reply, theirs: dict[str, Any]) -> None:
    """Hold a reply against the official client's message, as far as that one keeps it."""
    assert reply.native is not None
    if name.startswith("messages"):
        ours = [dict(block) for block in reply.native["content"]]
        assert json.dumps(_plain(ours)) == json.dumps(_plain(theirs["content"]))
        assert (reply.stop_reason, reply.usage.output_tokens) == (
            theirs["stop_reason"],
            theirs["output_tokens"],
        )
        return
    ours = dict(reply.native["message"])
    assert reply.stop_reason == theirs["finish_reason"]
    assert (ours["content"] or None) == (theirs.get("content") or None)
    calls = [
        {member: value for member, value in call.items() if member != "index"}
        for call in theirs.get("tool_calls") or ()
    ]
    for call in calls:
        call["function"] = {name: call["function"][name] for name in ("name", "arguments")}
    assert _plain(ours.get("tool_calls", [])) == _plain(calls)
    assert ours.get("reasoning_content") == theirs.get("reasoning_content")


def _plain(value: Any) -> Any:
    """Members in one order and without those that are null: an official client adds and orders its own."""
    if isinstance(value, dict):
        return {key: _plain(value[key]) for key in sorted(value) if value[key] is not None}
    return [_plain(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", NAMES)
def test_a_capture_gives_the_official_clients_message_in_every_split(oracles: Any, name: str) -> None:
    data = (CAPTURES / f"{name}.sse").read_bytes()
    theirs = (by_openai if name.startswith("chat") else by_anthropic)(oracles, [data])
    assert_same(name, here(name, [data[n : n + 1] for n in range(len(data))]), theirs)
    for cut in range(len(data) + 1):
        assert_same(name, here(name, [data[:cut], data[cut:]]), theirs)


words = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
inputs = st.dictionaries(words, values, max_size=3)


def cut(draw: st.DataObject, text: str) -> list[str]:
    """A text in pieces."""
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(text)), max_size=4)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@settings(max_examples=100, deadline=None)
@given(words, st.lists(inputs, max_size=3), st.booleans(), st.data())
def test_any_well_formed_reply_of_chat_completions_is_the_same(
    oracles: Any, text: str, calls: list[Any], ascii_only: bool, draw: st.DataObject
) -> None:
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": piece} for piece in cut(draw, text)]
    for index, value in enumerate(calls):
        start = {"index": index, "id": f"c{index}", "type": "function"}
        deltas.append({"tool_calls": [{**start, "function": {"name": "n", "arguments": ""}}]})
        deltas += [
            {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
            for piece in cut(draw, json.dumps(value, ensure_ascii=ascii_only))
        ]
    finish = "tool_calls" if calls else "stop"
    frames = [_chunk({"index": 0, "delta": delta, "finish_reason": None}, ascii_only) for delta in deltas]
    frames.append(_chunk({"index": 0, "delta": {}, "finish_reason": finish}, ascii_only))
    data = b"".join(frames) + b"data: [DONE]\n\n"
    reply = here("chat", [data])
    assert_same("chat", reply, by_openai(oracles, [data]))
    assert [call["input"] for call in reply.requested] == calls


def _chunk(choice: Any, ascii_only: bool) -> bytes:
    frame = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return f"data: {json.dumps(frame, ensure_ascii=ascii_only)}\n\n".encode()


@settings(max_examples=100, deadline=None)
@given(words, words, st.lists(inputs, max_size=3), st.booleans(), st.data())
def test_any_well_formed_reply_of_messages_is_the_same(
    oracles: Any, thought: str, text: str, calls: list[Any], ascii_only: bool, draw: st.DataObject
) -> None:
    blocks: list[tuple[Any, list[Any]]] = [
        (
            {"type": "thinking", "thinking": "", "signature": ""},
            [{"type": "thinking_delta", "thinking": piece} for piece in cut(draw, thought)]
            + [{"type": "signature_delta", "signature": "c2ln"}],
        ),
        (
            {"type": "text", "text": ""},
            [{"type": "text_delta", "text": piece} for piece in cut(draw, text)],
        ),
    ]
    for index, value in enumerate(calls):
        pieces = cut(draw, json.dumps(value, ensure_ascii=ascii_only))
        start = {"type": "tool_use", "id": f"t{index}", "name": "n", "input": {}}
        blocks.append((start, [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]))
    stop = "tool_use" if calls else "end_turn"
    data = b"".join(
        f"event: {frame['type']}\ndata: {json.dumps(frame, ensure_ascii=ascii_only)}\n\n".encode()
        for frame in _events(blocks, stop)
    )
    reply = here("messages", [data])
    assert_same("messages", reply, by_anthropic(oracles, [data]))
    assert [call["input"] for call in reply.requested] == calls


def _events(blocks: list[tuple[Any, list[Any]]], stop: str) -> Iterator[dict[str, Any]]:
    usage = {"input_tokens": 3, "output_tokens": 1}
    message = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": []}
    yield {"type": "message_start", "message": {**message, "stop_reason": None, "usage": usage}}
    for index, (start, deltas) in enumerate(blocks):
        yield {"type": "content_block_start", "index": index, "content_block": start}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 7}}
    yield {"type": "message_stop"}
