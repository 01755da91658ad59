"""A raw input is JSON, cut JSON, or no JSON; nothing is repaired."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packhost.trace.strict import BadInput, parse

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=10,
)


def code_of(text: str) -> str | None:
    try:
        parse(text)
    except BadInput as bad:
        return bad.code
    return None


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('{"a": 1}', None),
        ('{"a": tru', "INPUT_JSON_INCOMPLETE"),
        ('{"a": -', "INPUT_JSON_INCOMPLETE"),
        ('{"a": 1.', "INPUT_JSON_INCOMPLETE"),
        ('{"a": "\\u00', "INPUT_JSON_INCOMPLETE"),
        ('{"a"', "INPUT_JSON_INCOMPLETE"),
        ('{"a": 1,', "INPUT_JSON_INCOMPLETE"),
        ("", "INPUT_JSON_INCOMPLETE"),
        ("{'a': 1}", "INPUT_JSON_INVALID"),
        ('{"a": 1}}', "INPUT_JSON_INVALID"),
        ('{"a": truth}', "INPUT_JSON_INVALID"),
        ('{"a": 01}', "INPUT_JSON_INVALID"),
        ('{"a": "\n"}', "INPUT_JSON_INVALID"),
        ("[" * 100_000, "INPUT_JSON_INVALID"),
        ('{"a": 1, "a": 1}', "INPUT_DUPLICATE_KEY"),
        ('{"b": [{"a": 1, "a": 2}]}', "INPUT_DUPLICATE_KEY"),
        ('{"a": NaN}', "INPUT_NONFINITE_NUMBER"),
        ('{"a": -Infinity}', "INPUT_NONFINITE_NUMBER"),
        ('{"a": 1e400}', "INPUT_NONFINITE_NUMBER"),
        ('{"a": ' + "1" * 5_000 + "}", "INPUT_NONFINITE_NUMBER"),
    ],
)
def test_what_is_wrong_has_its_code(text: str, code: str | None) -> None:
    assert code_of(text) == code


@given(st.dictionaries(st.text(max_size=4), VALUES, max_size=4))
def test_json_is_read_as_it_was_written(value: Any) -> None:
    assert parse(json.dumps(value)) == value


@given(st.dictionaries(st.text(max_size=4), VALUES, min_size=1, max_size=4), st.data())
def test_every_beginning_of_an_object_is_called_cut(value: Any, data: st.DataObject) -> None:
    text = json.dumps(value, ensure_ascii=data.draw(st.booleans()))
    cut = data.draw(st.integers(0, len(text) - 1))
    assert code_of(text[:cut]) == "INPUT_JSON_INCOMPLETE"
