"""A clean trace with one fault planted anywhere gives the code of that fault."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packhost.trace import check

IDS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
Mutation = Callable[[Any, int], None]


def batch(ids: list[str], protocol: str) -> Any:
    """A clean trace: a reply with these calls, a result for each, an end."""
    if protocol == "messages":
        calls = [{"type": "tool_use", "id": one, "name": "note", "input": {"text": one}} for one in ids]
        results = [{"type": "tool_result", "tool_use_id": one, "content": "fine"} for one in ids]
        messages = [
            {"role": "user", "content": "begin"},
            {"role": "assistant", "content": calls, "stop_reason": "tool_use"},
            {"role": "user", "content": results},
            {"role": "assistant", "content": "Done.", "stop_reason": "end_turn"},
        ]
        tools: list[Any] = [{"name": "note", "input_schema": SCHEMA}]
        return {"protocol": protocol, "tools": tools, "messages": messages}
    functions = [
        {"id": one, "type": "function", "function": {"name": "note", "arguments": json.dumps({"text": one})}}
        for one in ids
    ]
    messages = [
        {"role": "user", "content": "begin"},
        {"role": "assistant", "content": None, "tool_calls": functions, "finish_reason": "tool_calls"},
        *({"role": "tool", "tool_call_id": one, "content": "fine"} for one in ids),
        {"role": "assistant", "content": "Done.", "finish_reason": "stop"},
    ]
    tools = [{"type": "function", "function": {"name": "note", "parameters": SCHEMA}}]
    return {"protocol": protocol, "tools": tools, "messages": messages}


SCHEMA = {
    "type": "object",
    "properties": {"text": {"type": "string"}},
    "required": ["text"],
    "additionalProperties": False,
}
PROTOCOLS = pytest.mark.parametrize("protocol", ["messages", "chat_completions"])


def calls_of(trace: Any) -> list[Any]:
    message = trace["messages"][1]
    return list(message["content"] if trace["protocol"] == "messages" else message["tool_calls"])


def drop_result(trace: Any, place: int) -> None:
    if trace["protocol"] == "messages":
        del trace["messages"][2]["content"][place]
    else:
        del trace["messages"][2 + place]


def double_result(trace: Any, place: int) -> None:
    if trace["protocol"] == "messages":
        content = trace["messages"][2]["content"]
        content.append(content[place])
    else:
        trace["messages"].insert(-1, trace["messages"][2 + place])


def foreign_result(trace: Any, place: int) -> None:
    if trace["protocol"] == "messages":
        trace["messages"][2]["content"].append({"type": "tool_result", "tool_use_id": "\x00", "content": ""})
    else:
        trace["messages"].insert(-1, {"role": "tool", "tool_call_id": "\x00", "content": ""})


def drop_id(trace: Any, place: int) -> None:
    del calls_of(trace)[place]["id"]
    drop_result(trace, place)


def wrong_input(trace: Any, place: int) -> None:
    call = calls_of(trace)[place]
    if trace["protocol"] == "messages":
        call["input"] = {"text": 7}
    else:
        call["function"]["arguments"] = '{"text": 7}'


def extra_member(trace: Any, place: int) -> None:
    call = calls_of(trace)[place]
    if trace["protocol"] == "messages":
        call["input"]["more"] = 1
    else:
        call["function"]["arguments"] = '{"text": "a", "more": 1}'


def unknown_tool(trace: Any, place: int) -> None:
    call = calls_of(trace)[place]
    (call if trace["protocol"] == "messages" else call["function"])["name"] = "nothing"


def no_stop(trace: Any, place: int) -> None:
    trace["messages"][1].pop("stop_reason", None)
    trace["messages"][1].pop("finish_reason", None)


def says_done(trace: Any, place: int) -> None:
    key, word = ("stop_reason", "end_turn") if trace["protocol"] == "messages" else ("finish_reason", "stop")
    trace["messages"][1][key] = word


def late_results(trace: Any, place: int) -> None:
    trace["messages"].insert(2, {"role": "user", "content": "are you there?"})


MUTATIONS: dict[str, Mutation] = {
    "RESULT_MISSING": drop_result,
    "RESULT_DUPLICATE": double_result,
    "RESULT_UNMATCHED": foreign_result,
    "RESULT_LATE": late_results,
    "CALL_ID_MISSING": drop_id,
    "SCHEMA_TYPE": wrong_input,
    "SCHEMA_ADDITIONAL": extra_member,
    "TOOL_UNKNOWN": unknown_tool,
    "STOP_MISSING": no_stop,
    "CALLS_WITHOUT_TOOL_STOP": says_done,
}


@PROTOCOLS
@given(ids=st.lists(IDS, min_size=1, max_size=6, unique=True))
def test_a_batch_of_any_ids_is_clean(protocol: str, ids: list[str]) -> None:
    assert check(batch(ids, protocol)).codes == []


@PROTOCOLS
@pytest.mark.parametrize("code", MUTATIONS)
@given(ids=st.lists(IDS.filter(lambda id: id != "\x00"), min_size=1, max_size=6, unique=True), data=st.data())
def test_one_planted_fault_gives_its_code_and_no_other(
    protocol: str, code: str, ids: list[str], data: st.DataObject
) -> None:
    trace = batch(ids, protocol)
    MUTATIONS[code](trace, data.draw(st.integers(0, len(ids) - 1)))
    assert check(trace).codes == [code]


@PROTOCOLS
@given(ids=st.lists(IDS, min_size=2, max_size=6, unique=True), data=st.data())
def test_a_twin_of_a_call_is_found_wherever_it_stands(
    protocol: str, ids: list[str], data: st.DataObject
) -> None:
    trace = batch(ids, protocol)
    first, second = data.draw(st.lists(st.integers(0, len(ids) - 1), min_size=2, max_size=2, unique=True))
    calls = calls_of(trace)
    calls[second]["id"] = calls[first]["id"]
    found = check(trace).codes
    assert "CALL_ID_DUPLICATE" in found
    assert "RESULT_MISSING" not in found


LINES = ("event: ping", 'data: {"type": "ping"}', "")


@given(data=st.data())
def test_an_event_may_stand_anywhere_before_the_end_and_nowhere_behind_it(
    clean: Callable[[str], Any], data: st.DataObject
) -> None:
    trace = clean("clean-stream-messages")
    ends = [place + 1 for place, line in enumerate(trace["stream"]) if not line]
    place = data.draw(st.sampled_from(ends))
    trace["stream"][place:place] = LINES
    assert check(trace).codes == (["POST_TERMINAL_DATA"] if place == ends[-1] else [])


@pytest.mark.parametrize("name", ["clean-stream-messages", "clean-stream-chat"])
@given(data=st.data())
def test_a_stream_cut_anywhere_has_no_terminal(
    name: str, clean: Callable[[str], Any], data: st.DataObject
) -> None:
    trace = clean(name)
    trace["stream"] = trace["stream"][: data.draw(st.integers(0, len(trace["stream"]) - 2))]
    assert "TERMINAL_MISSING" in check(trace).codes


@pytest.mark.parametrize("budgets", [{"max_argument_bytes": 3}, {"limits": {"argument_bytes": 3}}])
def test_a_limit_of_one_reply_may_stand_among_the_budgets(budgets: Any) -> None:
    trace = {**batch(["a"], "messages"), "budgets": budgets}
    assert check(trace).codes == ["LIMIT_ARGUMENT_BYTES"]


def test_without_a_list_of_tools_no_tool_is_called_unknown() -> None:
    trace = batch(["a"], "messages")
    del trace["tools"]
    assert check(trace).codes == []
