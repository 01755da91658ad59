"""How fast streams are read, beside the providers' own clients, on the same bytes in the same run.

    python tests/benchmarks/streams.py [--tokens N] [--rounds N]

Prints tokens per second of each reader, the ratio to the official client, and the peak of memory for a
stream and for one four times as long. Both read the same chunks to a whole message: the official clients
from a transport that hands them over in memory, our machines from a loop. Needs the extra `oracles`.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import httpx2
import openai

from packhost_packs.agent_runtime.providers.chat_stream import ChatStream
from packhost_packs.agent_runtime.providers.messages_stream import MessagesStream
from packhost_packs.agent_runtime.stream.limits import SafetyLimits

LIMITS = SafetyLimits()
CHUNK = 16_384
"""Bytes that a read of a socket gives at most."""


def chat_stream(tokens: int) -> list[bytes]:
    """A reply of Chat Completions: text, then one call, a token an event."""

    def chunk(delta: Any, finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1796057084, "model": "m"}
        return f"data: {json.dumps({**head, 'choices': [choice]})}\n\n".encode()

    start = {"index": 0, "id": "c1", "type": "function", "function": {"name": "note", "arguments": '{"a": "'}}
    frames = [chunk({"role": "assistant", "content": ""})]
    frames += [chunk({"content": f" word{n % 97}"}) for n in range(tokens // 2)]
    frames.append(chunk({"tool_calls": [start]}))
    frames += [
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": f" w{n % 97}"}}]})
        for n in range(tokens // 2)
    ]
    frames.append(chunk({"tool_calls": [{"index": 0, "function": {"arguments": '"}'}}]}))
    return [*frames, chunk({}, "tool_calls"), b"data: [DONE]\n\n"]


def messages_stream(tokens: int) -> list[bytes]:
    """A reply of Messages: text, then one call, a token an event."""

    def event(kind: str, **members: Any) -> bytes:
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **members})}\n\n".encode()

    def delta(index: int, kind: str, **members: Any) -> bytes:
        return event("content_block_delta", index=index, delta={"type": kind, **members})

    message = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": []}
    usage = {"input_tokens": 3, "output_tokens": 1}
    call = {"type": "tool_use", "id": "t1", "name": "note", "input": {}}
    frames = [event("message_start", message={**message, "stop_reason": None, "usage": usage})]
    frames.append(event("content_block_start", index=0, content_block={"type": "text", "text": ""}))
    frames += [delta(0, "text_delta", text=f" word{n % 97}") for n in range(tokens // 2)]
    frames.append(event("content_block_stop", index=0))
    frames.append(event("content_block_start", index=1, content_block=call))
    frames.append(delta(1, "input_json_delta", partial_json='{"a": "'))
    frames += [delta(1, "input_json_delta", partial_json=f" w{n % 97}") for n in range(tokens // 2)]
    frames.append(delta(1, "input_json_delta", partial_json='"}'))
    frames.append(event("content_block_stop", index=1))
    frames.append(event("message_delta", delta={"stop_reason": "tool_use"}, usage={"output_tokens": tokens}))
    return [*frames, event("message_stop")]


def read_here(machine: type[ChatStream] | type[MessagesStream]) -> Callable[[list[bytes]], int]:
    """Reads chunks with a machine of ours; gives the arguments' length."""

    def read(chunks: list[bytes]) -> int:
        made = machine(LIMITS, {})
        for chunk in chunks:
            made.feed(chunk)
        return len(made.finish().requested[0]["input"]["a"])

    return read


class _Chunks(httpx2.SyncByteStream):
    def __init__(self, chunks: list[bytes]) -> None:
        self._chunks = chunks

    def __iter__(self) -> Iterator[bytes]:
        yield from self._chunks


def _client(chunks: list[bytes]) -> httpx2.Client:
    headers = {"content-type": "text/event-stream"}
    return httpx2.Client(
        transport=httpx2.MockTransport(
            lambda request: httpx2.Response(200, headers=headers, stream=_Chunks(chunks))
        ),
        trust_env=False,
    )


def read_openai(chunks: list[bytes]) -> int:
    """Reads chunks with the official client; gives the arguments' length."""
    client = openai.OpenAI(api_key="k", base_url="http://mock/v1", http_client=_client(chunks))
    with client.chat.completions.stream(model="m", messages=[{"role": "user", "content": "x"}]) as stream:
        calls = stream.get_final_completion().choices[0].message.tool_calls
    assert calls
    return len(json.loads(calls[0].function.arguments)["a"])


def read_openai_chunks(chunks: list[bytes]) -> int:
    """Reads chunks with the official client's plain iterator, which puts no message together."""
    client = openai.OpenAI(api_key="k", base_url="http://mock/v1", http_client=_client(chunks))
    pieces = []
    for chunk in client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": "x"}], stream=True
    ):
        for call in chunk.choices[0].delta.tool_calls or ():
            if call.function and call.function.arguments:
                pieces.append(call.function.arguments)
    return len(json.loads("".join(pieces))["a"])


def read_anthropic(chunks: list[bytes]) -> int:
    """Reads chunks with the official client; gives the arguments' length."""
    client = anthropic.Anthropic(api_key="k", base_url="http://mock", http_client=_client(chunks))
    asked: Any = [{"role": "user", "content": "x"}]
    with client.messages.stream(model="m", max_tokens=9, messages=asked) as stream:
        block: Any = stream.get_final_message().content[1]
    return len(block.input["a"])


def read_anthropic_events(chunks: list[bytes]) -> int:
    """Reads chunks with the official client's plain iterator, which puts no message together."""
    client = anthropic.Anthropic(api_key="k", base_url="http://mock", http_client=_client(chunks))
    asked: Any = [{"role": "user", "content": "x"}]
    pieces = []
    for event in client.messages.create(model="m", max_tokens=9, messages=asked, stream=True):
        if event.type == "content_block_delta" and event.delta.type == "input_json_delta":
            pieces.append(event.delta.partial_json)
    return len(json.loads("".join(pieces))["a"])


def joined(frames: list[bytes], size: int) -> list[bytes]:
    """The same bytes as a socket would give them."""
    data = b"".join(frames)
    return [data[n : n + size] for n in range(0, len(data), size)]


def seconds(read: Callable[[list[bytes]], int], chunks: list[bytes], rounds: int) -> float:
    """The median time of a round."""
    times = []
    for _ in range(rounds):
        gc.collect()
        began = time.perf_counter()
        read(chunks)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def peak(read: Callable[[list[bytes]], int], chunks: list[bytes]) -> int:
    """The most memory in bytes that a reading holds at once, beyond the chunks themselves."""
    gc.collect()
    tracemalloc.start()
    read(chunks)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most


def main() -> None:
    """Measure and print; ends with 1 when a reader of ours is the slower one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tokens", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    slow = False
    for name, make, machine, assembled, plain in (
        ("chat completions", chat_stream, ChatStream, read_openai, read_openai_chunks),
        ("messages", messages_stream, MessagesStream, read_anthropic, read_anthropic_events),
    ):
        frames = make(options.tokens)
        readers = {"packhost": read_here(machine), "official, whole": assembled, "official, events": plain}
        for label, size in (("an event a chunk", None), (f"{CHUNK} bytes a chunk", CHUNK)):
            chunks = frames if size is None else joined(frames, size)
            assert len({read(chunks) for read in readers.values()}) == 1
            times = {who: seconds(read, chunks, options.rounds) for who, read in readers.items()}
            print(f"{name}, {options.tokens} tokens, {label}")
            for who, spent in times.items():
                ratio = spent / times["packhost"]
                print(
                    f"  {who:17} {options.tokens / spent:12,.0f} tokens/s   packhost is {ratio:6.2f}x as fast"
                )
                slow |= ratio < 1
        longer = make(options.tokens * 4)
        for who, read in readers.items():
            short, long = peak(read, frames), peak(read, longer)
            print(f"  {who:17} peak {short / 1024:9,.0f} KiB, four times the stream {long / 1024:9,.0f} KiB")
    raise SystemExit(slow)


if __name__ == "__main__":
    main()
