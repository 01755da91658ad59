"""Values kept out of texts, streams and logs, in every form that an encoder gives them."""

from __future__ import annotations

import base64
import json
import logging
import time
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from packhost.workspace.redaction import (
    REDACTED,
    SHORTEST,
    Redactor,
    StreamRedactor,
    forms,
    redact_json,
    redacted_logging,
)

VALUE = 'p@ss/wörd+"\n1234<&>'
values = st.lists(
    st.text(st.sampled_from('ab/é\\\n"%😀+ '), min_size=SHORTEST, max_size=14), min_size=1, max_size=4
)


def redactor_of(*known: str) -> Redactor:
    """Looks for these values."""
    redactor = Redactor()
    for value in known:
        redactor.add(value)
    return redactor


def in_every_unit(value: str) -> str:
    """JSON in which each UTF-16 unit is escaped."""
    units = value.encode("utf-16-be").hex()
    return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))


@pytest.mark.parametrize(
    "form",
    [
        VALUE,
        quote(VALUE),
        quote(VALUE, safe=""),
        quote(VALUE, safe="").lower(),
        quote_plus(VALUE),
        quote(VALUE, safe="!'()*"),
        "".join(f"%{byte:02x}" for byte in VALUE.encode()),
        json.dumps(VALUE)[1:-1],
        json.dumps(VALUE, ensure_ascii=False)[1:-1],
        json.dumps(VALUE)[1:-1].replace("/", "\\/"),
        json.dumps(VALUE)[1:-1].replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"),
        json.dumps(json.dumps(VALUE))[3:-3],
        in_every_unit(VALUE),
        in_every_unit(VALUE).upper().replace("\\U", "\\u"),
        base64.b64encode(VALUE.encode()).decode(),
        base64.urlsafe_b64encode(VALUE.encode()).decode().rstrip("="),
        VALUE.encode().hex(),
        VALUE.encode().hex().upper(),
    ],
)
def test_a_value_is_replaced_in_each_form(form: str) -> None:
    assert redactor_of(VALUE).redact(f"before {form} after") == f"before {REDACTED} after"


@given(st.binary(max_size=7), st.binary(max_size=7), st.booleans())
def test_a_value_within_longer_base64_is_broken_up(before: bytes, after: bytes, for_urls: bool) -> None:
    encode = base64.urlsafe_b64encode if for_urls else base64.b64encode
    text = encode(before + b"a-long?secret~value" + after).decode()
    assert REDACTED in redactor_of("a-long?secret~value").redact(text)


def test_each_line_of_a_key_is_a_value_of_its_own() -> None:
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\nAQEFAASCBKcwggSjAgEAAoIB\n-----END KEY-----"
    redactor = redactor_of(key)
    assert redactor.redact("line AQEFAASCBKcwggSjAgEAAoIB") == f"line {REDACTED}"
    assert redactor.redact("-----BEGIN KEY-----") == "-----BEGIN KEY-----"


@given(values, st.lists(st.text(st.sampled_from('ab/é\\\n"%😀+ 0F=c')), max_size=6), st.randoms())
@settings(max_examples=300, deadline=None)
def test_no_form_of_a_value_is_left_in_a_text(known: list[str], between: list[str], random: object) -> None:
    redactor = redactor_of(*known)
    every = sorted(form for value in known for form in forms(value))
    text = "".join(piece + random.choice(every) for piece in between)  # type: ignore[attr-defined]
    # The mark itself may hold a very short value; what stands between the marks may not.
    assert not [form for form in every for part in redactor.redact(text).split(REDACTED) if form in part]


@given(values, st.data())
@settings(max_examples=300, deadline=None)
def test_a_stream_gives_the_same_however_it_is_cut(known: list[str], data: st.DataObject) -> None:
    redactor = redactor_of(*known)
    every = sorted({form for value in known for form in forms(value)})
    part = st.one_of(st.sampled_from(every), st.text(st.sampled_from("ab/é%\\+"), max_size=5))
    text = "".join(data.draw(st.lists(part, max_size=6)))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    stream = StreamRedactor(redactor)
    shown = [stream.feed(text[a:b]) for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert "".join([*shown, stream.finish()]) == redactor.redact(text)


@pytest.mark.parametrize("form", sorted(forms("a-secret/of some length")))
def test_no_cut_lets_a_form_out(form: str) -> None:
    redactor = redactor_of("a-secret/of some length")
    for cut in range(len(form) + 1):
        stream = StreamRedactor(redactor)
        assert (
            stream.feed(f"x{form[:cut]}") + stream.feed(f"{form[cut:]}y") + stream.finish() == f"x{REDACTED}y"
        )
    stream = StreamRedactor(redactor)
    assert "".join(map(stream.feed, form)) + stream.finish() == REDACTED


def test_a_stream_shows_at_once_what_cannot_become_a_value() -> None:
    stream = StreamRedactor(redactor_of("a-long-secret"))
    assert stream.feed("nothing here; a-lo") == "nothing here; "
    assert stream.feed("t of it") == "a-lot of it"


def test_a_stream_holds_back_no_more_than_the_longest_form() -> None:
    value = "a" * 40
    stream = StreamRedactor(redactor_of(value))
    longest = max(map(len, forms(value)))
    given_, shown = 0, 0
    for _ in range(2_000):
        given_ += 7
        shown += stream.feed("a" * 7).count(REDACTED) * len(value)
        assert given_ - shown <= longest + 7


def test_a_stream_without_values_passes_everything_on() -> None:
    stream = StreamRedactor(Redactor())
    assert (stream.feed("abc"), stream.finish()) == ("abc", "")


def test_the_longer_of_two_values_is_replaced_whole() -> None:
    assert redactor_of("secret", "secret-longer").redact("secret-longer secret") == f"{REDACTED} {REDACTED}"


def test_a_text_without_a_value_is_the_same_object() -> None:
    text = "x" * 1000
    assert redactor_of("a-long-secret").redact(text) is text


def test_json_keeps_its_shape() -> None:
    value = {"1234": [1234, 12.5, True, None, "a 1234"], "b": {"c": 91234}}
    clean = redact_json(value, redactor_of("1234").redact)
    assert clean == {
        REDACTED: [REDACTED, 12.5, True, None, f"a {REDACTED}"],
        "b": {"c": f"9{REDACTED}"},
    }


def best_of(times: int, work: object) -> float:
    """Seconds of the quickest run: what the machine does besides is not what is measured."""

    def once() -> float:
        began = time.perf_counter()
        work()  # type: ignore[operator]
        return time.perf_counter() - began

    return min(once() for _ in range(times))


def test_a_megabyte_is_searched_for_twenty_values_in_twenty_milliseconds() -> None:
    redactor = redactor_of(*(f"sk-{number:03}-{'k3yQ' * 8}" for number in range(20)))
    entry = {"path": "src/module.py", "content": 'a line of "text"\nand another, 100 % of it', "size": 4711}
    text = json.dumps([entry] * 12_000)[:1_000_000]
    assert redactor.redact(text) is text
    assert best_of(7, lambda: redactor.redact(text)) <= 0.020


def test_nothing_is_searched_before_a_value_is_known() -> None:
    text, redactor = "x" * 1_000_000, Redactor()
    assert best_of(5, lambda: redactor.redact(text)) < 0.000_05


def test_the_time_of_a_stream_grows_with_its_length_alone() -> None:
    redactor = redactor_of("a-long-secret-value-of-forty-characters!")

    def feed(count: int) -> float:
        stream = StreamRedactor(redactor)
        return best_of(3, lambda: [stream.feed("a-long-secret-valu") for _ in range(count)])

    assert feed(8_000) < 6 * feed(2_000) + 0.01


@pytest.mark.parametrize("arguments", [("key %s", "a-long-secret"), ("a-long-secret %d", "no number")])
def test_no_log_record_holds_a_value(caplog: pytest.LogCaptureFixture, arguments: tuple[str, ...]) -> None:
    redactor = redactor_of("a-long-secret")
    with redacted_logging(redactor):
        logging.getLogger("any.one").warning(*arguments)
    logging.getLogger("any.one").warning("a-long-secret")
    assert [REDACTED in message for message in caplog.messages] == [True, False]
    assert "a-long-secret" not in caplog.messages[0]


def test_no_logged_trace_holds_a_value(caplog: pytest.LogCaptureFixture) -> None:
    with redacted_logging(redactor_of("a-long-secret")):
        try:
            raise ValueError("a-long-secret")
        except ValueError:
            logging.getLogger("any.one").exception("it broke")
    assert f"ValueError: {REDACTED}" in caplog.text
    assert "a-long-secret" not in caplog.text


def test_a_record_of_another_time_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    with redacted_logging(Redactor()):
        logging.getLogger("any.one").warning("%s", "a-long-secret")
    assert caplog.records[0].args == ("a-long-secret",)


@example("\ud800\udc00")
@given(st.text(min_size=SHORTEST, max_size=20))
def test_any_text_can_be_a_value(value: str) -> None:
    if len(value) >= SHORTEST:
        assert redactor_of(value).redact(f"({value})") == f"({REDACTED})"
