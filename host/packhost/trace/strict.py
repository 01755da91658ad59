"""JSON as RFC 8259 has it: an input's raw text to a value, or to the code of what is wrong with it."""

from __future__ import annotations

import json
import math
import re
from typing import Any

_LITERALS = ("true", "false", "null")
_OPEN_NUMBER = re.compile(r"-?\Z|\.\Z|[eE][+-]?\Z", re.ASCII)
_OPEN_ESCAPE = 6


class Doubled(dict[str, Any]):
    """An object of which a key stood twice; `keys_twice` names those."""

    keys_twice: tuple[str, ...] = ()


class BadInput(ValueError):
    """A raw input cannot be used; `code` is an issue code."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of its members; one that has a key twice remembers it."""
    made = dict(found)
    if len(made) == len(found):
        return made
    seen: set[str] = set()
    twice = [key for key, _ in found if key in seen or seen.add(key)]  # type: ignore[func-returns-value]
    doubled = Doubled(made)
    doubled.keys_twice = tuple(twice)
    return doubled


def parse(text: str) -> Any:
    """The value of a raw input.

    Raises `BadInput`: `INPUT_JSON_INCOMPLETE` for a text that is only the beginning of JSON,
    `INPUT_JSON_INVALID`, `INPUT_DUPLICATE_KEY`, `INPUT_NONFINITE_NUMBER`.
    """
    try:
        value = json.loads(text, object_pairs_hook=pairs)
    except json.JSONDecodeError as error:
        code = "INPUT_JSON_INCOMPLETE" if _cut(text, error) else "INPUT_JSON_INVALID"
        raise BadInput(code, f"{error.msg.lower()} at character {error.pos}") from None
    except RecursionError:
        raise BadInput("INPUT_JSON_INVALID", "it is nested too deeply to be read") from None
    except ValueError:
        raise BadInput("INPUT_NONFINITE_NUMBER", "a number has too many digits to be held") from None
    inspect(value)
    return value


def inspect(value: Any) -> None:
    """Raises `BadInput` for a key that stands twice, or a number that JSON does not have, at any depth."""
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, Doubled):
            raise BadInput("INPUT_DUPLICATE_KEY", "a key stands twice in one object")
        if isinstance(one, dict):
            left.extend(one.values())
        elif isinstance(one, list):
            left.extend(one)
        elif isinstance(one, float) and not math.isfinite(one):
            raise BadInput("INPUT_NONFINITE_NUMBER", "it holds a number that is not finite")


def _cut(text: str, error: json.JSONDecodeError) -> bool:
    """Whether the text could go on to become JSON where the reader stopped."""
    rest = text[error.pos : error.pos + 16].rstrip()
    if not rest or error.msg.startswith("Unterminated string"):
        return True
    if error.msg.startswith("Invalid") and "escape" in error.msg:
        return len(text) - error.pos < _OPEN_ESCAPE and '"' not in rest
    if len(text.rstrip()) - error.pos > len(rest):
        return False
    return any(word.startswith(rest) for word in _LITERALS) or _OPEN_NUMBER.match(rest) is not None


def fingerprint(value: Any) -> str:
    """A text that two JSON values share only when they are the same, types included."""
    try:
        return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    except (RecursionError, TypeError, ValueError):
        return f"unreadable {id(value)}"
