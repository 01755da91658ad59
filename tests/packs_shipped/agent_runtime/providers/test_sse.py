"""The decoder of server-sent events: the standard in every split, and nothing hidden."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packhost_packs.agent_runtime.faults import TurnFault
from packhost_packs.agent_runtime.stream.sse import SseDecoder

BOM = b"\xef\xbb\xbf"


def decode(pieces: Iterable[bytes], limit: int = 1000) -> list[tuple[str, str]]:
    decoder = SseDecoder(limit)
    return [event for piece in pieces for event in decoder.feed(piece)]


def outcome(pieces: Iterable[bytes], limit: int = 1000) -> list[tuple[str, str]] | str:
    try:
        return decode(pieces, limit)
    except TurnFault as fault:
        return fault.issue


def bytewise(data: bytes) -> list[bytes]:
    return [data[n : n + 1] for n in range(len(data))]


@pytest.mark.parametrize(
    ("data", "events"),
    [
        (b"data: x\n\n", [("", "x")]),
        (b"data:x\n\n", [("", "x")]),
        (b"data:  x\n\n", [("", " x")]),
        (b"event: e\ndata: a\ndata:b\n\n", [("e", "a\nb")]),
        (b"data\n\n", [("", "")]),
        (b"data:\ndata\n\n", [("", "\n")]),
        (b"event: e\n\ndata: x\n\n", [("", "x")]),
        (b": comment\n\n: \xc3\xa9\ndata: x\n:more\n\n", [("", "x")]),
        (b"id: 1\nid: a\x00b\nretry: 10\nretry: x\ndata: x\n\n", [("", "x")]),
        (b"\n\n\ndata: x\n\n\n\n", [("", "x")]),
        (BOM + b"data: x\n\n", [("", "x")]),
        (BOM + b"\ndata: x\n\n", [("", "x")]),
        (b"data: " + BOM + b"x\n\n", [("", "\ufeffx")]),
        (b"data: \xf0\x9f\x8c\x8a\n\n", [("", "🌊")]),
        (b"data: a\xe2\x80\xa8b\x0bc\x0cd\xc2\x85e\n\n", [("", "a\u2028b\x0bc\x0cd\x85e")]),
        (b"data: a\x00b\n\n", [("", "a\x00b")]),
        (b"data: x\n\ndata: unfinished", [("", "x")]),
        (b"data: x\n\ndata: unfinished\n", [("", "x")]),
        (b"", []),
    ],
)
@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_the_standard_holds_with_every_line_end_and_in_every_split(
    data: bytes, events: list[tuple[str, str]], end: bytes
) -> None:
    data = data.replace(b"\n", end)
    assert decode(bytewise(data)) == events
    for cut in range(len(data) + 1):
        assert decode([data[:cut], b"", data[cut:]]) == events


def test_line_ends_may_be_mixed_in_one_stream() -> None:
    assert decode(bytewise(b"data: a\rdata: b\r\ndata: c\n\r\ndata: d\n\r")) == [("", "a\nb\nc"), ("", "d")]


def test_an_event_is_given_as_soon_as_its_blank_line_begins() -> None:
    assert decode([b"data: x\r\n\r"]) == [("", "x")]


@pytest.mark.parametrize(
    ("data", "issue"),
    [
        (b"data: \xff\n\n", "SSE_INVALID_UTF8"),
        (b"data: \xed\xa0\x80\n\n", "SSE_INVALID_UTF8"),
        (b"data: \xc3\n\xa9\n\n", "SSE_INVALID_UTF8"),
        (b": \xff\n\n", "SSE_INVALID_UTF8"),
        (b"event: \xff\n\n", "SSE_INVALID_UTF8"),
        (b"id: \xff\n\n", "SSE_INVALID_UTF8"),
        (b"\xff: x\n\n", "SSE_INVALID_UTF8"),
        (b"dat: x\n\n", "SSE_MALFORMED"),
        (b"Data: x\n\n", "SSE_MALFORMED"),
        (b" data: x\n\n", "SSE_MALFORMED"),
        (b'{"error": "x"}\n', "SSE_MALFORMED"),
        (b"\x00\n", "SSE_MALFORMED"),
        (BOM + BOM + b"data: x\n\n", "SSE_MALFORMED"),
        (b"data: x\n\n" + BOM + b"data: x\n\n", "SSE_MALFORMED"),
    ],
)
def test_what_could_be_a_lost_piece_of_a_reply_is_refused(data: bytes, issue: str) -> None:
    assert outcome([data]) == issue
    assert outcome(bytewise(data)) == issue


def test_one_event_is_bounded_however_it_is_cut() -> None:
    for data in (b"data: " + b"x" * 95 + b"\n\n", b"data: aaaa\n" * 11 + b"\n", b":" + b"c" * 101 + b"\n"):
        assert outcome([data], 100) == outcome(bytewise(data), 100) == "LIMIT_STREAM_BYTES"
    assert decode([b"data: " + b"x" * 94 + b"\n\n"] * 3, 100) == [("", "x" * 94)] * 3


@pytest.mark.parametrize("rest", [b"x", b": late\n\n", b"data: x\n\n", b" ", b"\x00", b"\n\n:\n", b"\xff"])
def test_after_its_end_only_line_ends_may_follow(rest: bytes) -> None:
    def closed_by(pieces: list[bytes]) -> str:
        decoder = SseDecoder(1000)
        try:
            for piece in pieces:
                for _ in decoder.feed(piece):
                    decoder.close()
        except TurnFault as fault:
            return fault.issue
        return "closed"

    for end in (b"\n", b"\r", b"\r\n"):
        data = b"data: end" + end + end
        assert closed_by(bytewise(data + b"\r\n\n\r\r\n")) == closed_by([data + b"\n\r"]) == "closed"
        assert closed_by([data + rest]) == "POST_TERMINAL_DATA"
        assert closed_by(bytewise(data + rest)) == "POST_TERMINAL_DATA"


pieces = st.sampled_from(
    [b"data", b": ", b":", b"\r", b"\n", b"event", b"id", BOM, b"x", b"\xc3\xa9", b"\xc3", b"\x00", b"y" * 30]
)


@given(st.lists(pieces, max_size=40).map(b"".join) | st.binary(max_size=60), st.data())
def test_where_bytes_are_cut_never_matters(data: bytes, draw: st.DataObject) -> None:
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(data)), max_size=8)))
    parts = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    assert outcome(parts, 50) == outcome(bytewise(data), 50) == outcome([data], 50)
