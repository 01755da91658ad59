"""A run whose provider streams over a real connection, under every order of bytes, ends and aborts.

Whatever happens, the run ends once and by the right word, and nothing is called that a whole stream
did not ask for.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from packhost.errors import PackhostError
from packhost.kinds.context import CallContext
from packhost.store.ops import executions, sessions
from packhost.store.sqlite import SqliteStore

PROTOCOLS = ("messages_compatible", "openai_compatible")
WHOLE_SAID = ("done",)
ENDS = {"run.completed", "run.failed", "run.aborted"}
FAULTS = st.sampled_from(["none", "none", "none", "drop", "twice", "not utf-8"])


def frames_of(protocol: str, said: Sequence[str], calls: int) -> list[bytes]:
    """A whole stream that says some pieces of text and asks for `lab:note` some times."""
    named = [(f"c{number}", json.dumps({"n": number})) for number in range(calls)]
    datas = _messages(said, named) if protocol == "messages_compatible" else _chat(said, named)
    return [
        f"data: {data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)}\n\n".encode()
        for data in datas
    ]


def _chat(said: Sequence[str], named: Sequence[tuple[str, str]]) -> list[Any]:
    deltas: list[Any] = [{"content": piece} for piece in said]
    for index, (identity, arguments) in enumerate(named):
        function = {"name": "lab_note", "arguments": arguments[:3]}
        deltas.append({"tool_calls": [{"index": index, "id": identity, "function": function}]})
        deltas.append({"tool_calls": [{"index": index, "function": {"arguments": arguments[3:]}}]})
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": "tool_calls" if named else "stop"})
    return [*({"choices": [choice]} for choice in choices), "[DONE]"]


def _messages(said: Sequence[str], named: Sequence[tuple[str, str]]) -> list[Any]:
    blocks: list[Any] = [({"type": "text", "text": ""}, [{"type": "text_delta", "text": t} for t in said])]
    for identity, arguments in named:
        start = {"type": "tool_use", "id": identity, "name": "lab_note", "input": {}}
        pieces = (arguments[:3], arguments[3:])
        blocks.append((start, [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]))
    events: list[Any] = [{"type": "message_start", "message": {"role": "assistant", "content": []}}]
    for index, (start, deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    events.append({"type": "message_delta", "delta": {"stop_reason": "tool_use" if named else "end_turn"}})
    return [*events, {"type": "message_stop"}]


class Server:
    """A provider on loopback: the test writes the body of its first reply, the next ones are whole."""

    def __init__(self, protocol: str) -> None:
        self.asked = asyncio.Event()
        self.requests = 0
        self._protocol = protocol
        self._writers: list[asyncio.StreamWriter] = []

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        return f"http://{host}:{port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        (length,) = [
            line.partition(b":")[2]
            for line in head.splitlines()
            if line.lower().startswith(b"content-length")
        ]
        await reader.readexactly(int(length))
        self.requests += 1
        self._writers.append(writer)
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        if self.requests > 1:
            self.write(b"".join(frames_of(self._protocol, WHOLE_SAID, 0)))
            self.end()
        self.asked.set()

    def write(self, data: bytes) -> None:
        self._writers[-1].write(b"%x\r\n%s\r\n" % (len(data), data))

    def end(self) -> None:
        self._writers[-1].write(b"0\r\n\r\n")

    def break_off(self) -> None:
        self._writers[-1].transport.abort()

    async def close(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._server.close()
        await self._server.wait_closed()


class Life:
    """A host, its provider and one run that a client waits for."""

    def __init__(self, building: Any, folder: Path, protocol: str) -> None:
        self._folder = folder
        self._building = building
        self.server = Server(protocol)
        self._protocol = protocol
        self.ran: list[str] = []
        self.told: list[str] = []
        self.stop = asyncio.Event()

    async def open(self) -> None:
        root = self._folder / "work"
        (root / ".agent-runtime").mkdir(parents=True)
        self._descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
        self.store = SqliteStore(self._folder / "store.db", "w")
        base = await self.server.start()
        ready = asyncio.Event()

        async def live() -> None:
            async with self._building(self.store, root, self._descriptor).host("host_a") as lab:
                lab.tool("note", self._note)
                profile = {"provider": self._protocol, "model": "m", "base_url": base, "drain": "20ms"}
                lab.section.update(default_model="main", models={"main": profile})
                self.lab = lab
                ready.set()
                await self.stop.wait()

        self.host = asyncio.create_task(live())
        await ready.wait()
        self.call = asyncio.create_task(self.lab.turn(loop=True, stream=True, progress=self._tell))
        await asyncio.wait_for(self.server.asked.wait(), 20)
        (self.run_id,) = self.lab.run_ids()

    async def _note(self, context: CallContext, arguments: dict[str, Any]) -> Any:
        self.ran.append(f"c{arguments['n']}")
        return {}

    async def _tell(self, progress: float, total: float | None, message: str | None) -> None:
        self.told.append(str(message))

    @property
    def ended(self) -> bool:
        return bool(self.store.read(executions.get, self.run_id).ended)

    async def abort(self) -> bool:
        """Whether the abort came in time."""
        with suppress(PackhostError):
            abort = self.lab.runs.abort_by_person(self.run_id, by="ann")
            return bool((await asyncio.wait_for(abort, 20)).status == "aborted")
        return False

    async def lose(self) -> None:
        self.call.cancel()
        await asyncio.wait([self.call], timeout=5)

    async def to_end(self) -> Any:
        await asyncio.wait_for(asyncio.wait([self.call]), 20)
        await self.store.flush()
        return self.store.read(executions.get, self.run_id)

    async def close(self) -> None:
        self.stop.set()
        await self.host
        await self.server.close()
        await self.store.close()
        os.close(self._descriptor)


class Machine(RuleBasedStateMachine):
    """One run; `building_type` and `protocol` are set by the test."""

    building_type: Any
    protocol: str

    @initialize(
        said=st.lists(st.sampled_from(["a", "é", "\N{GRINNING FACE}b"]), max_size=3),
        calls=st.integers(0, 2),
        fault=FAULTS,
        at=st.integers(0, 20),
    )
    def begin(self, said: list[str], calls: int, fault: str, at: int) -> None:
        self.said, self.calls = said, [f"c{number}" for number in range(calls)]
        frames = frames_of(self.protocol, said, calls)
        self.whole = b"".join(frames)
        place = at % len(frames)
        if fault == "drop":
            del frames[place]
        elif fault == "twice":
            frames.insert(place, frames[place])
        elif fault == "not utf-8":
            frames[place] = frames[place].replace(b"data: ", b"data: \xff")
        self.left, self.sent = b"".join(frames), b""
        self.ended, self.how = False, ""
        self.tried: set[str] = set()
        self.folder = tempfile.TemporaryDirectory()
        self.runner = asyncio.Runner()
        life = Life(self.building_type, Path(self.folder.name), self.protocol)
        self.runner.run(life.open())
        self.life = life

    def writes(self, data: bytes) -> None:
        self.sent += data
        self.life.server.write(data)
        self.runner.run(asyncio.sleep(0.002))

    @precondition(lambda self: not self.ended and self.left)
    @rule(size=st.integers(1, 400))
    def feed(self, size: int) -> None:
        piece, self.left = self.left[:size], self.left[size:]
        self.writes(piece)

    @precondition(lambda self: not self.ended and not self.left)
    @rule(data=st.sampled_from([b"\n\n", b": late\n\n", b"data: {}\n\n"]))
    def go_on_after_the_end(self, data: bytes) -> None:
        self.writes(data)

    @precondition(lambda self: not self.ended)
    @rule(how=st.sampled_from(["end", "break_off"]))
    def stop(self, how: str) -> None:
        self.ended = True
        getattr(self.life.server, how)()
        self.runner.run(asyncio.sleep(0.002))

    @rule()
    def let_the_drain_pass(self) -> None:
        self.runner.run(asyncio.sleep(0.03))

    @precondition(lambda self: not self.how)
    @rule()
    def abort(self) -> None:
        if not self.life.ended:
            self.tried.add("cancelled")
            if self.runner.run(self.life.abort()):
                self.how = "cancelled"

    @precondition(lambda self: not self.how)
    @rule()
    def lose_the_reader(self) -> None:
        if not self.life.ended:
            self.tried.add("client_disconnect")
            self.runner.run(self.life.lose())
            if self.life.store.read(executions.get, self.life.run_id).status == "aborted":
                self.how = "client_disconnect"

    def teardown(self) -> None:
        if not hasattr(self, "life"):
            return
        try:
            if not self.ended:
                self.stop("end")
            self.judge(self.runner.run(self.life.to_end()))
        finally:
            self.runner.run(self.life.close())
            self.runner.close()
            self.folder.cleanup()

    def judge(self, row: Any) -> None:
        life = self.life
        told_of = self.runner.run(life.lab.events(life.run_id))
        assert len([one for one in told_of if one in ENDS]) == 1
        assert row.ended
        if self.how:
            assert (row.status, row.outcome) == ("aborted", self.how)
        elif row.status == "aborted":  # it took longer than whoever ended it waited
            assert row.outcome in self.tried
        assert life.ran == self.calls[: len(life.ran)]
        if self.sent == self.whole:
            assert row.status == "aborted" or row.outcome == "completed"
        if not any(marker in self.sent for marker in (b"[DONE]", b"message_stop")):
            assert row.outcome != "completed"
            assert (life.ran, life.server.requests) == ([], 1)
        self.judge_history(row)
        texts = {"a", "é", "\N{GRINNING FACE}b", *WHOLE_SAID}
        assert all(one in texts or one.startswith(("turn ", "lab:", "lab_")) for one in life.told), life.told

    def judge_history(self, row: Any) -> None:
        history = [kept.message for kept in self.life.store.read(sessions.history, row.session_id)]
        for asked, answer in zip(history, [*history, {"content": []}][1:], strict=True):
            ids = [block["id"] for block in asked["content"] if block["type"] == "tool_call"]
            assert not ids or [block.get("tool_use_id") for block in answer["content"]] == ids


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_whatever_happens_to_a_stream_its_run_ends_once_and_by_the_right_word(
    protocol: str, building_type: Any
) -> None:
    run_state_machine_as_test(
        type("Machine", (Machine,), {"building_type": building_type, "protocol": protocol}),
        settings=settings(
            max_examples=30,
            stateful_step_count=10,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
