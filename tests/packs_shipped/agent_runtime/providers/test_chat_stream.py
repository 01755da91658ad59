"""Streamed Chat Completions: what is taken, what is refused, and what each quirk comes to."""

from __future__ import annotations

import json
from typing import Any

import pytest

A = {"city": "Paris"}
TEXT = json.dumps(A)


def requested(reply: Any) -> list[tuple[str, str, Any]]:
    return [(call["id"], call["name"], call["input"]) for call in reply.requested]


@pytest.mark.parametrize("split", [1, 3, 1000])
def test_a_call_in_fragments_is_one_call(streams: Any, split: int) -> None:
    pieces = [TEXT[n : n + split] for n in range(0, len(TEXT), split)]
    start = streams.call(0, "", id="c1", type="function", name="get_weather")
    reply = streams.read("chat", [streams.chat(start, *(streams.call(0, piece) for piece in pieces))])
    assert reply.verdict == "tools"
    assert requested(reply) == [("c1", "get_weather", A)]
    assert reply.native["message"]["tool_calls"][0]["function"]["arguments"] == TEXT


def one(streams: Any, *deltas: Any) -> Any:
    return streams.read("chat", [streams.chat(*deltas)])


def test_fragments_of_two_calls_may_alternate(streams: Any) -> None:
    half, rest = TEXT[:5], TEXT[5:]
    reply = one(
        streams,
        streams.call(0, half, id="c1", name="get_weather"),
        streams.call(1, half, id="c2", name="get_weather"),
        streams.call(0, rest),
        streams.call(1, rest),
    )
    assert requested(reply) == [("c1", "get_weather", A), ("c2", "get_weather", A)]


QUIRKS: dict[str, tuple[list[Any], list[str] | str]] = {
    "a whole call in one chunk": ([("c1", 0, TEXT)], ["c1"]),
    "no index, whole calls": ([("c1", ..., TEXT), ("c2", ..., TEXT)], ["c1", "c2"]),
    "no index, fragments of one call": ([("c1", ..., TEXT[:4]), (None, ..., TEXT[4:])], ["c1"]),
    "no index, fragments under their ids": (
        [("c1", ..., TEXT[:4]), ("c2", ..., TEXT[:4]), ("c1", ..., TEXT[4:]), ("c2", ..., TEXT[4:])],
        ["c1", "c2"],
    ),
    "no index and no id with two calls": (
        [("c1", ..., TEXT), ("c2", ..., TEXT[:4]), (None, ..., TEXT[4:])],
        "CALL_INDEX_INVALID",
    ),
    "always index 0, whole calls": ([("c1", 0, TEXT), ("c2", 0, TEXT)], ["c1", "c2"]),
    "always index 0, fragments under their ids": (
        [("c1", 0, TEXT[:4]), ("c2", 0, TEXT[:4]), ("c1", 0, TEXT[4:]), ("c2", 0, TEXT[4:])],
        ["c1", "c2"],
    ),
    "always index 0, a fragment without an id": (
        [("c1", 0, TEXT), ("c2", 0, TEXT[:4]), (None, 0, TEXT[4:])],
        "CALL_INDEX_INVALID",
    ),
    "an id that comes late": ([(None, 0, TEXT[:4]), ("c1", 0, TEXT[4:])], ["c1"]),
    "an empty id after the real one": ([("c1", 0, TEXT[:4]), ("", 0, TEXT[4:])], ["c1"]),
    "an empty id alone": ([("", 0, TEXT)], "CALL_ID_EMPTY"),
    "no id at all": ([(None, 0, TEXT)], "CALL_ID_MISSING"),
    "an id that is a number": ([(7, 0, TEXT)], "CALL_ID_MISSING"),
    "one id at two indices": ([("c1", 0, TEXT), ("c1", 1, TEXT)], "CALL_ID_DUPLICATE"),
    "indices with a gap": ([("c1", 1, TEXT), ("c2", 5, TEXT)], ["c1", "c2"]),
    "indices that go back": ([("c1", 1, TEXT), ("c2", 0, TEXT)], "CALL_INDEX_INVALID"),
    "a negative index": ([("c1", -1, TEXT)], "CALL_INDEX_INVALID"),
    "an index that is a string": ([("c1", "0", TEXT)], "CALL_INDEX_INVALID"),
    "an index that is true": ([("c1", True, TEXT)], "CALL_INDEX_INVALID"),
    "an index of null": ([("c1", None, TEXT)], ["c1"]),
    "arguments that are an object": ([("c1", 0, A)], "INPUT_JSON_INVALID"),
    "arguments that are a list": ([("c1", 0, "[]")], "INPUT_NOT_OBJECT"),
    "arguments that are null in words": ([("c1", 0, "null")], "INPUT_NOT_OBJECT"),
    "two objects": ([("c1", 0, TEXT + TEXT)], "INPUT_JSON_INVALID"),
    "a cut object": ([("c1", 0, TEXT[:-1])], "INPUT_JSON_INCOMPLETE"),
    "a cut string": ([("c1", 0, TEXT[:-3])], "INPUT_JSON_INCOMPLETE"),
    "a cut word": ([("c1", 0, '{"city": tru')], "INPUT_JSON_INCOMPLETE"),
    "a key twice": ([("c1", 0, '{"city": "a", "city": "b"}')], "INPUT_DUPLICATE_KEY"),
    "not a number": ([("c1", 0, '{"city": NaN}')], "INPUT_NONFINITE_NUMBER"),
    "too large a number": ([("c1", 0, '{"city": -1e999}')], "INPUT_NONFINITE_NUMBER"),
    "too many digits": ([("c1", 0, '{"city": ' + "9" * 5000 + "}")], "INPUT_JSON_INVALID"),
    "too deep": ([("c1", 0, '{"city": ' + "[" * 200 + "]" * 200 + "}")], "INPUT_JSON_INVALID"),
    "half a surrogate pair": ([("c1", 0, '{"city": "\\ud800"}')], "INPUT_JSON_INVALID"),
    "a single quote": ([("c1", 0, "{'city': 'a'}")], "INPUT_JSON_INVALID"),
    "a trailing comma": ([("c1", 0, '{"city": "a",}')], "INPUT_JSON_INVALID"),
}


@pytest.mark.parametrize("quirk", QUIRKS)
def test_a_quirk_has_one_answer(streams: Any, quirk: str) -> None:
    fragments, wanted = QUIRKS[quirk]
    deltas = []
    named: set[Any] = set()
    for identity, index, arguments in fragments:
        members = {} if identity is None else {"id": identity}
        if not named or (identity and identity not in named):
            members["name"] = "get_weather"
        named.add(identity)
        deltas.append(streams.call(index, arguments, **members))
    if isinstance(wanted, str):
        fault = streams.fault("chat", streams.chat(*deltas))
        assert (fault.outcome, fault.issue) == ("protocol_error", wanted)
    else:
        assert requested(one(streams, *deltas)) == [(identity, "get_weather", A) for identity in wanted]


def test_id_type_and_name_in_every_chunk_are_said_once(streams: Any) -> None:
    same = {"id": "c1", "type": "function", "name": "get_weather"}
    reply = one(streams, *(streams.call(0, piece, **same) for piece in (TEXT[:4], TEXT[4:9], TEXT[9:])))
    assert requested(reply) == [("c1", "get_weather", A)]


def test_a_name_that_changes_or_is_missing_is_refused(streams: Any) -> None:
    two = streams.chat(streams.call(0, "", id="c1", name="get_"), streams.call(0, TEXT, name="weather"))
    assert streams.fault("chat", two).issue == "CALL_NAME_CONFLICT"
    assert streams.fault("chat", streams.chat(streams.call(0, TEXT, id="c1"))).issue == "CALL_NAME_MISSING"


def test_a_name_of_64_characters_is_kept_whole(streams: Any) -> None:
    reply = one(streams, streams.call(0, "{}", id="c1", name="n" * 64))
    assert requested(reply) == [("c1", "n" * 64, {})]


@pytest.mark.parametrize("arguments", ["", None])
def test_no_arguments_are_an_empty_object_only_where_the_schema_allows_it(
    streams: Any, arguments: str | None
) -> None:
    reply = one(streams, streams.call(0, arguments, id="c1", name="list_all"))
    assert requested(reply) == [("c1", "list_all", {})]
    fault = streams.fault("chat", streams.chat(streams.call(0, arguments, id="c1", name="get_weather")))
    assert (fault.issue, fault.call.id, fault.call.raw) == ("INPUT_JSON_INCOMPLETE", "c1", "")


def test_a_broken_input_keeps_its_call_and_its_raw_text(streams: Any) -> None:
    fault = streams.fault("chat", streams.chat(streams.call(0, '{"city": ', id="c1", name="get_weather")))
    assert (fault.call.id, fault.call.name, fault.call.raw) == ("c1", "get_weather", '{"city": ')


@pytest.mark.parametrize(
    ("deltas", "finish", "outcome", "issue"),
    [
        (["call"], "stop", "protocol_error", "CALLS_WITHOUT_TOOL_STOP"),
        ([], "tool_calls", "protocol_error", "STOP_TOOL_WITHOUT_CALLS"),
        ([{"tool_calls": None}], "tool_calls", "protocol_error", "STOP_TOOL_WITHOUT_CALLS"),
        ([{"tool_calls": []}], "tool_calls", "protocol_error", "STOP_TOOL_WITHOUT_CALLS"),
        ([{"tool_calls": {}}], "tool_calls", "protocol_error", "CALL_INDEX_INVALID"),
        ([{"tool_calls": ["x"]}], "tool_calls", "protocol_error", "CALL_NAME_MISSING"),
        ([{"content": "x"}], "function_call", "unsupported", "CUSTOM_CALL_UNSUPPORTED"),
        ([{"function_call": {"name": "f"}}], "stop", "unsupported", "CUSTOM_CALL_UNSUPPORTED"),
        (["custom"], "tool_calls", "unsupported", "CUSTOM_CALL_UNSUPPORTED"),
        (["hidden"], "tool_calls", "unsupported", "CUSTOM_CALL_UNSUPPORTED"),
        ([{"content": ["x"]}], "stop", "unsupported", "BLOCK_UNKNOWN"),
        ([{"audio": {"id": "a"}}], "stop", "unsupported", "BLOCK_UNKNOWN"),
        ([{"refusal": 1}], "stop", "protocol_error", "BLOCK_UNKNOWN"),
        ([{"role": "user", "content": "x"}], "stop", "protocol_error", "EVENT_ORDER"),
        ([{"content": "x"}], "eos", "protocol_error", "STOP_UNKNOWN"),
        ([{"content": "x"}], 3, "protocol_error", "STOP_UNKNOWN"),
        (["x"], "stop", "protocol_error", "SSE_MALFORMED"),
    ],
)
def test_what_breaks_the_protocol_fails_closed(
    streams: Any, deltas: list[Any], finish: Any, outcome: str, issue: str
) -> None:
    made = {
        "call": streams.call(0, TEXT, id="c1", name="get_weather"),
        "custom": {"tool_calls": [{"index": 0, "id": "c", "type": "custom", "custom": {"name": "f"}}]},
        "hidden": {"tool_calls": [{"index": 0, "id": "c", "custom": {"name": "f", "input": "x"}}]},
    }
    deltas = [made.get(delta, delta) if isinstance(delta, str) else delta for delta in deltas]
    fault = streams.fault("chat", streams.chat(*deltas, finish=finish))
    assert (fault.outcome, fault.issue) == (outcome, issue)


@pytest.mark.parametrize(
    ("frame", "issue"),
    [
        ("{}", "EVENT_ORDER"),
        ('{"choices": {}}', "EVENT_ORDER"),
        ('{"choices": [{"index": 1, "delta": {}}]}', "EVENT_ORDER"),
        ('{"choices": [{"index": 0, "delta": {}}, {"index": 1, "delta": {}}]}', "EVENT_ORDER"),
        ("[]", "SSE_MALFORMED"),
        ("{", "SSE_MALFORMED"),
        ("x", "SSE_MALFORMED"),
        ("[DONE] ", "SSE_MALFORMED"),
        ('{"choices": [], "choices": []}', "INPUT_DUPLICATE_KEY"),
        ('{"choices": [], "x": NaN}', "INPUT_NONFINITE_NUMBER"),
        ('{"choices": [], "x": ' + "[" * 200 + "]" * 200 + "}", "SSE_MALFORMED"),
    ],
)
def test_a_frame_that_is_no_chunk_of_one_choice_is_refused(streams: Any, frame: str, issue: str) -> None:
    data = streams.chat({"content": "x"}, streams.frame(frame), finish="stop")
    assert streams.fault("chat", data).issue == issue


def test_chunks_without_a_choice_and_empty_data_carry_nothing(streams: Any) -> None:
    first = streams.frame({"choices": [], "prompt_filter_results": []})
    usage = {"prompt_tokens": 4, "completion_tokens": 2}
    reply = streams.read(
        "chat", [streams.chat(first, b"data:\n\n", {"content": "x"}, finish="stop", usage=usage)]
    )
    assert (reply.verdict, reply.text, reply.usage.as_json()) == (
        "final",
        "x",
        {"input_tokens": 4, "output_tokens": 2},
    )


def test_done_before_a_finish_reason_is_no_end(streams: Any) -> None:
    assert streams.fault("chat", streams.chat({"content": "x"}, finish=None)).issue == "TERMINAL_EARLY"


def test_an_end_of_file_is_no_terminal_marker(streams: Any) -> None:
    call = streams.call(0, TEXT, id="c1", name="get_weather")
    whole = streams.chat(call)
    for cut in range(len(whole) - 1):
        assert streams.fault("chat", whole[:cut]).issue == "TERMINAL_MISSING"
    assert streams.read("chat", [whole]).verdict == "tools"


@pytest.mark.parametrize(
    ("after", "issue"),
    [
        ({"content": "more"}, "EVENT_ORDER"),
        ("call", "EVENT_ORDER"),
        ("length", "STOP_CONFLICT"),
    ],
)
def test_nothing_is_added_after_a_finish_reason(streams: Any, after: Any, issue: str) -> None:
    made = {
        "call": streams.call(0, TEXT, id="c1", name="get_weather"),
        "length": streams.chunk({}, "length"),
    }
    stop = streams.chunk({}, "stop")
    data = streams.chat({"content": "x"}, stop, made[after] if isinstance(after, str) else after, finish=None)
    assert streams.fault("chat", data).issue == issue


def test_a_finish_reason_may_be_repeated_with_nothing_in_it(streams: Any) -> None:
    again = streams.chunk({"role": "assistant", "content": ""}, "stop")
    assert streams.read("chat", [streams.chat({"content": "x"}, again, finish="stop")]).verdict == "final"


@pytest.mark.parametrize(
    "more", [b"data: {}\n\n", b": late\n\n", b"data: [DONE]\n\n", b"x", b'data: {"error": {}}\n\n']
)
def test_every_byte_after_the_marker_but_a_line_end_is_refused(streams: Any, more: bytes) -> None:
    data = streams.chat({"content": "x"}, finish="stop")
    assert streams.fault("chat", data + more).issue == "POST_TERMINAL_DATA"
    assert streams.fault("chat", [data, b"\n\r\n", more]).issue == "POST_TERMINAL_DATA"
    assert streams.read("chat", [data, b"\n", b"\r\n"]).verdict == "final"


@pytest.mark.parametrize("finish", ["length", "content_filter"])
def test_a_cut_or_refused_reply_keeps_its_text_and_no_call(streams: Any, finish: str) -> None:
    call = streams.call(0, TEXT[:4], id="c1", name="get_weather")
    reply = streams.read("chat", [streams.chat({"content": "so far"}, call, finish=finish)])
    assert reply.verdict == {"length": "incomplete", "content_filter": "refused"}[finish]
    assert (reply.text, reply.requested) == ("so far", ())
    assert [block["type"] for block in reply.blocks] == ["text"]


def test_a_refusal_in_words_is_a_refusal_whatever_the_reason(streams: Any) -> None:
    reply = streams.read("chat", [streams.chat({"refusal": "I "}, {"refusal": "won't."}, finish="stop")])
    assert (reply.verdict, reply.text) == ("refused", "I won't.")


@pytest.mark.parametrize("event", [None, "error"])
@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        ({"error": {"message": "over\nloaded", "code": 503}}, 503, ": over loaded"),
        ({"error": {"message": "slow", "type": "rate_limit_error"}}, 429, ": slow"),
        ({"error": "plain"}, None, ": plain"),
        ({"error": {"code": "x"}}, None, ""),
    ],
)
def test_an_error_after_a_200_is_a_provider_error(
    streams: Any, event: str | None, error: Any, status: int | None, words: str
) -> None:
    first = streams.fault("chat", streams.frame(error, event))
    assert (first.outcome, first.status, first.begun) == ("provider_error", status, status is None)
    assert first.message.endswith(f"in its reply{words}")
    late = streams.fault("chat", streams.chat({"content": "x"}, streams.frame(error, event)))
    assert (late.outcome, late.begun) == ("provider_error", True)


def test_text_that_looks_like_a_call_is_only_text(streams: Any) -> None:
    text = '<tool_call>{"name": "get_weather", "arguments": {"city": "x"}}</tool_call>'
    reply = streams.read("chat", [streams.chat({"content": text}, finish="stop")])
    assert (reply.verdict, reply.text, reply.requested) == ("final", text, ())


def test_a_snapshot_is_the_latest_piece_alone(streams: Any) -> None:
    machine = streams.machine("chat")
    data = streams.chat(
        {"reasoning": "hm"},
        {"content": "ab"},
        {"content": "cd"},
        streams.call(0, TEXT[:4], id="c1", name="get_weather"),
        streams.call(0, TEXT[4:]),
    )
    shown = machine.feed(data)
    assert [(s.kind, s.delta, s.call_id) for s in shown] == [
        ("thinking", "hm", None),
        ("text", "ab", None),
        ("text", "cd", None),
        ("call", TEXT[:4], "c1"),
        ("call", TEXT[4:], "c1"),
    ]


def test_a_stream_that_failed_gives_no_reply_and_takes_no_more(streams: Any) -> None:
    machine = streams.machine("chat")
    with pytest.raises(Exception, match="not valid JSON"):
        machine.feed(b"data: {\n\n")
    with pytest.raises(Exception, match="already failed"):
        machine.feed(streams.chat({"content": "x"}, finish="stop"))
    with pytest.raises(Exception, match="already failed"):
        machine.finish()
