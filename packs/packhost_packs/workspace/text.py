"""Bytes as text, and text as a person can safely look at it."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterator

from packhost.api import ToolFailed

DIFF_LINES = 400
"""Lines of a diff that are shown."""
NO_NEWLINE = "\\ No newline at end of file"
LINE_LENGTH = 300
"""Characters of one shown line."""
_COMPARED = 2_000
"""Changed lines on either side beyond which no line is matched with another: that would take too long."""
_SIGNATURES = (
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"%PDF", "a PDF document"),
    (b"PK\x03\x04", "a ZIP archive"),
    (b"\x1f\x8b", "gzip data"),
    (b"\x7fELF", "an ELF program"),
    (b"SQLite format 3", "an SQLite database"),
    (b"\xff\xfe", "text in UTF-16"),
    (b"\xfe\xff", "text in UTF-16"),
)


def is_binary(data: bytes) -> bool:
    """Whether the start of a file says that it is not text."""
    return b"\0" in data[:8192]


def decode(path: str, data: bytes) -> str:
    """UTF-8, strictly.

    :raises ToolFailed: for anything else, with what it looks like.
    """
    if not is_binary(data):
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            where = f": byte 0x{data[error.start]:02x} at {error.start} does not fit"
    else:
        where = ""
    kind = next(
        (name for start, name in _SIGNATURES if data.startswith(start)), "binary or in another encoding"
    )
    raise ToolFailed(
        f"`{path}` is not UTF-8 text{where}",
        hint=f"it looks like {kind}, and this tool reads text",
        path=path,
    )


def visible(text: str) -> str:
    """The text with each character that could hide or reorder something written as an escape."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        character if character == "\t" or not _hides(character) else _escape(character) for character in text
    )


def _hides(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp")


def _escape(character: str) -> str:
    number = ord(character)
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def shown(line: str) -> str:
    """One line, made visible and cut."""
    cut = (
        line
        if len(line) <= LINE_LENGTH
        else f"{line[:LINE_LENGTH]}… ({len(line) - LINE_LENGTH} more characters)"
    )
    return visible(cut)


def diff(path: str, old: str, new: str) -> str:
    """A unified diff, each line visible and cut, at most `DIFF_LINES` lines; empty when nothing changes."""
    if old == new:
        return ""
    lines: list[str] = []
    for line in _difference(path, _ended(old), _ended(new)):
        if len(lines) >= DIFF_LINES:
            lines.append("… (the diff goes on)")
            break
        lines.append(shown(line.removesuffix("\n")))
        if not line.endswith("\n"):
            lines.append(NO_NEWLINE)
    return "\n".join(lines)


def _ended(text: str) -> list[str]:
    """The lines with their ends, so that a last line without one differs from one that has it."""
    *lines, rest = text.split("\n")
    return [f"{line}\n" for line in lines] + ([rest] if rest else [])


def _difference(path: str, old: list[str], new: list[str]) -> Iterator[str]:
    same = _common(old, new)
    tail = _common(old[same:][::-1], new[same:][::-1])
    if max(len(old), len(new)) - same - tail <= _COMPARED:
        yield from difflib.unified_diff(old, new, f"a/{path}", f"b/{path}")
        return
    yield f"--- a/{path}\n"
    yield f"+++ b/{path}\n"
    yield f"@@ -{same + 1},{len(old) - same - tail} +{same + 1},{len(new) - same - tail} @@\n"
    yield from (f"-{line}" for line in old[same : len(old) - tail])
    yield from (f"+{line}" for line in new[same : len(new) - tail])


def _common(old: list[str], new: list[str]) -> int:
    for count, (left, right) in enumerate(zip(old, new, strict=False)):
        if left != right:
            return count
    return min(len(old), len(new))
