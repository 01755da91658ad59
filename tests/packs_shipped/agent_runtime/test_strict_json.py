"""Strict JSON: what is refused, with which issue, and how deep it may go."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packhost_packs.agent_runtime.faults import TurnFault
from packhost_packs.agent_runtime.strict_json import MAX_DEPTH, loads


def issue(text: str | bytes) -> str:
    with pytest.raises(TurnFault) as caught:
        loads(text, "it", "BROKEN", "CUT")
    return caught.value.issue


@pytest.mark.parametrize("pair", ["[]", "{}"])
def test_nesting_is_bounded_exactly(pair: str) -> None:
    opening = pair[0] if pair == "[]" else '{"a":'

    def nested(levels: int) -> str:
        return opening * (levels - 1) + pair + pair[1] * (levels - 1)

    assert loads(nested(MAX_DEPTH), "it") is not None
    assert issue(nested(MAX_DEPTH + 1)) == issue(nested(100_000)) == "BROKEN"


def test_brackets_in_strings_and_side_by_side_are_no_depth() -> None:
    text = json.dumps({"a": "[" * 500 + '\\"' + "{" * 500, "b": [[]] * 500, "c": [{}] * 500})
    assert loads(text, "it")["b"] == [[]] * 500


@pytest.mark.parametrize(
    "text",
    [
        '"' + '\\"' * 300_000,
        '"\\' * 300_000,
        "[" * 600_000,
        "[]," * 200_000,
        '{"a":[' * 200_000,
        "]" * 600_000,
    ],
)
def test_hostile_text_is_read_in_linear_time(text: str) -> None:
    began = time.process_time()
    assert issue(text) in ("BROKEN", "CUT")
    assert time.process_time() - began < 2


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_what_json_writes_is_read_as_it_was(value: Any) -> None:
    assert loads(json.dumps(value), "it") == value


@given(st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), min_size=1), st.data())
def test_every_prefix_of_an_object_is_cut_or_broken(value: Any, draw: st.DataObject) -> None:
    text = json.dumps(value)
    assert issue(text[: draw.draw(st.integers(0, len(text) - 1))]) in ("CUT", "BROKEN")
