"""How text from elsewhere is shown to a person: with nothing in it that hides, reorders or imitates.

Control, bidirectional and invisible characters are written as escapes, long values are cut with their
length and digest, hidden parameters and secrets are redacted, and letters that look like others are told.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any, Final

REDACTED = "[REDACTED]"
VALUE_LIMIT = 2_000
"""Characters of one value that a prompt shows before it says how many more there are."""
LINE_LIMIT = 40
"""Lines of one value that a prompt shows."""
LINE_WIDTH = 100
"""Characters of a line that a dialog shows without breaking it."""
_KEPT = {"\n", "\t", " "}
_HIDING: Final = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"})
_INVISIBLE: Final = frozenset(
    map(chr, (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180B, 0x180C, 0x180D, 0x180F, 0x2800, 0x3164, 0xFFA0))
)
"""Letters, marks and symbols that nobody sees."""
_PLAIN: Final = re.compile(r"[A-Za-z0-9_./@:+-]+\Z")
_WORD: Final = re.compile(r"[^\W\d_]+")
_NAMED: Final = 4
_MARKS: Final = 2


def visible(text: str) -> str:
    """The text with every character that could hide or reorder something written as an escape."""
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return text
    shown: list[str] = []
    marks = 0
    for c in text:
        # more than two marks on one letter reach over the lines around it
        marks = marks + 1 if unicodedata.combining(c) else 0
        hides = c not in _KEPT and (_hides(c) or marks > _MARKS)
        shown.append(_escape(c) if hides else c)
    return "".join(shown)


def _hides(character: str) -> bool:
    number = ord(character)
    return (
        unicodedata.category(character) in _HIDING
        or character in _INVISIBLE
        or 0xFE00 <= number <= 0xFE0F
        or 0xE0100 <= number <= 0xE01EF
    )


def _escape(character: str) -> str:
    number = ord(character)
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def one_line(text: str) -> str:
    """The text as it is when it is plain, else quoted: one line in which nothing looks like our own."""
    return text if _PLAIN.match(text) else visible(json.dumps(text, ensure_ascii=False))


def label(text: str, limit: int = LINE_WIDTH) -> str:
    """A sentence from elsewhere on one line, cut."""
    flat = visible(text).replace("\n", "⏎").replace("\t", " ")
    return flat if len(flat) <= limit else f"{flat[: limit - 1]}…"


def digest_of(text: str) -> str:
    """The first 16 digits of the SHA-256 of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def shorten(text: str, limit: int = VALUE_LIMIT, lines: int = LINE_LIMIT) -> str:
    """The beginning and the end of a long text; between them how much was left out of what."""
    if len(text) <= limit and text.count("\n") < lines:
        return text
    rows = text.split("\n")
    tail = "\n".join(rows[-lines // 4 :])[-limit // 4 :] if len(rows) > 1 else text[-limit // 4 :]
    head = "\n".join(rows[: lines - lines // 4])[: limit - limit // 4]
    left = len(text) - len(head) - len(tail)
    return f"{head}\n… {left} of {len(text)} characters left out, sha256 {digest_of(text)} …\n{tail}"


def quoted(text: str) -> list[str]:
    """Lines of content, each behind a bar, so that none can pass for a line of the prompt."""
    return [f"  | {line}" for line in visible(text).split("\n")]


def lookalikes(text: str, *, short: bool) -> list[str]:
    """What a person would overlook: letters of other alphabets, or of two in one word.

    `short` values, such as paths and names, are told of any letter that is not ASCII; in longer text only
    words that mix alphabets are.
    """
    if text.isascii():
        return []
    found: dict[str, None] = {}
    for word in _WORD.findall(text):
        alphabets = {_alphabet(letter) for letter in word}
        if short or (len(alphabets) > 1 and "LATIN" in alphabets) or alphabets & _STYLED:
            found.update(dict.fromkeys(c for c in word if not c.isascii() and not _hides(c)))
    return [f"{letter} is {unicodedata.name(letter, 'unnamed')} ({_escape(letter)})" for letter in found]


_STYLED: Final = frozenset({"FULLWIDTH", "MATHEMATICAL", "DOUBLE-STRUCK", "SCRIPT", "BLACK-LETTER"})


def _alphabet(letter: str) -> str:
    return "LATIN" if letter.isascii() else unicodedata.name(letter, "?").split(" ")[0]


def display_arguments(
    arguments: Mapping[str, Any], hidden: Iterable[str], private: Iterable[str] = ()
) -> dict[str, Any]:
    """The arguments as they are recorded and shown: hidden and private ones redacted."""
    shown = dict(arguments)
    for name in hidden:
        if name in shown:
            shown[name] = REDACTED
    for name in private:
        if name in shown:
            shown[name] = covered(shown[name])
    return shown


def covered(value: Any) -> Any:
    """What is shown of a private value: of an object the names, and nothing else."""
    return dict.fromkeys(value, REDACTED) if isinstance(value, Mapping) else REDACTED


def whole_lines(arguments: Mapping[str, Any]) -> list[str]:
    """Every argument in full, nothing cut."""
    return argument_lines(arguments, cut=False)


def argument_lines(arguments: Mapping[str, Any], paths: Iterable[str] = (), *, cut: bool = True) -> list[str]:
    """Each argument below its name: text on one line in quotes, other content behind bars."""
    lines: list[str] = []
    names = list(arguments)
    shown = names[:LINE_LIMIT] if cut else names
    for name in shown:
        lines += _one_argument(name, arguments[name], name in paths, cut)
    if len(shown) < len(names):
        rest = digest_of(json.dumps({n: arguments[n] for n in names[len(shown) :]}, sort_keys=True))
        lines.append(f"  … {len(names) - len(shown)} more arguments, sha256 {rest}")
    return lines or ["  (no arguments)"]


def _one_argument(name: str, value: Any, is_path: bool, cut: bool) -> list[str]:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
    title = label(one_line(name))
    short = len(text) <= 300 and "\n" not in text
    if isinstance(value, str) and short:
        lines = [f"  {title}: {visible(json.dumps(text, ensure_ascii=False))}"]
    elif short:
        lines = [f"  {title}: {visible(text)}"]
    else:
        many = text.count("\n") + 1
        lines = [f"  {title}: {len(text)} characters, {many} {'lines' if many > 1 else 'line'}"]
        lines += quoted(shorten(text) if cut else text)
    return [*lines, *_notes(text, short or is_path), *_notes(name, True)]


def _notes(text: str, short: bool) -> list[str]:
    found = lookalikes(text[:100_000], short=short)
    told = [f"  ! {note}" for note in found[:_NAMED]]
    return [*told, f"  ! and {len(found) - _NAMED} more such letters"] if len(found) > _NAMED else told


def as_text(value: Any) -> str:
    """A value as compact JSON that any file can hold: half a character, a lone surrogate, as its escape.

    :raises ValueError: when it holds NaN, an infinity or a cycle.
    :raises TypeError: when it holds something that JSON cannot.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def whole_characters(value: Any, text: str) -> bool:
    """Whether a value holds no half character; `text` is what `as_text` made of it."""
    return "\\ud" not in text or spelled_out(value) == value


def spelled_out(value: Any) -> Any:
    """The same JSON with what UTF-8 cannot carry, a lone surrogate, written out as its escape."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {spelled_out(key): spelled_out(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [spelled_out(member) for member in value]
    return value
