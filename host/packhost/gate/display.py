"""How text from elsewhere is shown to a person: with nothing in it that hides, reorders or imitates.

Control, bidirectional and invisible characters are written as escapes, long values are cut with their
length and digest, hidden parameters and secrets are redacted, and letters that look like others are told.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from packhost.characters import lookalikes, visible

__all__ = [
    "LINE_LIMIT",
    "LINE_WIDTH",
    "REDACTED",
    "VALUE_LIMIT",
    "argument_lines",
    "as_text",
    "covered",
    "digest_of",
    "display_arguments",
    "label",
    "lookalikes",
    "one_line",
    "quoted",
    "shorten",
    "spelled_out",
    "visible",
    "whole_characters",
    "whole_lines",
]

REDACTED = "[REDACTED]"
VALUE_LIMIT = 2_000
"""Characters of one value that a prompt shows before it says how many more there are."""
LINE_LIMIT = 40
"""Lines of one value that a prompt shows."""
LINE_WIDTH = 100
"""Characters of a line that a dialog shows without breaking it."""
_PLAIN: Final = re.compile(r"[A-Za-z0-9_./@:+-]+\Z")
_NAMED: Final = 4


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
