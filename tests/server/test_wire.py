"""What came of a call, as MCP says it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packhost.errors import Place
from packhost.gate.types import Completed, Refusal
from packhost.server.wire import EVENT_LIMIT, completed, refused
from packhost.transports.jsonrpc import to_json


def done(value: object) -> Completed:
    return Completed(value, json.dumps(value, ensure_ascii=False), "call_1", "run_1", "host")


@pytest.mark.parametrize(
    ("value", "text", "structured"),
    [
        ({"a": "ü"}, '{"a": "ü"}', {"a": "ü"}),
        ("plain", "plain", None),
        ([1, 2], "[1, 2]", None),
        (None, "null", None),
        (True, "true", None),
        ({"a": ["\ud800x"]}, '{"a": ["\\\\ud800x"]}', {"a": ["\\ud800x"]}),
        ("\udfff😀", "\\udfff😀", None),
    ],
)
def test_a_value_is_text_and_an_object_is_structured_too(value, text, structured) -> None:
    result = completed(done(value), None, None)
    assert (result.content[0].text, result.structured_content) == (text, structured)


def test_a_refusal_with_anything_in_it_can_be_sent() -> None:
    result = refused(Refusal("POLICY_DENIED", "no \ud800", hint="ask", rule=Place("packhost.yaml", 3)))
    assert to_json(result.model_dump(mode="json"))
    assert json.loads(result.content[0].text.split("\n", 1)[1])["rule"] == "packhost.yaml:3"


@settings(deadline=None)
@given(
    st.recursive(
        st.text() | st.integers() | st.none(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=20,
    ),
    st.integers(min_value=0, max_value=3000),
)
def test_a_bounded_result_fits_its_event_or_says_why_not(value, repeat) -> None:
    result = completed(done([value] * repeat), None, 20_000)
    if "packhost/refusal" not in result.meta:
        assert len(json.dumps(result.model_dump(mode="json", exclude_none=True))) < 21_000


@pytest.mark.parametrize("character", ["x", '"', "\\", "\x01", "ü", "😀"])
@pytest.mark.parametrize("size", [50_000, 200_000, 400_000, 2_000_000])
def test_no_character_makes_an_event_too_large(character, size) -> None:
    result = completed(done({"data": character * size}), None, EVENT_LIMIT)
    whole = result.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert len(json.dumps({"jsonrpc": "2.0", "id": 1, "result": whole})) < 1024 * 1024


def test_content_blocks_go_on_as_they_are_beside_their_data() -> None:
    blocks = (
        {"type": "text", "text": "see \ud800"},
        {"type": "image", "data": "aGVsbG8=", "mimeType": "image/png", "annotations": {"audience": ["user"]}},
        {"type": "resource", "resource": {"uri": "demo://one", "blob": "aGVsbG8="}},
    )
    result = completed(Completed({"n": 1}, "see", "call_1", "run_1", "host", blocks), None, None)
    sent = result.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert sent["content"] == [{"type": "text", "text": "see \\ud800"}, *blocks[1:]]
    assert sent["structuredContent"] == {"n": 1}
    only = completed(Completed([*blocks], "see", "call_1", "run_1", "host", blocks), None, None)
    assert only.structured_content is None


def test_blocks_that_no_event_carries_are_a_refusal() -> None:
    blocks = ({"type": "image", "data": "a" * EVENT_LIMIT, "mimeType": "image/png"},)
    result = completed(Completed([*blocks], "", "call_1", "run_1", "host", blocks), None, EVENT_LIMIT)
    assert result.is_error
    assert result.meta["packhost/refusal"]["code"] == "OUTPUT_TOO_LARGE"
