"""The limits on one reply: each one holds, by its documented default, and memory stays flat."""

from __future__ import annotations

import tracemalloc
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packhost_packs.agent_runtime.faults import TurnFault
from packhost_packs.agent_runtime.stream.limits import ROWS, SafetyLimits, table

PAGE = Path(__file__).parents[4] / "docs/agent-runtime/limits.md"
TEXT = {"type": "text", "text": ""}


def text_delta(text: str) -> dict[str, Any]:
    return {"type": "text_delta", "text": text}


def test_the_page_shows_the_limits_as_they_are() -> None:
    assert table() in PAGE.read_text(encoding="utf-8")
    assert {row.name for row in ROWS} == set(SafetyLimits.__dataclass_fields__)


def cases(streams: Any) -> dict[str, tuple[str, bytes, dict[str, int], str]]:
    call = streams.call(0, '{"city": "é"}', id="c1", name="get_weather")
    use = {"type": "tool_use", "id": "t", "name": "get_weather", "input": {}}
    piece = {"type": "input_json_delta", "partial_json": '{"city": "é"}'}
    texts = [{"content": "ab"}] * 3
    return {
        "chat stream": ("chat", streams.chat(*texts, finish="stop"), {"stream_bytes": 150}, "STREAM_BYTES"),
        "chat event": ("chat", streams.chat(*texts, finish="stop"), {"event_bytes": 50}, "STREAM_BYTES"),
        "chat events": ("chat", streams.chat(*texts, finish="stop"), {"events": 4}, "EVENTS"),
        "chat snapshots": ("chat", streams.chat(*texts, finish="stop"), {"snapshots": 2}, "SNAPSHOTS"),
        "chat calls": ("chat", streams.chat(call), {"tool_calls": 0}, "TOOL_CALLS"),
        "chat blocks": ("chat", streams.chat(call), {"content_blocks": 0}, "BLOCKS"),
        "chat arguments": ("chat", streams.chat(call), {"argument_bytes": 13}, "ARGUMENT_BYTES"),
        "messages stream": (
            "messages",
            streams.messages((TEXT, text_delta("a")), stop="end_turn"),
            {"stream_bytes": 300},
            "STREAM_BYTES",
        ),
        "messages events": (
            "messages",
            streams.messages((TEXT, text_delta("a")), stop="end_turn"),
            {"events": 3},
            "EVENTS",
        ),
        "messages snapshots": (
            "messages",
            streams.messages((TEXT, text_delta("a"), text_delta("b")), stop="end_turn"),
            {"snapshots": 1},
            "SNAPSHOTS",
        ),
        "messages blocks": (
            "messages",
            streams.messages((TEXT,), (TEXT,), stop="end_turn"),
            {"content_blocks": 1},
            "BLOCKS",
        ),
        "messages calls": ("messages", streams.messages((use, piece)), {"tool_calls": 0}, "TOOL_CALLS"),
        "messages arguments": (
            "messages",
            streams.messages((use, piece)),
            {"argument_bytes": 13},
            "ARGUMENT_BYTES",
        ),
        "messages input at its start": (
            "messages",
            streams.messages(({**use, "input": {"city": "é"}},)),
            {"argument_bytes": 12},
            "ARGUMENT_BYTES",
        ),
    }


def test_each_limit_ends_the_stream_that_passes_it_and_only_that(streams: Any) -> None:
    for name, (protocol, data, limits, issue) in cases(streams).items():
        for pieces in ([data], [data[n : n + 1] for n in range(len(data))]):
            fault = streams.fault(protocol, pieces, **limits)
            assert (name, fault.outcome, fault.issue) == (name, "limit_exceeded", f"LIMIT_{issue}")
        (limit,) = limits
        enough = {"stream_bytes": len(data), "event_bytes": 400, "argument_bytes": 16}.get(limit, 100)
        assert streams.read(protocol, [data], **{limit: enough}).verdict in ("final", "tools"), name


def test_arguments_are_counted_as_they_come_over_all_calls(streams: Any) -> None:
    machine = streams.machine("chat", argument_bytes=10)
    machine.feed(streams.chunk(streams.call(0, "12345", id="a", name="n")))
    machine.feed(streams.chunk(streams.call(1, "12345", id="b", name="n")))
    with pytest.raises(TurnFault) as caught:
        machine.feed(streams.chunk(streams.call(1, "1")))
    assert caught.value.issue == "LIMIT_ARGUMENT_BYTES"


@pytest.mark.parametrize("protocol", ["chat", "messages"])
def test_a_gigabyte_of_arguments_costs_a_few_megabytes(streams: Any, protocol: str) -> None:
    piece = "x" * 65536
    if protocol == "chat":
        head = streams.chunk(streams.call(0, '{"a": "', id="a", name="n"))
        more = streams.chunk(streams.call(0, piece))
    else:
        use = {"type": "tool_use", "id": "t", "name": "n", "input": {}}
        head = streams.start() + b"".join(streams.block(0, use, stop=False))
        more = streams.event(
            "content_block_delta", index=0, delta={"type": "input_json_delta", "partial_json": piece}
        )
    machine = streams.machine(protocol)
    machine.feed(head)
    tracemalloc.start()
    with pytest.raises(TurnFault) as caught:
        feed_often(machine, more, 2**30 // len(piece))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert caught.value.issue == "LIMIT_ARGUMENT_BYTES"
    assert peak < 8 * 2**20


def feed_often(machine: Any, piece: bytes, times: int) -> None:
    for _ in range(times):
        machine.feed(piece)


def peak_of(machine: Any, pieces: list[bytes], times: int) -> int:
    tracemalloc.start()
    for _ in range(times):
        for piece in pieces:
            machine.feed(piece)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_memory_does_not_grow_with_the_length_of_a_stream(streams: Any) -> None:
    long = [streams.chunk({"content": ""}), b": keep-alive\n\n", streams.chunk({"reasoning": ""})]
    short = peak_of(streams.machine("chat"), long, 200)
    assert peak_of(streams.machine("chat"), long, 4000) < short + 16_384
    ping = [streams.event("ping")]
    machine = streams.machine("messages")
    machine.feed(streams.start())
    short = peak_of(machine, ping, 200)
    assert peak_of(machine, ping, 4000) < short + 16_384


def test_text_costs_its_own_length(streams: Any) -> None:
    piece = [streams.chunk({"content": "word "})]
    peaks = [peak_of(streams.machine("chat"), piece, times) for times in (2000, 4000, 8000)]
    for (first, second), times in zip(pairwise(peaks), (2000, 4000), strict=True):
        assert second - first < times * len("word ") * 2


@pytest.mark.parametrize("protocol", ["chat", "messages"])
def test_a_capture_reads_the_same_in_every_split(streams: Any, protocol: str) -> None:
    for name in streams.names:
        if not name.startswith(protocol):
            continue
        data = streams.capture(name)
        whole = streams.read(protocol, [data])
        assert streams.read(protocol, [data[n : n + 1] for n in range(len(data))]) == whole
        for end in (b"\r", b"\r\n"):
            other = data.replace(b"\n", end)
            assert streams.read(protocol, [other[n : n + 1] for n in range(len(other))]) == whole
        for cut in range(len(data) + 1):
            assert streams.read(protocol, [data[:cut], data[cut:]]) == whole, (name, cut)


@settings(max_examples=60)
@given(st.data())
def test_a_capture_reads_the_same_however_it_is_cut(streams: Any, draw: st.DataObject) -> None:
    name = draw.draw(st.sampled_from(streams.names))
    data, protocol = streams.capture(name), name.partition("_")[0]
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(data)), max_size=20)))
    pieces = [data[a:b] for a, b in pairwise([0, *cuts, len(data)])]
    assert streams.read(protocol, pieces) == streams.read(protocol, [data])


@settings(max_examples=200)
@given(st.data())
def test_whatever_is_done_to_a_capture_gives_a_reply_or_a_typed_fault(
    streams: Any, draw: st.DataObject
) -> None:
    name = draw.draw(st.sampled_from(streams.names))
    data, protocol = bytearray(streams.capture(name)), name.partition("_")[0]
    for _ in range(draw.draw(st.integers(1, 3))):
        at = draw.draw(st.integers(0, len(data) - 1))
        size = draw.draw(st.integers(0, 20))
        data[at : at + size] = draw.draw(st.binary(max_size=10))
    cut = draw.draw(st.integers(0, len(data)))
    whole = faulted = None
    with suppress(TurnFault):
        whole = streams.read(protocol, [bytes(data)])
    with suppress(TurnFault):
        faulted = streams.read(protocol, [bytes(data[:cut]), bytes(data[cut:])])
    assert whole == faulted
    if whole is not None and whole.verdict == "tools":
        assert all(call["id"] and isinstance(call["input"], dict) for call in whole.requested)


@given(st.sampled_from(["chat", "messages"]), st.lists(st.binary(max_size=100), max_size=10))
def test_any_bytes_give_a_reply_or_a_typed_fault(streams: Any, protocol: str, pieces: list[bytes]) -> None:
    with suppress(TurnFault):
        streams.read(protocol, pieces)
