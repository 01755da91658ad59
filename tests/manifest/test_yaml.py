"""The YAML reader: what it reads, what it refuses, and where it says so."""

from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

import packhost.manifest.yaml as reader
from packhost.errors import ConfigInvalid, ManifestInvalid, Place
from packhost.manifest.yaml import Document, read_yaml


@pytest.fixture(params=["compiled", "plain"])
def _each_parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "plain":
        monkeypatch.setattr(reader, "_Loader", yaml.SafeLoader)


pytestmark = pytest.mark.usefixtures("_each_parser")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("false", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("0", 0),
        ("-12", -12),
        ("+3", 3),
        ("0x1F", 31),
        ("1.5", 1.5),
        ("-.5", -0.5),
        ("1.0e+3", 1000.0),
        ("1.0.0", "1.0.0"),
        ("127.0.0.1:80", "127.0.0.1:80"),
        ("example.org:8443", "example.org:8443"),
        ("path read **", "path read **"),
        ("y", "y"),
        ("nothing", "nothing"),
        ("online", "online"),
        ("10m", "10m"),
        ("'1'", "1"),
        ('"no"', "no"),
        ('"2026-01-01"', "2026-01-01"),
        ("9223372036854775807", 2**63 - 1),
    ],
)
def test_a_value_is_read_as_every_reader_takes_it(text: str, value: object) -> None:
    found = read_yaml(f"a: {text}\n".encode(), "f.yaml").data["a"]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    "text",
    [
        "yes", "No", "on", "OFF", "True", "FALSE", "1e3", "1.5e3", "1_000", "017", "-08", "0o17", "0b11",
        "8:30", "1:30:00.5", "2026-01-01", "2026-01-01T10:00:00Z", ".inf", "-.INF", ".nan",
        "9223372036854775808", "9" * 5000, "1.0e+999",
    ],
)  # fmt: skip
def test_a_value_that_readers_take_differently_is_an_error_with_its_place(text: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        read_yaml(f"ok: 1\na: {text}\n".encode(), "f.yaml")
    assert (caught.value.place, bool(caught.value.hint)) == (Place("f.yaml", 2, 4), True)


@pytest.mark.parametrize(
    ("text", "line", "column", "said"),
    [
        ("a: 1\nb: 2\na: 3", 3, 1, "the key `a` stands twice; first in line 1"),
        ("a: {b: 1, b: 2}", 1, 11, "the key `b` stands twice"),
        ("a: &x 1", 1, 4, "anchors are not read here: `&x`"),
        ("a: *x", 1, 4, "aliases are not read here: `*x`"),
        ("a: !!python/object:os.system x", 1, 4, "tags are not read here"),
        ("a: !mine x", 1, 4, "tags are not read here"),
        ("<<: {a: 1}", 1, 1, "merge keys are not read here"),
        ("a: 1\n---\nb: 2", 2, 1, "a second document"),
        ("%YAML 1.1\n---\na: 1", 1, 1, "directives are not read here"),
        ("1: a", 1, 1, "a key must be text, not `1`"),
        ("true: a", 1, 1, "a key must be text, not `true`"),
        ("? [a]\n: b", 1, 3, "a key must be text"),
        ("a:\n\t- b", 2, 1, "this is not YAML"),
        ("a: [1, 2", 1, None, "this is not YAML"),
        ("a: b: c", 1, 5, "this is not YAML: mapping values are not allowed"),
        ("ok: 1\na: x\0y", 2, 5, "a NUL character"),
        ('a: "x\\0y"', 1, 4, "a NUL character"),
        ("ok: 1\na: \x01", 2, 4, "U+0001"),
    ],
)
def test_what_is_not_read_is_an_error_with_its_place(
    text: str, line: int, column: int | None, said: str
) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        read_yaml(text.encode(), "f.yaml")
    place = caught.value.place
    assert said in caught.value.message
    assert place is not None
    assert column is None or (place.line, place.column) == (line, column)


def test_every_problem_in_a_file_is_reported() -> None:
    with pytest.raises(ManifestInvalid) as caught:
        read_yaml(b"a: no\nb: 1_0\na: 017\n", "f.yaml", error=ManifestInvalid)
    places = [(p.place.line, p.place.column) for p in caught.value.data["problems"]]
    assert places == [(1, 4), (2, 4), (3, 1), (3, 4)]
    assert "(and 3 more)" in caught.value.message


def test_tabs_are_named_as_the_cause() -> None:
    with pytest.raises(ConfigInvalid) as caught:
        read_yaml(b"a:\n\t- b\n", "f.yaml")
    assert caught.value.hint == "indent with spaces, not tabs"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (b"\xff\xfea", "not UTF-8"),
        (b"a: \xc3(", "not UTF-8"),
        (b"# " + b"x" * 1024 * 1024, "larger than 1 MiB"),
        (b"[" * 100 + b"]" * 100, "nested more than 64 deep"),
        (b"- " * 100 + b"a", "nested more than 64 deep"),
        (b"[" + b"1," * 60_000 + b"1]", "more than 50000 values"),
    ],
)
def test_a_file_beyond_its_bounds_is_an_error(source: bytes, said: str) -> None:
    with pytest.raises(ConfigInvalid, match=said):
        read_yaml(source, "f.yaml")


def test_a_bomb_of_aliases_is_refused_before_it_grows() -> None:
    layers = "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 10))
    with pytest.raises(ConfigInvalid, match="anchors are not read here"):
        read_yaml(f"a0: &a0 x\n{layers}".encode(), "f.yaml")


def test_places_are_those_of_keys_and_values() -> None:
    document = read_yaml("# ä\na:\n  - {b: x, 'c': y}\n".encode(), "f.yaml")
    assert document.place(("a", 0, "c")) == Place("f.yaml", 3, 17)
    assert document.place(("a", 0, "c"), key=True) == Place("f.yaml", 3, 12)
    assert document.place() == Place("f.yaml", 2, 1)


def test_a_place_that_is_not_there_is_the_nearest_outer_one() -> None:
    document = read_yaml(b"a:\n  b: 1\n", "f.yaml")
    assert document.place(("a", "nope", 3)) == Place("f.yaml", 2, 3)


@pytest.mark.parametrize("source", [b"", b"# only a comment\n", b"\xef\xbb\xbf"])
def test_an_empty_file_holds_nothing(source: bytes) -> None:
    assert read_yaml(source, "f.yaml").data is None


def test_a_byte_order_mark_does_not_move_a_key() -> None:
    assert read_yaml(b"\xef\xbb\xbfa: 1", "f.yaml").data == {"a": 1}


def test_words_like_on_are_keys() -> None:
    assert read_yaml(b"on: 1\nno: 2\n", "f.yaml").data == {"on": 1, "no": 2}


FRAGMENTS = st.sampled_from(
    ["a", ": ", "- ", "\n", "  ", "[", "]", "{", "}", ",", "&x", "*x", "!t ", "no", "1e3", "'", '"', "\\",
     "#", "|", ">", "?", "---", "...", "%", "\t", "\0", "é", "\u2028", "\x85", "0x", "<<", "~", "-"]
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.binary(max_size=60), st.lists(FRAGMENTS, max_size=25).map(lambda p: "".join(p).encode())))
@example(b'"\\UFFFFFFFF"')
@example(b'"\\ud800"')
@example(b"? ?")
@example(b"{? }")
@example(b"[a: ]")
def test_any_bytes_are_a_document_that_json_can_hold_or_a_clear_error(source: bytes) -> None:
    try:
        document: Document | ConfigInvalid = read_yaml(source, "f.yaml")
    except ConfigInvalid as error:
        document = error
    if isinstance(document, Document):
        json.dumps(document.data, allow_nan=False).encode()
    else:
        assert document.place is not None
        assert document.place.file == "f.yaml"
        assert "\n" not in document.message


CHARACTERS = st.characters(max_codepoint=0xD7FF, exclude_characters="\0")
TEXT = st.text(CHARACTERS)
KEY = st.text(CHARACTERS, max_size=100)  # YAML itself ends a key at 1024 characters, escapes included
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEY, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=100, deadline=None)
@given(JSON)
def test_json_is_read_as_it_is(value: object) -> None:
    assert read_yaml(json.dumps(value).encode(), "f.yaml").data == value
