"""Keeping values out of text: in the forms that encoders give them, in whole texts, streams and logs.

A value is looked for as it is, URL-, JSON-, base64- and hex-encoded. Whoever holds a value and means to
carry it out can always encode it in another way: this keeps secrets out of records by accident, and is
no boundary.

Searching costs one look-up each few bytes of text, however many values there are: every form of eight
characters or more holds, wherever it stands, one whole block of four or eight bytes, and each block that
may be one is filed. Only a text with such a block is looked at closely.
"""

from __future__ import annotations

import base64
import json
import logging
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Literal
from urllib.parse import quote, quote_plus

REDACTED: Final = "[REDACTED]"
SHORTEST: Final = 4
"""Characters that a value must have: a shorter one could not be told from ordinary text."""
_PROBED: Final = 8
"""Characters from which a form is probed for; each shorter one is searched for by itself."""
_LONGEST_PIECE: Final = 8
_LONGEST_STRIDE: Final = 64
_WIDTH: Final = {"I": 4, "Q": 8}
"""Bytes of a block by the word that `memoryview.cast` has for it."""
_FEW: Final = 64
"""Different blocks in a text up to which each place of them is looked at, and no other."""
_LINE: Final = 16
"""Characters from which one line of a value counts by itself: what prints a key prints it line by line."""
_COMPONENT: Final = "!'()*"
"""What a browser's `encodeURIComponent` leaves as it is, beyond what is always safe."""


class Redactor:
    """Replaces values by `[REDACTED]`; they can be added, and never taken back."""

    def __init__(self) -> None:
        self._values: dict[str, None] = {}
        self._finder: _Finder | None = None

    @property
    def active(self) -> bool:
        """Whether there is any value to look for."""
        return bool(self._values)

    def add(self, value: str) -> None:
        """Look for `value` from now on; at least `SHORTEST` characters."""
        if value not in self._values:
            self._values[value] = None
            self._finder = None

    def redact(self, text: str) -> str:
        """The text without any value; the very same object when there is none in it."""
        if not self._values:
            return text
        found = list(self.finder.matches(text))
        if not found:
            return text
        parts, at = [], 0
        for start, end in found:
            parts += [text[at:start], REDACTED]
            at = end
        return "".join([*parts, text[at:]])

    @property
    def finder(self) -> _Finder:
        """What finds the values known now."""
        if self._finder is None:
            self._finder = _Finder({form for value in self._values for form in forms(value)})
        return self._finder


class StreamRedactor:
    """`Redactor.redact` for text that comes in pieces: what comes out in all is the same for any cut.

    It holds back only what may be the beginning of a value: at most the longest form. Values that are added
    meanwhile are looked for in what comes after.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held = ""

    def feed(self, chunk: str) -> str:
        """Take the next piece; what can be shown of all so far."""
        if not self._redactor.active:
            return chunk
        finder = self._redactor.finder
        text = self._held + chunk
        pending = finder.pending(text, 0)
        parts, at = [], 0
        for start, end in finder.matches(text):
            if start >= pending:
                break
            parts += [text[at:start], REDACTED]
            at = end
            if end > pending:
                pending = finder.pending(text, end)
        self._held = text[pending:]
        return "".join([*parts, text[at:pending]])

    def finish(self) -> str:
        """The rest; the stream begins anew after it."""
        rest, self._held = self._held, ""
        return self._redactor.redact(rest)


class _Finder:
    """Finds any of a fixed set of literal forms, leftmost and then longest, without overlaps."""

    def __init__(self, known: Iterable[str]) -> None:
        every = sorted(known, key=len, reverse=True)
        self._longest = len(every[0]) if every else 0
        self._short = [form for form in every if len(form) < _PROBED]
        long = [form for form in every if len(form) >= _PROBED]
        shortest = len(long[-1]) if long else _PROBED
        self._piece = min(_LONGEST_PIECE, max(4, shortest // 2))
        self._stride = min(_LONGEST_STRIDE, shortest - self._piece + 1)
        self._pieces: dict[str, list[tuple[str, int]]] = {}
        for form in long:
            for offset in range(self._stride):
                piece = form[offset : offset + self._piece]
                self._pieces.setdefault(piece, []).append((form, offset))
        self._block: Final[Literal["I", "Q"]] = "Q" if shortest >= 2 * _WIDTH["Q"] - 1 else "I"
        self._blocks = frozenset(block for form in long for block in self._blocks_of(form))
        self._heads: dict[str, list[str]] = {}
        for form in every:
            self._heads.setdefault(form[:2], []).append(form)
        self._firsts = frozenset(form[0] for form in every)

    def _blocks_of(self, form: str) -> Iterator[int]:
        data, width = form.encode("utf-8", "surrogatepass"), _WIDTH[self._block]
        for offset in range(width):
            yield int.from_bytes(data[offset : offset + width], sys.byteorder)

    def _near(self, text: str) -> Iterable[int]:
        """Where to probe: at the stride, in all of the text or only where a form can be."""
        data, width = text.encode("utf-8", "surrogatepass"), _WIDTH[self._block]
        words = memoryview(data)[: len(data) // width * width].cast(self._block)
        if self._blocks.isdisjoint(words):
            return ()
        found = self._blocks.intersection(words)
        every = range(0, len(text), self._stride)
        if len(found) > _FEW or len(data) != len(text):
            return every
        near: set[int] = set()
        for block in found:
            sought = block.to_bytes(width, sys.byteorder)
            at = data.find(sought)
            while at >= 0:
                if len(near) > len(every) // 4:
                    return every
                first = max(at - width, 0) // self._stride
                near.update(range(first * self._stride, at + self._stride + 1, self._stride))
                at = data.find(sought, at + 1)
        return near

    def matches(self, text: str) -> Iterator[tuple[int, int]]:
        """Start and end of what is to be replaced, in order."""
        at = 0
        for start, end in self._found(text):
            if start >= at:
                yield start, end
                at = end

    def _found(self, text: str) -> list[tuple[int, int]]:
        pieces, width = self._pieces, self._piece
        probed = [i for i in self._near(text) if text[i : i + width] in pieces]
        longest: dict[int, int] = {}
        for i in probed:
            for form, offset in pieces[text[i : i + width]]:
                start = i - offset
                if start >= 0 and text.startswith(form, start):
                    longest[start] = max(longest.get(start, 0), start + len(form))
        for form in self._short:
            start = text.find(form)
            while start >= 0:
                longest[start] = max(longest.get(start, 0), start + len(form))
                start = text.find(form, start + 1)
        return sorted(longest.items())

    def pending(self, text: str, start: int) -> int:
        """Where, from `start` on, the text ends in what may become a value; its length if nowhere."""
        size = len(text)
        for at in range(max(start, size - self._longest + 1), size):
            if at == size - 1:
                return at if text[at] in self._firsts else size
            for form in self._heads.get(text[at : at + 2], ()):
                if len(form) > size - at and form.startswith(text[at:]):
                    return at
        return size


def forms(value: str) -> frozenset[str]:
    """A value, and each longer line of it, as they may stand in text."""
    parts = [value]
    if "\n" in value:
        lines = (line.strip() for line in value.split("\n"))
        parts += [line for line in lines if len(line) >= _LINE and not line.startswith("-----")]
    found = {form for part in parts for form in _spellings(part)}
    return frozenset(form for form in found if len(form) >= SHORTEST)


def _spellings(value: str) -> set[str]:
    data = value.encode("utf-8", "surrogatepass")
    python = {value.encode("unicode_escape").decode(), repr(value)[1:-1], repr(data)[2:-1]}
    others = {*_in_urls(value, data), *_in_json(value), *_in_base64(data)}
    return {value, *python, *others, data.hex(), data.hex().upper()}


def _in_urls(value: str, data: bytes) -> set[str]:
    text = value.encode("utf-8", "surrogatepass")
    urls = {quote(text, safe=safe) for safe in ("", "/", _COMPONENT)}
    urls |= {quote_plus(text), quote_plus(text, safe="*"), "".join(f"%{byte:02X}" for byte in data)}
    return urls | {re.sub(r"%[0-9A-F]{2}", lambda found: found[0].lower(), url) for url in urls}


def _in_json(value: str) -> set[str]:
    written = {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    written |= {one.replace("/", "\\/") for one in written}
    written |= {re.sub("[<>&'\u2028\u2029]", _escaped, one) for one in written}
    units = value.encode("utf-16-be", "surrogatepass").hex()
    written.add("".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4)))
    written |= {re.sub(r"\\u[0-9a-f]{4}", _upper, one) for one in written}
    return written | {json.dumps(once)[1:-1] for once in written}


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def _upper(found: re.Match[str]) -> str:
    return f"\\u{found[0][2:].upper()}"


def _in_base64(value: bytes) -> set[str]:
    """Base64 of any text that holds the value: at each of three offsets, without the mixed ends."""
    found = set()
    for offset in range(3):
        encoded = base64.b64encode(b"\0" * offset + value).decode().rstrip("=")
        start = (0, 2, 3)[offset]
        end = len(encoded) - (1 if (offset + len(value)) % 3 else 0)
        core = encoded[start:end]
        if len(core) >= _PROBED:
            found.add(core)
    whole = base64.b64encode(value).decode()
    found |= {whole, whole.rstrip("=")}
    return found | {one.replace("+", "-").replace("/", "_") for one in found}


def redact_json(value: Any, redact: Callable[[str], str]) -> Any:
    """A JSON value without any secret in its text, keys and numbers; its shape stays as it is."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {redact(key): redact_json(one, redact) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [redact_json(one, redact) for one in value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        shown = json.dumps(value)
        clean = redact(shown)
        return value if clean == shown else clean
    return value


def redact_json_text(text: str, redact: Callable[[str], str]) -> str:
    """JSON text without any secret, still JSON; the very same text when there is none in it."""
    if redact(text) == text:
        return text
    return json.dumps(redact_json(json.loads(text), redact), ensure_ascii=False, separators=(",", ":"))


def brief(text: str, redact: Callable[[str], str]) -> str:
    """A text on one line of at most 500 characters; redacted before it is cut, or half a value is left."""
    return " ".join(redact(text).split())[:500]


@contextmanager
def redacted_logging(redactor: Redactor) -> Iterator[None]:
    """As long as this lasts no log record of this process holds a value, whatever handles it."""
    before = logging.getLogRecordFactory()

    def make(*args: Any, **more: Any) -> logging.LogRecord:
        record = before(*args, **more)
        if redactor.active:
            _clean(record, redactor.redact)
        return record

    logging.setLogRecordFactory(make)
    try:
        yield
    finally:
        if logging.getLogRecordFactory() is make:
            logging.setLogRecordFactory(before)


_traces: Final = logging.Formatter()


def _clean(record: logging.LogRecord, redact: Callable[[str], str]) -> None:
    try:
        message = record.getMessage()
    except Exception:  # a call of the logger that does not fit; its parts are shown as they are
        message = f"{record.msg} {record.args}"
    record.msg, record.args = redact(message), None
    if record.exc_info:
        # The text stands in for the exception: no handler formats it again.
        record.exc_text = redact(_traces.formatException(record.exc_info)) if record.exc_info[0] else None
        record.exc_info = None
    if record.stack_info:
        record.stack_info = redact(record.stack_info)
