"""Lines over descriptors, whatever the pieces in which they arrive."""

from __future__ import annotations

import os
import threading

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packhost.transports.pipe import OVERLONG, LineSink, LineSource

pytestmark = pytest.mark.anyio


async def everything(source: LineSource) -> list[object]:
    lines = []
    with anyio.fail_after(5):
        while (line := await source.next()) is not None:
            lines.append(line)
    return lines


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([b"a\nb\n"], [b"a", b"b"]),
        ([b"a", b"b\n", b"c"], [b"ab", b"c"]),
        ([b"\n\n\r\na\n"], [b"a"]),
        ([b"x" * 9, b"\n", b"ok\n"], [OVERLONG, b"ok"]),
        ([b"x" * 20, b"y" * 20, b"\nok\n"], [OVERLONG, b"ok"]),
        ([b"x" * 20], [OVERLONG]),
        ([b"12345678\n"], [b"12345678"]),
        ([], []),
    ],
)
async def test_lines_come_whole_and_bounded(pipe, pieces, expected) -> None:
    source = LineSource(pipe[0], max_line=8)
    for piece in pieces:
        os.write(pipe[1], piece)
        await anyio.lowlevel.checkpoint()
    os.close(pipe[1])
    assert await everything(source) == expected


@settings(deadline=None)
@given(
    st.lists(st.binary(min_size=1, max_size=20).map(lambda b: b.replace(b"\n", b"n").replace(b"\r", b"r")))
)
def test_any_cut_of_the_stream_gives_the_same_lines(lines: list[bytes]) -> None:
    async def cut() -> None:
        reading, writing = os.pipe()
        source = LineSource(reading)
        stream = b"".join(line + b"\n" for line in lines)
        for at in range(0, len(stream), 3):
            source._feed(stream[at : at + 3])
        os.close(writing)
        assert await everything(source) == lines
        os.close(reading)

    anyio.run(cut)


async def test_a_slow_reader_makes_the_sender_wait_and_loses_nothing(pipe) -> None:
    sink = LineSink(pipe[1])
    lines = [bytes([65 + n % 26]) * 300_000 for n in range(40)]
    sent = 0
    received: list[object] = []

    async def send() -> None:
        nonlocal sent
        for line in lines:
            await sink.send(line)
            sent += 1
        await sink.flush()
        os.close(pipe[1])

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(send)
        await anyio.wait_all_tasks_blocked()
        assert 0 < sent < 10
        source = LineSource(pipe[0])
        received = await everything(source)
    assert received == lines


async def test_a_reader_that_is_gone_is_told_to_the_sender(pipe) -> None:
    sink = LineSink(pipe[1])
    os.close(pipe[0])
    with pytest.raises(anyio.BrokenResourceError):
        await sink.send(b"x")
    sink.close()
    with pytest.raises(anyio.ClosedResourceError):
        await sink.send(b"x")


async def test_a_descriptor_is_given_back_as_blocking_as_it_was(pipe) -> None:
    sink = LineSink(pipe[1])
    assert not os.get_blocking(pipe[1])
    sink.close()
    assert os.get_blocking(pipe[1])


async def test_a_flood_that_nobody_reads_is_left_in_the_pipe(pipe) -> None:
    source = LineSource(pipe[0])
    stream = b"".join(b"x" * 1_000_000 + b"\n" for _ in range(100))
    writer = threading.Thread(target=lambda: (os.write(pipe[1], stream), os.close(pipe[1])), daemon=True)
    writer.start()
    with anyio.fail_after(10):
        while source._polled:
            await anyio.lowlevel.checkpoint()
    assert source._waiting < 80_000_000
    assert len(await everything(source)) == 100
    writer.join()
