"""Plain YAML scalars, read strictly: where YAML 1.1 and 1.2 differ, nothing is guessed.

A word is a boolean only as `true` or `false`; numbers are those that every YAML reader agrees on.
What one reader takes as text and another as something else is an error that says to use quotes.
"""

from __future__ import annotations

import math
import re

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)\Z", re.ASCII)
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+\Z", re.ASCII)
_FLOAT = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+][0-9]+)?\Z", re.ASCII)
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]+\.?[0-9]*\Z", re.ASCII)
_EXPONENT = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+\Z", re.ASCII)
_UNDERSCORED = re.compile(r"[-+]?[0-9.][0-9_.]*_[0-9_.]*\Z", re.ASCII)
_OTHER_BASE = re.compile(r"[-+]?0(o[0-7_]+|b[01_]+|x[0-9a-fA-F_]+)\Z", re.ASCII)
_SEXAGESIMAL = re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?\Z", re.ASCII)
_DATE = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ].*)?\Z", re.ASCII)
_NOT_JSON = re.compile(r"[-+]?\.(inf|Inf|INF)\Z|\.(nan|NaN|NAN)\Z")
_WORDS: dict[str, bool | None] = {
    "": None,
    "~": None,
    "null": None,
    "Null": None,
    "NULL": None,
    "true": True,
    "false": False,
}
_DOUBTFUL = {
    **dict.fromkeys(("yes", "Yes", "YES", "on", "On", "ON", "True", "TRUE"), "true"),
    **dict.fromkeys(("no", "No", "NO", "off", "Off", "OFF", "False", "FALSE"), "false"),
}
_SURPRISES = (
    (_LEADING_ZERO, "a number with a leading zero"),
    (_UNDERSCORED, "a number with underscores"),
    (_OTHER_BASE, "a number in another base"),
    (_EXPONENT, "a number with an exponent"),
    (_SEXAGESIMAL, "a number in base sixty"),
    (_DATE, "a date"),
)
_LARGEST = 2**63


class Surprise(ValueError):
    """A plain scalar that YAML readers do not agree on; `hint` says how to write what is meant."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


def read_plain(text: str) -> str | int | float | bool | None:
    """The value of a plain scalar.

    Raises `Surprise` for one that YAML readers take differently or that JSON cannot hold.
    """
    if text in _WORDS:
        return _WORDS[text]
    if text in _DOUBTFUL:
        plain = _DOUBTFUL[text]
        raise Surprise(
            f"`{text}` is a boolean to some YAML readers and text to others",
            f'write `{plain}`, or `"{text}"` for the word',
        )
    first = text[0]
    if first.isascii() and not (first.isdigit() or first in "+-.<"):
        return text
    if text == "<<":
        raise Surprise("merge keys are not read here", "write the keys out")
    return _read_number(text)


def _read_number(text: str) -> str | int | float:
    if _INTEGER.match(text) or _HEXADECIMAL.match(text):
        if len(text) > 20 or not -_LARGEST <= (number := int(text, 0)) < _LARGEST:
            raise Surprise(f"`{_short(text)}` does not fit in 64 bits", "put it in quotes if it is text")
        return number
    if _FLOAT.match(text) and not _LEADING_ZERO.match(text):
        value = float(text)
        if not math.isfinite(value):
            raise Surprise(
                f"`{_short(text)}` is larger than any number here", "put it in quotes if it is text"
            )
        return value
    if _NOT_JSON.match(text):
        raise Surprise(f"`{text}` is not a number that JSON can hold", "put it in quotes if it is text")
    for pattern, what in _SURPRISES:
        if pattern.match(text):
            raise Surprise(
                f"`{_short(text)}` is {what} to some YAML readers and text to others",
                f'write the plain number, or `"{_short(text)}"` for the text'
                if what != "a date"
                else f'write `"{_short(text)}"` for the text',
            )
    return text


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "…"
