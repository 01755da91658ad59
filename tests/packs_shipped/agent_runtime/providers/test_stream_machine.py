"""A streamed turn under every order of chunks, ends, cuts, aborts, lost readers and passing time.

Time stands still but where a rule moves it, so that deadlines are met to the instant. What a turn
comes to is held against the story that the stream tells, and against one fresh reader that is given
the same bytes in one piece.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from packhost.errors import ToolFailed
from packhost_packs.agent_runtime.faults import ReaderLost, TurnFault
from packhost_packs.agent_runtime.providers.base import Reply, Snapshot, TurnRequest
from packhost_packs.agent_runtime.providers.http import HttpProvider
from packhost_packs.agent_runtime.providers.protocols import ChatProtocol, MessagesProtocol
from packhost_packs.agent_runtime.stream.limits import SafetyLimits

PROTOCOLS = {"chat": ChatProtocol, "messages": MessagesProtocol}
DRAIN, TIMEOUT = 2.0, 60.0
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
PIECES = st.lists(TEXT, max_size=3)
CALLS = st.lists(st.sampled_from(["get_weather", "list_all"]), max_size=4)
STOPS = st.sampled_from(["whole", "whole", "cut", "refused"])
FAULTS = ["drop", "twice", "swap", "hole", "not utf-8", "error"]
LIMITS: list[dict[str, int]] = [
    {"stream_bytes": 200},
    {"event_bytes": 90},
    {"events": 3},
    {"snapshots": 2},
    {"content_blocks": 1},
    {"tool_calls": 1},
    {"argument_bytes": 12},
]
TROUBLES = ["stop", "stray", "abort", "reader", "slow", "any"]
CASES = st.one_of(  # mostly one thing goes wrong, so that what it comes to is known
    st.tuples(st.just("none"), st.just({}), st.sampled_from(["none", *TROUBLES])),
    st.tuples(st.just("none"), st.sampled_from(LIMITS), st.just("none")),
    st.tuples(st.sampled_from(FAULTS), st.just({}), st.just("none")),
    st.tuples(st.sampled_from(FAULTS), st.sampled_from(LIMITS), st.sampled_from(TROUBLES)),
)
STRAY = st.sampled_from([b"\n", b"\r\n\n", b": x\n\n", b"data: {}\n\n", b"data: [DONE]\n\n", b"\xff", b"x"])
WORDS = {
    "chat": {"tools": "tool_calls", "whole": "stop", "cut": "length", "refused": "content_filter"},
    "messages": {"tools": "tool_use", "whole": "end_turn", "cut": "max_tokens", "refused": "refusal"},
}
VERDICTS = {"whole": "final", "tools": "tools", "cut": "incomplete", "refused": "refused"}


def may(trouble: str) -> Any:
    """Whether a rule may be taken: where everything may go wrong at once, turns end before they are read."""
    return precondition(lambda self: self.trouble in (trouble, "any"))


class StandingClock(asyncio.SelectorEventLoop):
    """A loop whose time only a test moves; it must always have something to do."""

    now = 0.0

    def time(self) -> float:
        return self.now


class Wire:
    """A connection whose body is written while it is read."""

    status = 200
    headers: Mapping[str, str] = {}

    def __init__(self) -> None:
        self.pieces: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
        self.taken = bytearray()
        self.reads = 0
        self.over = False
        self.closed = 0

    @asynccontextmanager
    async def post(self, path: str, body: bytes, headers: Mapping[str, str]) -> AsyncIterator[Wire]:
        try:
            yield self
        finally:
            self.closed += 1

    async def chunks(self) -> AsyncIterator[bytes]:
        while True:
            piece = await self.pieces.get()
            self.reads += 1
            if isinstance(piece, bytes):
                self.taken += piece
                yield piece
            else:
                self.over = True
                if piece is None:
                    return
                raise piece


class Reader:
    """Whoever watches the reply; it may hang, and it may be gone."""

    def __init__(self) -> None:
        self.shown: list[Snapshot] = []
        self.gone = False
        self.lost = 0
        self.free = asyncio.Event()
        self.free.set()

    async def __call__(self, snapshot: Snapshot) -> None:
        if self.gone:
            self.lost += 1
            raise ReaderLost
        self.shown.append(snapshot)
        await self.free.wait()


class Story:
    """What a provider means to say: the frames that say it, and what must be read out of them."""

    def __init__(self, streams: Any, protocol: str, said: Mapping[str, Any]) -> None:
        self.text = "".join(said["text"])
        self.calls = [
            {"id": f"c{number}", "name": name, "input": {"city": "é" * number}}
            for number, name in enumerate(said["calls"])
        ]
        tools = self.calls and said["stop"] == "whole"
        self.verdict = VERDICTS["tools" if tools else said["stop"]]
        self.pieces: list[tuple[str, str]] = []
        stop = WORDS[protocol]["tools" if tools else said["stop"]]
        tell = self._chat if protocol == "chat" else self._messages
        self.frames: list[bytes] = tell(streams, said, stop)

    @staticmethod
    def _arguments(call: Mapping[str, Any]) -> list[str]:
        text = json.dumps(call["input"], ensure_ascii=False)
        return [text[:5], text[5:]]

    def _chat(self, streams: Any, said: Mapping[str, Any], stop: str) -> list[bytes]:
        deltas: list[Any] = []
        for kind, member in (("thinking", "reasoning"), ("text", "content")):
            deltas += [{member: piece} for piece in said[kind]]
            self.pieces += [(kind, piece) for piece in said[kind]]
        for index, call in enumerate(self.calls):
            first, *rest = self._arguments(call)
            deltas.append(streams.call(index, first, id=call["id"], name=call["name"]))
            deltas += [streams.call(index, piece) for piece in rest]
            self.pieces += [("call", piece) for piece in [first, *rest]]
        chunks = [streams.chunk(delta) for delta in deltas]
        return [*chunks, streams.chunk({}, stop), streams.frame("[DONE]")]

    def _messages(self, streams: Any, said: Mapping[str, Any], stop: str) -> list[bytes]:
        blocks: list[Any] = []
        if said["thinking"]:
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in said["thinking"]]
            signature = {"type": "signature_delta", "signature": "s"}
            blocks.append(({"type": "thinking", "thinking": "", "signature": ""}, *deltas, signature))
        if said["text"]:
            deltas = [{"type": "text_delta", "text": piece} for piece in said["text"]]
            blocks.append(({"type": "text", "text": ""}, *deltas))
        self.pieces = [(kind, piece) for kind in ("thinking", "text") for piece in said[kind]]
        for call in self.calls:
            pieces = self._arguments(call)
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
            start = {"type": "tool_use", "id": call["id"], "name": call["name"], "input": {}}
            blocks.append((start, *deltas))
            self.pieces += [("call", piece) for piece in pieces]
        frames = [streams.start()]
        for index, block in enumerate(blocks):
            frames += streams.block(index, *block)
        end = streams.event("message_delta", delta={"stop_reason": stop})
        return [*frames, end, streams.event("message_stop")]

    def broken(self, fault: str, at: int, streams: Any) -> list[bytes]:
        """The frames with one thing wrong; a dropped piece of text is wrong too, though nobody can see it."""
        frames = list(self.frames)
        place = at % len(frames)
        if fault == "drop":
            del frames[place]
        elif fault == "twice":
            frames.insert(place, frames[place])
        elif fault == "swap":
            frames[place - 1], frames[place] = frames[place], frames[place - 1]
        elif fault == "hole":
            frame = frames[place]
            frames[place] = frame[: len(frame) // 2] + frame[len(frame) // 2 + 3 :]
        elif fault == "not utf-8":
            frames[place] = frames[place].replace(b"data: ", b"data: \xff", 1)
        elif fault == "error":
            frames.insert(place, streams.frame({"type": "error", "error": {"message": "no"}}, "error"))
        return frames


class Turn(RuleBasedStateMachine):
    """One turn; `streams` and `protocol` are set by the test."""

    streams: Any
    protocol: str

    @initialize(
        said=st.fixed_dictionaries({"thinking": PIECES, "text": PIECES, "calls": CALLS, "stop": STOPS}),
        case=CASES,
        at=st.integers(0, 40),
    )
    def begin(self, said: Mapping[str, Any], case: tuple[str, dict[str, int], str], at: int) -> None:
        fault, tight, self.trouble = case
        self.runner = asyncio.Runner(loop_factory=StandingClock)
        self.clock: Any = self.runner.get_loop()
        self.story = Story(self.streams, self.protocol, said)
        self.sound = fault == "none"
        self.left = b"".join(self.story.broken(fault, at, self.streams))
        self.limits = SafetyLimits(**tight)
        self.tight = bool(tight)
        self.wire, self.reader = Wire(), Reader()
        self.request = TurnRequest("m", None, [{"role": "user", "content": []}], self.streams.tools, 9)
        self.aborted = False
        self.ended = self.cut = False
        self.terminal_at: float | None = None
        self.outcome: Any = None
        self.frozen: tuple[int, int] | None = None
        provider = HttpProvider(self.wire, PROTOCOLS[self.protocol](), TIMEOUT, DRAIN, limits=self.limits)

        async def start() -> asyncio.Task[Reply]:
            return asyncio.create_task(provider.turn(self.request, emit=self.reader))

        self.task = self.runner.run(start())
        self.settle()

    def settle(self) -> None:
        """Let everything happen that can happen at this instant."""

        async def turn_over() -> None:
            for _ in range(40):
                await asyncio.sleep(0)

        self.runner.run(turn_over())
        if self.terminal_at is None and self.complete(bytes(self.wire.taken)):
            self.terminal_at = self.clock.now

    def complete(self, data: bytes) -> bool:
        """Whether a fresh reader finds the terminal marker in these bytes."""
        machine = PROTOCOLS[self.protocol]().machine(self.request, self.limits)
        try:
            machine.feed(data)
        except TurnFault:
            return False
        return machine.terminal

    @precondition(lambda self: not self.ended and self.left)
    @rule(size=st.one_of(st.integers(1, 9), st.integers(10, 400)))
    def feed(self, size: int) -> None:
        piece, self.left = self.left[:size], self.left[size:]
        self.wire.pieces.put_nowait(piece)
        self.settle()

    @precondition(lambda self: not self.ended)
    @rule()
    def feed_all(self) -> None:
        if self.left:
            self.feed(len(self.left))

    @may("stray")
    @precondition(lambda self: not self.ended)
    @rule(data=STRAY)
    def stray(self, data: bytes) -> None:
        self.sound = self.sound and self.terminal_at is not None and not data.strip(b"\r\n")
        self.wire.pieces.put_nowait(data)
        self.settle()

    @precondition(lambda self: not self.ended and (not self.left or self.trouble in ("stop", "any")))
    @rule()
    def end(self) -> None:
        self.ended = True
        self.wire.pieces.put_nowait(None)
        self.settle()

    @may("stop")
    @precondition(lambda self: not self.ended)
    @rule()
    def break_off(self) -> None:
        self.ended = self.cut = True
        self.wire.pieces.put_nowait(ToolFailed("the provider's reply broke off"))
        self.settle()

    @may("abort")
    @rule()
    def abort(self) -> None:
        self.aborted = self.aborted or not self.task.done()
        self.task.cancel()
        self.settle()

    @may("reader")
    @rule()
    def lose_reader(self) -> None:
        self.reader.gone = True

    @may("reader")
    @rule()
    def hang_reader(self) -> None:
        self.reader.free.clear()

    @may("reader")
    @rule()
    def free_reader(self) -> None:
        self.reader.free.set()
        self.settle()

    @rule(seconds=st.sampled_from([0.4 * DRAIN, DRAIN]))
    def wait(self, seconds: float) -> None:
        self.clock.now += seconds
        self.settle()

    @may("slow")
    @rule()
    def wait_for_long(self) -> None:
        self.wait(TIMEOUT)

    @invariant()
    def nothing_comes_after_the_outcome(self) -> None:
        if not hasattr(self, "task") or not self.task.done():
            return
        seen = (len(self.reader.shown), self.wire.reads)
        if self.frozen is None:
            self.frozen = seen
            self.judge()
        assert self.frozen == seen
        assert self.wire.closed == 1

    @invariant()
    def what_must_end_has_ended(self) -> None:
        if not hasattr(self, "task") or self.task.done():
            return
        now = self.clock.now
        assert not self.aborted
        assert now < TIMEOUT
        assert self.terminal_at is None or now < self.terminal_at + DRAIN
        assert not self.wire.over
        assert not self.reader.lost

    @invariant()
    def a_snapshot_is_one_delta_and_never_more(self) -> None:
        if hasattr(self, "task"):
            shown = [(one.kind, one.delta) for one in self.reader.shown]
            longest = max((len(delta) for _, delta in self.story.pieces), default=0)
            assert all(len(delta) <= longest for _, delta in shown)
            if self.sound:
                assert shown == self.story.pieces[: len(shown)]

    def judge(self) -> None:
        """Hold the outcome against what happened before it."""
        if self.task.cancelled():
            assert self.aborted
            event("cancelled")
            return
        assert not self.aborted
        fault = self.task.exception()
        if fault is None:
            self.judge_reply(self.task.result())
        else:
            assert isinstance(fault, TurnFault), fault
            self.judge_fault(fault)
            event(fault.issue)

    def judge_reply(self, reply: Reply) -> None:
        event(f"reply: {reply.verdict}")
        assert self.terminal_at is not None
        assert self.wire.over or self.clock.now >= self.terminal_at + DRAIN
        assert not self.reader.lost
        assert reply == self.read_in_one_piece(self.limits)
        taken, whole = bytes(self.wire.taken), b"".join(self.story.frames)
        if taken.startswith(whole):
            assert not taken.removeprefix(whole).strip(b"\r\n")
        if self.sound:
            assert reply.verdict == self.story.verdict
            assert reply.text == self.story.text
            assert list(reply.requested) == (self.story.calls if reply.verdict == "tools" else [])
            self.count_again()
        elif reply.verdict != "tools":
            assert reply.requested == ()

    def count_again(self) -> None:
        """Hold a sound reply against its limits, by the story and not by what the reader counted."""
        story, limits = self.story, self.limits
        arguments = sum(len(delta.encode()) for kind, delta in story.pieces if kind == "call")
        assert sum(map(len, story.frames)) <= limits.stream_bytes
        assert max(map(len, story.frames)) <= limits.event_bytes + len(b"event: content_block_delta\n\n\n")
        assert len(story.frames) <= limits.events
        assert len(story.pieces) <= limits.snapshots
        assert len(story.calls) <= min(limits.tool_calls, limits.content_blocks)
        assert arguments <= limits.argument_bytes

    def judge_fault(self, fault: TurnFault) -> None:
        assert self.reader.lost == (1 if fault.issue == "CLIENT_DISCONNECT" else 0)
        assert (fault.outcome == "client_disconnect") == (fault.issue == "CLIENT_DISCONNECT")
        if fault.issue == "CLIENT_DISCONNECT":
            return
        if fault.issue == "TERMINAL_MISSING":
            assert self.terminal_at is None
            assert self.wire.over or self.clock.now >= TIMEOUT
            assert fault.outcome == ("provider_error" if self.cut or not self.wire.over else "protocol_error")
            return
        assert self.read_in_one_piece(self.limits) == fault.issue
        if fault.outcome == "limit_exceeded":
            assert self.tight
            assert fault.issue != self.read_in_one_piece(SafetyLimits())
        else:
            assert not self.sound

    def read_in_one_piece(self, limits: SafetyLimits) -> Reply | str:
        """What a fresh reader makes of the same bytes: a reply, or the issue of its fault."""
        machine = PROTOCOLS[self.protocol]().machine(self.request, limits)
        try:
            machine.feed(bytes(self.wire.taken))
            return machine.finish()
        except TurnFault as fault:
            return fault.issue

    def teardown(self) -> None:
        if not hasattr(self, "runner"):
            return
        try:
            if not self.ended and self.trouble not in ("stop", "any"):
                self.feed_all()
                self.end()
            self.clock.now += TIMEOUT
            self.settle()
            assert self.task.done()
            self.nothing_comes_after_the_outcome()
        finally:
            self.runner.close()


@pytest.mark.slow
@pytest.mark.parametrize("protocol", sorted(PROTOCOLS))
def test_whatever_happens_to_a_stream_its_turn_has_one_outcome_and_none_is_made_up(
    protocol: str, streams: Any
) -> None:
    machine = type("Turn", (Turn,), {"streams": streams, "protocol": protocol})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=200,
            stateful_step_count=20,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
