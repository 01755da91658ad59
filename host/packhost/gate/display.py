"""How a call is shown to a person: exactly what will run, with nothing that hides.

Control and bidirectional characters are written as escapes, long values are cut with their length
and digest, hidden parameters and secrets are redacted.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

REDACTED = "[REDACTED]"
VALUE_LIMIT = 2_000
"""Characters of one argument that a prompt shows before it says how many more there are."""
LINE_WIDTH = 100
"""Characters of a line that a dialog shows without breaking it."""
_KEPT = {"\n", "\t"}


def visible(text: str) -> str:
    """The text with every character that could hide or reorder something written as an escape."""
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "".join(
        c if c in _KEPT or unicodedata.category(c) not in ("Cc", "Cf", "Co", "Cs", "Zl", "Zp") else _escape(c)
        for c in text
    )


def _escape(character: str) -> str:
    number = ord(character)
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def shorten(text: str, limit: int = VALUE_LIMIT) -> str:
    """At most `limit` characters, then how many were left out and the digest of the whole."""
    if len(text) <= limit:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{text[:limit]}… ({len(text) - limit} more characters, sha256 {digest})"


def display_arguments(arguments: Mapping[str, Any], hidden: Iterable[str]) -> dict[str, Any]:
    """The arguments as they are recorded and shown: hidden ones redacted."""
    if not hidden:
        return dict(arguments)
    covered = frozenset(hidden)
    return {name: REDACTED if name in covered else value for name, value in arguments.items()}


def argument_lines(arguments: Mapping[str, Any]) -> list[str]:
    """One line an argument; text that spans lines is indented below its name."""
    lines: list[str] = []
    for name, value in arguments.items():
        shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        shown = visible(shorten(shown))
        if "\n" in shown:
            lines.append(f"  {visible(name)}:")
            lines.extend(f"    {line}" for line in shown.split("\n"))
        else:
            lines.append(f"  {visible(name)}: {shown}")
    return lines or ["  (no arguments)"]


def question(
    *,
    tool: str,
    client: str,
    reasons: Iterable[str],
    arguments: Mapping[str, Any],
    preview: str,
    approval_id: str,
    expires_in: float,
) -> str:
    """The whole text of an approval's prompt.

    Claude Code shows three lines of a dialog and counts the rest, so the first three say what would
    run, what would change, and how to see everything; what follows says the same at length.
    """
    said = [visible(reason) for reason in reasons]
    lines = [headline(tool, arguments)]
    if preview:
        lines.append(f"Would do: {gist(preview)}")
    lines.append(f"Whole: packhost approvals show {approval_id} · once, within {_minutes(expires_in)}")
    lines.append(f"Asked by client `{visible(client)}`.")
    lines.extend(f"Why you are asked: {reason}" for reason in said)
    lines.append("Arguments:")
    lines.extend(argument_lines(arguments))
    if preview:
        lines += ["What it would do:", visible(preview)]
    lines.append(f"Approval {approval_id}. Accepting allows exactly this call, once.")
    return "\n".join(lines)


def headline(tool: str, arguments: Mapping[str, Any]) -> str:
    """One line: the tool and its shortest arguments, the first of them first."""
    text = f"Allow {tool}"
    for name, value in arguments.items():
        shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        shown = visible(shown).replace("\n", "⏎").replace("\t", " ")
        part = f" {visible(name)}={shown}"
        text += part if len(text) + len(part) <= LINE_WIDTH else f" {visible(name)}=…"
    return f"{shorten_line(text)}?"


def gist(preview: str) -> str:
    """A preview in one line: of a diff its changed lines, else its first lines."""
    lines = [line for line in visible(preview).split("\n") if line.strip()]
    changed = [line for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    return shorten_line(" ⏎ ".join(changed or lines))


def shorten_line(text: str) -> str:
    """At most a dialog's width."""
    return text if len(text) <= LINE_WIDTH else f"{text[: LINE_WIDTH - 1]}…"


def _minutes(seconds: float) -> str:
    return f"{round(seconds)} s" if seconds < 120 else f"{round(seconds / 60)} min"


def as_text(value: Any) -> str:
    """A value as compact JSON.

    :raises ValueError: when it holds NaN, an infinity or a cycle.
    :raises TypeError: when it holds something that JSON cannot.
    """
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
