"""Messages from JSON, read as the SDK reads them."""

from __future__ import annotations

import json

import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp import types

from packhost.transports.lines import as_message, message_line

IDS = st.none() | st.integers() | st.text(max_size=3) | st.booleans() | st.just([])
MESSAGES = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.sampled_from(["2.0", "1.0"]),
        "id": IDS,
        "method": st.sampled_from(["ping", 3]),
        "params": st.sampled_from([{}, {"a": 1}, [], None]),
        "result": st.sampled_from([{}, {"a": 1}, 3]),
        "error": st.sampled_from([{"code": 1, "message": "m"}, {"code": "x"}, {}]),
    },
)


@settings(deadline=None)
@given(MESSAGES)
def test_whatever_is_read_is_what_the_sdk_would_read(data: dict) -> None:
    message = as_message(data)
    if message is None:
        return
    expected = types.jsonrpc_message_adapter.validate_python(data, by_name=False)
    assert type(message) is type(expected)
    assert message.model_dump() == expected.model_dump()


@pytest.mark.parametrize(
    "message",
    [
        types.JSONRPCRequest(jsonrpc="2.0", id=1, method="ping"),
        types.JSONRPCNotification(jsonrpc="2.0", method="n", params={"a": None}),
        types.JSONRPCResponse(jsonrpc="2.0", id="x", result={"a": "ü\n"}),
        types.JSONRPCError(jsonrpc="2.0", id=None, error=types.ErrorData(code=1, message="m")),
    ],
)
def test_a_message_is_one_line_that_reads_back(message) -> None:
    line = message_line(message)
    assert b"\n" not in line
    assert types.jsonrpc_message_adapter.validate_json(line) == message


def test_a_lone_surrogate_is_escaped_rather_than_lost() -> None:
    message = types.JSONRPCResponse.model_construct(jsonrpc="2.0", id=1, result={"a": "\ud800"})
    assert json.loads(message_line(message))["result"]["a"] == "\ud800"


def test_a_request_without_a_method_is_no_message() -> None:
    assert as_message({"jsonrpc": "2.0", "id": 1}) is None
    with pytest.raises(pydantic.ValidationError):
        types.jsonrpc_message_adapter.validate_python({"jsonrpc": "2.0", "id": 1})
