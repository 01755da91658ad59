"""Whatever bytes a process sends, the host answers with a value or with one of its own errors."""

from __future__ import annotations

import contextlib
import socket
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packhost.errors import CODES, PackhostError
from packhost.kinds.conversation import Conversation
from packhost.kinds.frames import FRAME_LIMIT, HEADER, decode, encode, error_frame, error_from
from packhost.kinds.uses import BrokenFrame

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
FRAMES = st.fixed_dictionaries(
    {
        "op": st.sampled_from(
            ["files", "call", "secret", "fetch", "progress", "error", "raised", "result", "x"]
        )
    },
    optional={
        "method": st.sampled_from(["read", "stat", "write", "walk", "move", "__class__"]) | JSON,
        "arguments": st.dictionaries(st.sampled_from(["path", "offset", "limit", "data", "glob"]), JSON)
        | JSON,
        **dict.fromkeys(("tool", "name", "url", "headers", "body", "progress", "message", "code"), JSON),
    },
)


@given(st.binary(max_size=200))
def test_a_body_is_an_object_or_an_error(body: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert isinstance(decode(body), dict)


@given(st.dictionaries(st.text(), JSON))
def test_what_is_encoded_is_decoded(frame: dict[str, Any]) -> None:
    data = encode(frame)
    assert int.from_bytes(data[:HEADER], "big") == len(data) - HEADER
    assert decode(data[HEADER:]) == frame


@given(st.dictionaries(st.sampled_from(["code", "message", "hint"]), JSON))
def test_an_error_of_any_form_has_one_of_our_codes(frame: dict[str, Any]) -> None:
    error = error_from(frame)
    assert error.code in CODES
    assert error_frame(error)["code"] == error.code


def heard(data: bytes) -> object:
    """What comes of a conversation in which the process sends `data` and goes."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)

    def unused(*_: Any, **__: Any) -> Any:
        raise PackhostError("nothing is there", code="NOT_FOUND")

    async def refuse(*_: Any, **__: Any) -> Any:
        unused()

    files = SimpleNamespace(
        **dict.fromkeys(("read", "stat", "list", "walk", "write", "move", "delete"), unused)
    )
    context: Any = SimpleNamespace(
        files=files, call_tool=refuse, secret=unused, fetch=refuse, report_progress=refuse
    )
    tool: Any = SimpleNamespace(id="pack:tool")

    async def listen() -> object:
        with anyio.fail_after(10):
            try:
                return await Conversation(tool, context, ours).serve()
            except (PackhostError, BrokenFrame, EOFError, ConnectionError) as error:
                return error

    with ours, theirs:
        theirs.sendall(data)
        theirs.shutdown(socket.SHUT_WR)
        return anyio.run(listen)


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_end_a_conversation_in_order(data: bytes) -> None:
    heard(data)


@settings(max_examples=150, deadline=None)
@given(st.lists(FRAMES, max_size=4))
def test_any_frames_end_a_conversation_in_order(frames: list[dict[str, Any]]) -> None:
    heard(b"".join(map(encode, frames)))


def test_whoever_tells_of_progress_without_end_leaves_others_their_turn() -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    turns = told = 0

    async def report_progress(*_: Any) -> None:
        nonlocal told
        told += 1

    async def listen() -> None:
        context: Any = SimpleNamespace(report_progress=report_progress)
        tool: Any = SimpleNamespace(id="pack:tool")
        async with anyio.create_task_group() as group:
            group.start_soon(others)
            with anyio.fail_after(10):
                assert await Conversation(tool, context, ours).serve() == "done"
            group.cancel_scope.cancel()

    async def others() -> None:
        nonlocal turns
        while True:
            await anyio.lowlevel.checkpoint()
            turns += 1

    with ours, theirs:
        theirs.sendall(100 * encode({"op": "progress", "progress": 1, "total": None, "message": None}))
        theirs.sendall(encode({"op": "result", "value": "done"}))
        anyio.run(listen)
    assert told == 100
    assert turns >= 90


def test_refusals_without_end_are_not_kept_and_the_last_may_still_be_spoken_of() -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)

    async def call_tool(tool: str, _: Any) -> None:
        raise PackhostError(f"`{tool}` is not there", code="TOOL_NOT_FOUND", refusal={"tool": tool})

    async def listen() -> tuple[int, PackhostError]:
        talk = Conversation(SimpleNamespace(id="pack:tool"), SimpleNamespace(call_tool=call_tool), ours)  # type: ignore[arg-type]
        with anyio.fail_after(10), pytest.raises(PackhostError) as caught:
            await talk.serve()
        return len(talk._told), caught.value

    with ours, theirs:
        for number in range(200):
            theirs.sendall(encode({"op": "call", "tool": f"t{number}", "arguments": {}}))
        theirs.sendall(encode({"op": "error", "code": "TOOL_NOT_FOUND", "message": "`t199` is not there"}))
        kept, error = anyio.run(listen)
    assert kept < 200
    assert error.data["refusal"] == {"tool": "t199"}


@pytest.mark.parametrize("number", ["1e999", "-1e999", f"1{'0' * 400}"])
@pytest.mark.parametrize("member", ["progress", "total"])
def test_progress_that_no_client_could_be_told_breaks_the_protocol(member: str, number: str) -> None:
    frame = {"op": "progress", "progress": 1, "total": 2, "message": None} | {member: "number"}
    body = encode(frame)[HEADER:].replace(b'"number"', number.encode())
    assert isinstance(heard(len(body).to_bytes(HEADER, "big") + body), BrokenFrame)


@pytest.mark.parametrize("length", [FRAME_LIMIT + 1, 2**31, 2**32 - 1])
def test_a_length_that_is_too_great_is_refused_before_anything_is_read(length: int) -> None:
    outcome = heard(length.to_bytes(HEADER, "big") + b"x")
    assert isinstance(outcome, PackhostError)
    assert outcome.code == "OUTPUT_TOO_LARGE"
