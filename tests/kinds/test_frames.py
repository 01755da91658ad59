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


@pytest.mark.parametrize("length", [FRAME_LIMIT + 1, 2**31, 2**32 - 1])
def test_a_length_that_is_too_great_is_refused_before_anything_is_read(length: int) -> None:
    outcome = heard(length.to_bytes(HEADER, "big") + b"x")
    assert isinstance(outcome, PackhostError)
    assert outcome.code == "OUTPUT_TOO_LARGE"
