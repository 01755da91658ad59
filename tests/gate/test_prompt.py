"""What a person is shown: all of the call, and nothing in it that hides or passes for our own words."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packhost.errors import Place
from packhost.gate.display import argument_lines, lookalikes, one_line, shorten, visible, whole_lines
from packhost.gate.prompt import Question
from packhost.rules.policy import NamedApproval, Reason

OWN = (
    "Allow ",
    "Would do: ",
    "Whole: ",
    "Asked by ",
    "Why you are asked: ",
    "It stands for: ",
    "Needed: ",
    "Arguments, ",
    "What it would do, ",
    "Approval ",
)


def prompt(arguments: dict[str, Any] | None = None, **changes: Any) -> str:
    facts: dict[str, Any] = {
        "approval_id": "ap_1",
        "tool": "workspace:write_file",
        "tool_version": "1.0.0+abc",
        "arguments": {"path": "src/a.txt"} if arguments is None else arguments,
        "paths": {"path"},
        "preview": "",
        "reasons": (Reason("rule", "writes are looked at first", Place("packhost.yaml", 8, 5)),),
        "approvals": (),
        "approvers": 1,
        "assurance": "client",
        "client": "claude-code",
        "principal": "ann",
        "session": "s-1",
        "level": "guarded",
        "run": None,
        "expires_in": 600.0,
        "expires_at": 1_800_000_000.0,
        **changes,
    }
    return Question(**facts).text()


def test_a_prompt_tells_everything_that_the_answer_is_about() -> None:
    text = prompt(
        run="run_9",
        approvals=(NamedApproval("workspace:w", "Writing"),),
        approvers=2,
        assurance="operator",
        preview="+new",
    )
    for told in (
        "workspace:write_file",
        "1.0.0+abc",
        'path: "src/a.txt"',
        "writes are looked at first (packhost.yaml:8:5)",
        'calls itself "claude-code" (its own label, no proof)',
        "for ann",
        "session s-1 at level guarded, in run run_9",
        "Writing (workspace:w)",
        "an operator's passphrase",
        "2 different people",
        "  | +new",
        "open until 2027-01-15 08:00:00 UTC",
        "exactly this call, once, and nothing else",
        "packhost approvals show ap_1",
    ):
        assert told in text


def test_the_first_three_lines_say_what_would_run_and_how_to_see_it_whole() -> None:
    first, second, third = prompt({"path": "src/a.txt", "content": "hi"}, preview="+hi").split("\n")[:3]
    assert first == "Allow workspace:write_file path=src/a.txt content=hi?"
    assert second == "Would do: +hi"
    assert third.startswith("Whole: packhost approvals show ap_1")


HOSTILE = [
    "\x1b[2J\x1b[1;1HAllow nothing?",
    "\x1b]0;title\x07",
    "a\u202egpj.exe",
    "a\u2066b\u2069c",
    "zero\u200bwidth\u200d\ufeff",
    "soft\u00adhyphen",
    "tag\U000e0041\U000e0042",
    "filler\u3164\u115f\uffa0\u2800",
    "space\u00a0\u2003\u3000",
    "variation\ufe0f\U000e0101",
    "line\u2028paragraph\u2029next\x85vt\x0bff\x0c",
    "carriage\rAllow",
    "private\ue000",
    "lone\ud800",
    "nul\x00",
    "backspace\x08\x08\x08",
    "heaped" + "\u0336" * 40,
]


@pytest.mark.parametrize("value", HOSTILE)
def test_nothing_in_a_value_hides_or_moves_the_cursor(value: str) -> None:
    for place in ({"path": value}, {value: "x"}, {"path": {"deep": [value]}}, {"path": f"a\n{value}"}):
        text = prompt(place, preview=value, client=value, session="s-1")
        assert not [c for c in text if c != "\n" and not c.isprintable()], text
        assert visible(text) == text


@pytest.mark.parametrize("own", OWN)
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r", "\u2028", "\x85", "\x0b"])
def test_no_content_passes_for_a_line_of_the_prompt(own: str, newline: str) -> None:
    forged = f"x{newline}{own}forged{newline}{own}forged"
    honest = prompt().split("\n")
    for text in (
        prompt({"path": forged}),
        prompt({forged: "x"}),
        prompt({"path": [{"a": forged}]}),
        prompt(preview=forged),
        prompt(client=forged),
        prompt(reasons=(Reason("rule", forged),)),
        prompt(approvals=(NamedApproval("a:b", forged),)),
    ):
        lines = [line for line in text.split("\n") if line.startswith(own)]
        assert not [line for line in lines if line.startswith(f"{own}forged")]
        assert len(lines) <= sum(line.startswith(own) for line in honest) + 1


def test_escapes_that_stand_in_a_value_differ_from_those_that_we_write() -> None:
    written, meant = argument_lines({"a": "\\u202e"}), argument_lines({"a": "\u202e"})
    assert written == ['  a: "\\\\u202e"']
    assert meant == ['  a: "\\u202e"']


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("src/\u0430.txt", "CYRILLIC SMALL LETTER A"),
        ("p\u0430ypal.com", "CYRILLIC SMALL LETTER A"),
        ("\u0455\u0441\u043e\u0440\u0435", "CYRILLIC SMALL LETTER DZE"),
        ("\uff41dmin", "FULLWIDTH LATIN SMALL LETTER A"),
        ("\U0001d41adm", "MATHEMATICAL BOLD SMALL A"),
        ("gr\u03bfup", "GREEK SMALL LETTER OMICRON"),
        ("a\u0301bc", "COMBINING"),
    ],
)
def test_letters_that_look_like_others_are_told(value: str, told: str) -> None:
    text = prompt({"path": value})
    if told == "COMBINING":
        assert "look closely" not in text  # an accent is a mark of its own, and seen
        return
    assert f"is {told}" in text
    assert "look closely" in text.split("\n")[1]


def test_a_long_text_in_another_language_is_no_alarm_but_a_mixed_word_is() -> None:
    text = "Это обычный русский текст. " * 20
    assert lookalikes(text, short=False) == []
    assert lookalikes(text + "p\u0430ssword", short=False) == ["\u0430 is CYRILLIC SMALL LETTER A (\\u0430)"]


def test_a_megabyte_is_told_with_its_length_and_digest_and_seen_whole_on_demand() -> None:
    value = "x" * 500_000 + "EVIL" + "y" * 500_000 + "END"
    text = prompt({"path": "src/a", "content": value})
    assert len(text) < 8_000
    assert f"{len(value)} characters, 1 line" in text
    assert hashlib.sha256(value.encode()).hexdigest()[:16] in text
    assert "END" in text
    assert "EVIL" in "\n".join(whole_lines({"content": value}))


def test_many_lines_do_not_push_the_rest_out_of_sight() -> None:
    text = prompt({"content": "\n" * 10_000 + "evil", "path": "src/a"}, preview="\n" * 10_000)
    assert text.count("\n") < 350
    assert 'path: "src/a"' in text
    assert "  | evil" in text


def test_many_arguments_are_counted_and_digested() -> None:
    text = prompt({f"a{number}": number for number in range(10_000)})
    assert len(text) < 8_000
    assert "9960 more arguments, sha256" in text
    assert text.split("\n")[-1].startswith("Approval ap_1")


def test_nested_values_are_laid_out() -> None:
    lines = argument_lines({"options": {"mode": "w", "list": [1, {"deep": True}]}})
    assert lines[0].startswith("  options: ")
    assert '  |   "mode": "w",' in lines
    assert '  |       "deep": true' in lines


def test_blanks_at_the_ends_of_a_value_are_seen() -> None:
    assert argument_lines({"path": "src/a.txt "}) == ['  path: "src/a.txt "']


@pytest.mark.parametrize(("text", "shown"), [("src/a.txt", "src/a.txt"), ("a b=c", '"a b=c"'), ("", '""')])
def test_a_value_in_the_headline_cannot_pass_for_another_argument(text: str, shown: str) -> None:
    assert one_line(text) == shown


@given(st.text(max_size=6_000))
def test_every_text_is_shown_printable_and_bounded(text: str) -> None:
    lines = argument_lines({"a": text})
    assert all(line.startswith("  ") for line in lines)
    assert all(c.isprintable() or c == "\t" for line in lines for c in line)
    assert len(shorten(text)) < 2_300


@given(st.dictionaries(st.text(max_size=10), st.text(max_size=40), max_size=5))
def test_no_argument_is_left_out(arguments: dict[str, str]) -> None:
    lines = whole_lines(arguments)
    shown = [line for line in lines if not line.startswith(("  |", "  !"))]
    assert len(shown) == max(1, len(arguments))
