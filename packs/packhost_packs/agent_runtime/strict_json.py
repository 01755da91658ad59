"""JSON as RFC 8259 has it and no looser: what two readers could understand differently is refused."""

from __future__ import annotations

import json
from typing import Any

from packhost_packs.agent_runtime.faults import TurnFault


def loads(data: bytes, what: str) -> Any:
    """Read one JSON value of UTF-8 bytes.

    Raises `TurnFault` (`protocol_error`) for invalid UTF-8, a cut or malformed value, a duplicate
    key, `NaN` or an infinity, nesting too deep to read, and half a surrogate pair.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise TurnFault("protocol_error", "SSE_INVALID_UTF8", f"{what} is not valid UTF-8") from None
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite)
    except RecursionError:
        raise TurnFault("protocol_error", "INPUT_JSON_INVALID", f"{what} is nested too deeply") from None
    except ValueError as error:
        raise TurnFault(
            "protocol_error", "INPUT_JSON_INVALID", f"{what} is not valid JSON: {error}"
        ) from None
    if "\\ud" in text or "\\uD" in text:
        _whole_characters(value, what)
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


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise TurnFault("protocol_error", "INPUT_DUPLICATE_KEY", f"the key `{key}` stands twice")
            seen.add(key)
    return found


def _no_constant(word: str) -> Any:
    raise TurnFault("protocol_error", "INPUT_NONFINITE_NUMBER", f"`{word}` is not a JSON number")


def _finite(digits: str) -> float:
    number = float(digits)
    if number in (float("inf"), float("-inf")):
        raise TurnFault("protocol_error", "INPUT_NONFINITE_NUMBER", "a number is too large to be held")
    return number


def _whole_characters(value: Any, what: str) -> None:
    try:
        dumps(value)
    except UnicodeEncodeError:
        message = f"{what} holds half of a surrogate pair"
        raise TurnFault("protocol_error", "INPUT_JSON_INVALID", message) from None
