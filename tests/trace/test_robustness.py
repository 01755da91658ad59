"""No JSON whatever breaks the validator; its time grows with the trace and no faster."""

from __future__ import annotations

import json
import time
import tracemalloc
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packhost.trace import Report, TraceUnreadable, check, check_text
from packhost.trace.findings import MAX_ISSUES

WORDS = st.sampled_from(
    [
        "messages", "chat_completions", "assistant", "user", "tool", "tool_use", "tool_result", "text",
        "thinking", "c1", "c2", "", "note", "end_turn", "tool_use", "tool_calls", "stop", "dispatch",
        "result", "request", "response", "resume", "pause", "outcome", "approval", "data: {", "data: [DONE]",
        '{"a": 1', "\udcff", "interrupt", "intent",
    ]
)  # fmt: skip
KEYS = st.sampled_from(
    [
        "protocol", "tools", "messages", "role", "content", "type", "id", "name", "input", "stop_reason",
        "finish_reason", "tool_calls", "function", "arguments", "tool_use_id", "tool_call_id",
        "is_error",
        "events", "stream", "budgets", "limits", "request", "headers", "requested_tools", "index", "usage",
        "input_schema", "parameters", "properties", "anyOf", "required", "caller", "supplied", "turn",
        "lines",
        "reasoning_details", "signature", "epoch", "at", "max_tokens", "system", "approval", "outcome",
    ]
)  # fmt: skip
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=25,
)
TRACES = st.fixed_dictionaries(
    {
        "protocol": st.sampled_from(["messages", "chat_completions"]),
        "messages": st.lists(
            st.dictionaries(KEYS, ANY, max_size=5).map(lambda m: {"role": "assistant", **m}), max_size=4
        ),
    },
    optional={
        "tools": st.lists(st.dictionaries(KEYS, ANY, max_size=4), max_size=3),
        "events": st.lists(
            st.dictionaries(KEYS, ANY, max_size=4).map(lambda e: {"type": "dispatch", **e}), max_size=4
        ),
        "stream": st.lists(WORDS, max_size=6),
        "budgets": st.dictionaries(KEYS, ANY, max_size=4),
        "request": ANY,
        "outcome": ANY,
    },
)


def looked_at(trace: Any) -> Report | None:
    """The report, or nothing when it is no trace; anything else is a bug."""
    with suppress(TraceUnreadable):
        return check(trace)
    return None


@given(ANY)
def test_any_json_is_checked_or_called_unreadable(value: Any) -> None:
    report = looked_at(value)
    assert report is None or report.as_json()


@given(TRACES)
def test_anything_in_the_frame_of_a_trace_is_checked(trace: Any) -> None:
    report = looked_at(trace)
    assert report is None or json.dumps(report.as_json())


@given(st.binary(max_size=60))
def test_any_bytes_are_a_trace_or_unreadable(data: bytes) -> None:
    with suppress(TraceUnreadable):
        assert check_text(data)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON"),
        ("[]", "an object"),
        ("{}", "`protocol`"),
        ('{"protocol": "messages"}', "`/messages` is no list"),
        ('{"protocol": "messages", "messages": [1]}', "`/messages/0` is no message"),
        ('{"protocol": "messages", "messages": [], "messages": []}', "the key `messages` twice"),
        ('{"protocol": "messages", "messages": [], "events": {}}', "`/events` is no list"),
        ('{"protocol": "messages", "messages": [], "stream": [1]}', "`/stream/0`"),
        ('{"protocol": "messages", "messages": [], "tools": 1}', "`/tools` is no list"),
        ('{"protocol": "messages", "messages": [], "budgets": 1}', "`/budgets` is no object"),
        ("[" * 100_000, "too deep"),
        ("9" * 10_000, "a number too long"),
        ('{"protocol": "messages", "messages": [], "x": ' + "[" * 300 + "]" * 300 + "}", "deeper than 200"),
    ],
)
def test_what_is_no_trace_says_why(text: str, said: str) -> None:
    with pytest.raises(TraceUnreadable) as caught:
        check_text(text.encode())
    assert said in str(caught.value)


def many(turns: int) -> Any:
    """A trace with a fault in every turn, events, and a stream."""
    messages: list[Any] = [{"role": "user", "content": "begin"}]
    events: list[Any] = []
    for turn in range(turns):
        use = {"type": "tool_use", "id": f"c{turn}", "name": "note", "input": {"text": [turn]}}
        thought = {"type": "thinking", "thinking": "…", "signature": "s"}
        text = {"type": "text", "text": '{"name": "note", "arguments": {}}'}
        messages.append({"role": "assistant", "content": [thought, text, use], "stop_reason": "tool_use"})
        messages.append({"role": "user", "content": [{"type": "text", "text": "no"}]})
        events += [{"type": "dispatch", "id": f"c{turn}"}, {"type": "result", "id": f"c{turn}"}]
    schema = {"type": "object", "properties": {"text": {"anyOf": [{"type": "string"}, {"type": "array"}]}}}
    stream = ["data: " + json.dumps({"type": "ping", "turn": turn}) for turn in range(turns)]
    tools = [{"name": "note", "input_schema": schema}]
    return {
        "protocol": "messages", "tools": tools, "messages": messages, "events": events, "stream": stream
    }  # fmt: skip


def seconds(trace: Any) -> float:
    best = 60.0
    for _ in range(3):
        began = time.process_time()
        check(trace)
        best = min(best, time.process_time() - began)
    return best


def test_time_grows_with_the_trace_and_no_faster() -> None:
    assert seconds(many(4_000)) < 4 * max(seconds(many(2_000)), 0.02)


def test_memory_stays_bounded_by_what_is_listed() -> None:
    trace = many(3_000)
    tracemalloc.start()
    try:
        report = check(trace)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(report.issues) == MAX_ISSUES
    assert report.as_json()["truncated"]
    assert peak < 20 * len(json.dumps(trace))


def test_a_schema_and_a_pattern_made_to_take_long_do_not() -> None:
    bomb: Any = {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}] * 10}}, "$ref": "#/$defs/a"}
    slow = {"type": "object", "properties": {"text": {"pattern": "(a+)+$"}}}
    for schema in (bomb, slow):
        trace = many(50)
        trace["tools"] = [{"name": "note", "input_schema": schema}]
        trace["messages"][1]["content"][2]["input"] = {"text": "a" * 4_000 + "!"}
        began = time.process_time()
        assert "SCHEMA_UNSUPPORTED_KEYWORD" in check(trace).codes
        assert time.process_time() - began < 20


def repeated(member: str) -> Any:
    """Traces in which one large value is met again and again by many small ones."""
    large = ["x" * 50] * 4_000
    use = {"type": "tool_use", "id": "c1", "name": "note", "input": {"text": large}}
    reply: Any = {"role": "assistant", "content": [use], "stop_reason": "tool_use"}
    trace: Any = {"protocol": "messages", "messages": [reply], "outcome": "tool_request"}
    trace["tools"] = [{"name": "note", "input_schema": {"properties": {"text": {"enum": [[]] * 3_000}}}}]
    events: list[Any] = []
    if member == "requests":
        events = [{"type": "request", "messages": [{}], "tools": []}] * 3_000
    elif member == "approvals":
        for turn in range(1_000):
            events.append({"type": "approval_asked", "approval": f"ap{turn}", "input": {}})
            events.append({"type": "approval", "approval": f"ap{turn}", "decision": "approved"})
            events.append({"type": "dispatch", "id": "c1", "approval": f"ap{turn}"})
    elif member == "requested":
        reply["requested_tools"] = [{"id": "c1", "name": "note", "input": {}}] * 3_000
    return {**trace, "events": events}


@pytest.mark.parametrize("member", ["enum", "requests", "approvals", "requested"])
def test_one_large_value_is_looked_at_once_however_often_it_is_met(member: str) -> None:
    trace = repeated(member)
    began = time.process_time()
    assert check(trace).issues
    assert time.process_time() - began < 5


def test_a_number_that_no_file_could_hold_is_unreadable() -> None:
    with pytest.raises(TraceUnreadable):
        check({"protocol": "messages", "messages": [{"role": "user", "content": 10**5_000}]})
