"""What is put into a template comes out of it again, and nothing else."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qsl, quote, unquote

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packhost.errors import InvalidInput
from packhost.kinds import templates
from packhost.kinds.egress import taken_apart
from packhost.kinds.templates import (
    TemplateFault,
    Values,
    as_json,
    as_words,
    fill_header,
    fill_json,
    fill_text,
    json_placeholders,
    parse_json,
    parse_text,
    parse_url,
    placeholders,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
NASTY = st.sampled_from(
    [
        "../",
        "/",
        "?a=b",
        "#x",
        "&a=b",
        "%2e%2e",
        "\\",
        "@evil",
        ":80",
        "\r\n",
        "\0",
        "{{x}}",
        "{{secret:K}}",
        "+",
        " ",
    ]
)
TEXT = st.text() | st.lists(NASTY | st.text(max_size=3), max_size=5).map("".join)


def values(**arguments: Any) -> Values:
    return Values(arguments, {"K": "the-secret"}, {"_tenant.id": "acme"})


def climbs(text: str) -> bool:
    return not text or not {".", ".."}.isdisjoint(text.replace("\\", "/").split("/"))


@given(TEXT)
def test_a_value_in_a_path_is_one_segment_and_parses_back(value: str) -> None:
    url = parse_url("https://api.example/a/{{x}}/b")
    if climbs(value):
        with pytest.raises(InvalidInput):
            url.path(values(x=value))
        return
    target = taken_apart(f"https://api.example{url.path(values(x=value))}")
    assert (target.host, target.port) == ("api.example", 443)
    first, a, found, b = target.path.split("/")
    assert (first, a, unquote(found), b) == ("", "a", value, "b")


@given(TEXT, TEXT)
def test_values_side_by_side_in_a_segment_cannot_climb_together(one: str, other: str) -> None:
    url = parse_url("https://api.example/{{x}}{{y}}")
    try:
        path = url.path(values(x=one, y=other))
    except InvalidInput:
        assert climbs(one + other)
    else:
        assert path.count("/") == 1
        assert unquote(path[1:]) == one + other


@given(TEXT, JSON)
def test_values_in_a_query_are_one_value_each_and_parse_back(text: str, value: Any) -> None:
    url = parse_url("https://api.example/s?q={{x}}&fixed=1&v=a-{{y}}")
    target = taken_apart(f"https://api.example{url.path(values(x=text, y=value))}")
    found = parse_qsl(target.path.partition("?")[2], keep_blank_values=True, strict_parsing=True)
    assert found == [("q", text), ("fixed", "1"), ("v", f"a-{as_words(value)}")]


@given(TEXT | st.text(st.characters(min_codepoint=32, max_codepoint=126)))
def test_a_value_in_a_header_is_one_line_or_refused(value: str) -> None:
    text = parse_text("Bearer {{x}}")
    if not (value.isascii() and value.isprintable()):
        with pytest.raises(InvalidInput):
            fill_header("authorization", text, values(x=value))
        return
    sent = fill_header("authorization", text, values(x=value))
    reader = h11.Connection(h11.SERVER)
    reader.receive_data(f"GET / HTTP/1.1\r\nhost: h\r\nauthorization: {sent}\r\n\r\n".encode("ascii"))
    request = reader.next_event()
    assert isinstance(request, h11.Request)
    assert dict(request.headers) == {b"host": b"h", b"authorization": f"Bearer {value}".strip(" ").encode()}


@given(JSON)
def test_a_placeholder_that_is_all_of_a_json_string_takes_the_value_with_its_type(value: Any) -> None:
    template = parse_json({"a": ["{{x}}"], "fixed": {"b": [1, None]}})
    sent = json.loads(as_json(fill_json(template, values(x=value))))
    assert sent == {"a": [value], "fixed": {"b": [1, None]}}


@given(JSON)
def test_a_placeholder_inside_a_json_string_is_text_that_ends_with_it(value: Any) -> None:
    template = parse_json({"a": 'say "{{x}}"!'})
    sent = json.loads(as_json(fill_json(template, values(x=value))))
    assert sent == {"a": f'say "{as_words(value)}"!'}


@given(st.sampled_from(["{{x}}", "{{secret:K}}", "{{_tenant.id}}", "{{y}}"]))
def test_a_placeholder_inside_a_value_stays_text(value: str) -> None:
    given_ = values(x=value, y="second")
    assert fill_json(parse_json("{{x}}"), given_) == value
    assert fill_text(parse_text("<{{x}}>"), given_) == f"<{value}>"
    assert parse_url("https://h/{{x}}").path(given_) == f"/{quote(value, safe='')}"


@pytest.mark.parametrize(
    "written",
    [
        *(
            "{{y}}",
            "{{x.b}}",
            "{{x.a.b}}",
            "{{secret:OTHER}}",
            "{{_record.field}}",
            "{{_flow.id}}",
            "{{_user.id}}",
        ),
        *("{{_identity.token}}", "{{ x }}", "{{}}", "{x}", "{{x", "{{x-}y}}", "{{secret:}}", "{{Secret:K}}"),
    ],
)
def test_what_nothing_resolves_is_sent_as_it_is_written(written: str) -> None:
    given_ = values(x={"a": 1})
    assert fill_json(parse_json(written), given_) == written
    assert fill_text(parse_text(f"<{written}>"), given_) == f"<{written}>"
    if " " not in written:
        assert unquote(parse_url(f"https://h/?q={written}").path(given_)) == f"/?q={written}"


def test_what_is_the_hosts_to_say_comes_from_no_argument() -> None:
    forged = Values({"_tenant": {"id": "evil"}, "_endUser": {"id": "evil"}, "_identity": {"token": "evil"}})
    for name in templates.HOST_NAMES:
        assert fill_text(parse_text(f"{{{{{name}}}}}"), forged) == f"{{{{{name}}}}}"


def test_members_secrets_and_the_hosts_own_are_put_in_where_they_stand() -> None:
    given_ = values(x={"a": {"b": "deep"}}, n=1.5, flag=True, nothing=None, many=["a", 1])
    text = "{{x.a.b}} {{secret:K}} {{_tenant.id}} {{n}} {{flag}} {{nothing}} {{many}}"
    assert fill_text(parse_text(text), given_) == 'deep the-secret acme 1.5 true null ["a",1]'


def test_a_template_tells_its_placeholders() -> None:
    url = parse_url("https://h/{{a}}/x?{{b}}={{secret:C}}")
    assert [one.written for one in url.placeholders()] == ["{{a}}", "{{b}}", "{{secret:C}}"]
    body = parse_json({"d": ["{{d}}", {"e": "x {{e}} {{f}}"}], "g": "{{g}}", "{{key}}": 1})
    assert [one.name for one in json_placeholders(body)] == ["d", "e", "f", "g"]
    assert list(placeholders(url.authority)) == []


@pytest.mark.parametrize(
    "url",
    [
        *("", "api.example/a", "ftp://h/", "//h/", "https:///a", "https://u@h/", "https://u:{{x}}@h/"),
        *(
            "https://h/#a",
            "https://h/{{x}}#a",
            "https://h/a b",
            "https://h/a\\b",
            "https://h/ä",
            "https://h/a\n",
        ),
        *("https://h/%", "https://h/%zz", "https://h/../a", "https://h/a/%2e%2E/b", "https://h/./{{x}}"),
        *("https://h/a%2f..%2fb", "{{x}}", "{{x}}://h/"),
    ],
)
def test_a_url_that_is_none_or_has_two_readings_is_no_template(url: str) -> None:
    with pytest.raises(TemplateFault):
        parse_url(url)


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("https://h", "/"),
        ("https://h?a=b", "/?a=b"),
        ("https://h/a%2Fb/;c=d,e", "/a%2Fb/;c=d,e"),
        ('https://h/"a"/[b]|?c=[d]{e}', "/%22a%22/%5Bb%5D%7C?c=%5Bd%5D%7Be%7D"),
        ("https://h/a//b/", "/a//b/"),
    ],
)
def test_what_is_written_is_sent_as_a_url_spells_it(url: str, path: str) -> None:
    assert parse_url(url).path(values()) == path


def test_a_url_or_header_that_would_grow_out_of_measure_is_refused() -> None:
    with pytest.raises(InvalidInput, match="characters"):
        parse_url("https://h/?q={{x}}").path(values(x="y" * templates.LONGEST_URL))
    with pytest.raises(InvalidInput):
        fill_header("x", parse_text("{{x}}"), values(x="y" * (templates.LONGEST_HEADER + 1)))
