"""Text from elsewhere with nothing in it that hides, reorders or imitates.

Control, bidirectional and invisible characters are written as escapes; letters that look like others are
told; what stands in Unicode's tag characters, which nobody sees and every model reads, is read out.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_KEPT = {"\n", "\t", " "}
_HIDING: Final = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"})
_INVISIBLE: Final = frozenset(
    map(chr, (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180B, 0x180C, 0x180D, 0x180F, 0x2800, 0x3164, 0xFFA0))
)
"""Letters, marks and symbols that nobody sees."""
_WORD: Final = re.compile(r"[^\W\d_]+")
_MARKS: Final = 2
_TAG: Final = range(0xE0020, 0xE007F)


def visible(text: str) -> str:
    """The text with every character that could hide or reorder something written as an escape."""
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return text
    shown: list[str] = []
    marks = 0
    for c in text:
        # more than two marks on one letter reach over the lines around it
        marks = marks + 1 if unicodedata.combining(c) else 0
        hidden = c not in _KEPT and (hides(c) or marks > _MARKS)
        shown.append(escape(c) if hidden else c)
    return "".join(shown)


def hides(character: str) -> bool:
    """Whether nobody sees the character, or it changes how others are seen."""
    number = ord(character)
    return (
        unicodedata.category(character) in _HIDING
        or character in _INVISIBLE
        or 0xFE00 <= number <= 0xFE0F
        or 0xE0100 <= number <= 0xE01EF
    )


def escape(character: str) -> str:
    """The character by its number."""
    number = ord(character)
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


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
            found.update(dict.fromkeys(c for c in word if not c.isascii() and not hides(c)))
    return [f"{letter} is {unicodedata.name(letter, 'unnamed')} ({escape(letter)})" for letter in found]


_STYLED: Final = frozenset({"FULLWIDTH", "MATHEMATICAL", "DOUBLE-STRUCK", "SCRIPT", "BLACK-LETTER"})


def _alphabet(letter: str) -> str:
    return "LATIN" if letter.isascii() else unicodedata.name(letter, "?").split(" ")[0]


def tagged(text: str) -> str:
    """What the text says in tag characters, each of which stands for a letter that it does not show."""
    return "".join(chr(ord(c) - 0xE0000) for c in text if ord(c) in _TAG)
