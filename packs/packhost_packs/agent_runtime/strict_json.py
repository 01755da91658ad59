"""JSON as RFC 8259 has it and no looser: what two readers could understand differently is refused."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

from packhost_packs.agent_runtime.faults import TurnFault

MAX_DEPTH = 128
"""Arrays and objects within each other."""

# A string without an end is one match as well: else each of its quotes would be a new start.
_STRINGS = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_NO_BRACKETS = re.compile(r"[^\[\]{}]+")
_PREFIXES = re.compile(r"(?:-|t|tr|tru|f|fa|fal|fals|n|nu|nul|\\u?[0-9A-Fa-f]{0,3})\Z")


def loads(data: bytes | str, what: str, issue: str = "INPUT_JSON_INVALID", cut: str | None = None) -> Any:
    """Read one JSON value of UTF-8 bytes or of text.

    Raises `TurnFault` (`protocol_error`): with `issue` for a malformed value, nesting deeper than
    `MAX_DEPTH` and half a surrogate pair, with `cut` (else `issue`) for a value that only lacks its
    end, and with an issue of its own for invalid UTF-8, a duplicate key, `NaN` and an infinity.
    """
    text = data if isinstance(data, str) else _decoded(data, what)
    if text.count("[") + text.count("{") > MAX_DEPTH and _is_deep(text):
        raise TurnFault("protocol_error", issue, f"{what} is nested too deeply")
    try:
        value = _DECODER.decode(text)
    except RecursionError:
        raise TurnFault("protocol_error", issue, f"{what} is nested too deeply") from None
    except json.JSONDecodeError as error:
        found = cut if cut is not None and _is_cut(text, error) else issue
        raise TurnFault("protocol_error", found, f"{what} is not valid JSON: {error}") from None
    except ValueError:
        raise TurnFault("protocol_error", issue, f"{what} holds a number with too many digits") from None
    if "\\ud" in text or "\\uD" in text:
        _whole_characters(value, what, issue)
    return value


def dumps(value: Any) -> bytes:
    """The value as compact UTF-8 JSON, members in their own order."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def same(first: Any, second: Any) -> bool:
    """Whether two JSON values are equal, types included: `1`, `1.0` and `true` are three values."""
    if type(first) is not type(second):
        return False
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[key], second[key]) for key in first)
    if isinstance(first, list):
        return len(first) == len(second) and all(map(same, first, second))
    return bool(first == second)


def _decoded(data: bytes, what: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise TurnFault("protocol_error", "SSE_INVALID_UTF8", f"{what} is not valid UTF-8") from None


def _is_deep(text: str) -> bool:
    """Whether brackets nest deeper than `MAX_DEPTH`: innermost pairs are taken out, level by level.

    What does not pair up is not valid JSON and is left to the reader, which says so.
    """
    brackets = _NO_BRACKETS.sub("", _STRINGS.sub("", text))
    for _ in range(MAX_DEPTH):
        fewer = _without_pairs(brackets)
        if fewer == brackets:
            return False
        brackets = fewer
    return _without_pairs(brackets) != brackets


def _without_pairs(brackets: str) -> str:
    return brackets.replace("[]", "\0").replace("{}", "\0").replace("\0", "")


def _is_cut(text: str, error: json.JSONDecodeError) -> bool:
    """Whether more text could make the value valid."""
    rest = text[error.pos :].rstrip()
    return not rest or error.msg.startswith("Unterminated string") or _PREFIXES.match(rest) is not None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                message = f"the key `{key[:80]}` stands twice in one object"
                raise TurnFault("protocol_error", "INPUT_DUPLICATE_KEY", message)
            seen.add(key)
    return found


def _no_constant(word: str) -> NoReturn:
    raise TurnFault("protocol_error", "INPUT_NONFINITE_NUMBER", f"`{word}` is not a JSON number")


def _finite(digits: str) -> float:
    number = float(digits)
    if number in (float("inf"), float("-inf")):
        raise TurnFault("protocol_error", "INPUT_NONFINITE_NUMBER", "a number is too large to be held")
    return number


def _whole_characters(value: Any, what: str, issue: str) -> None:
    try:
        dumps(value)
    except UnicodeEncodeError:
        raise TurnFault("protocol_error", issue, f"{what} holds half of a surrogate pair") from None


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite)
