"""Durations, sizes and scopes as people write them in a file, and the values that they stand for.

Shared by manifests and `packhost.yaml`.
"""

from __future__ import annotations

import math
import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, StrictBool, StrictInt, WithJsonSchema
from pydantic_core import PydanticCustomError

from packhost.errors import PackhostError
from packhost.names import nearest
from packhost.rules.scopes import parse_scope

_AMOUNT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*\Z", re.ASCII)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {
    "B": 1,
    "KB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "KiB": 1024,
    "MiB": 1024**2,
    "GiB": 1024**3,
}
_LONGEST = 366 * 86400.0
_LARGEST = 1024**4


def fault(message: str, hint: str = "") -> PydanticCustomError:
    """An error for a validator to raise: a sentence of ours with a hint, kept apart from it."""
    return PydanticCustomError("packhost", "{message}", {"message": message, "hint": hint})


def parse_duration(value: object) -> float:
    """Seconds of `60s`, `10m`, `1h`, `500ms`, `2d` or of a plain number of seconds; at most 366 days.

    Raises `PydanticCustomError`, a `ValueError`.
    """
    seconds = _amount(value, _SECONDS, "a duration", "write `60s`, `10m`, `1h` or a number of seconds")
    if not 0 < seconds <= _LONGEST:
        raise fault(f"a duration of `{value}` is out of range", "it is more than 0 and at most `366d`")
    return seconds


def parse_size(value: object) -> int:
    """Bytes of `1MiB`, `64KiB`, `10MB` or of a plain number of bytes; at most 1024 GiB.

    Raises `PydanticCustomError`, a `ValueError`.
    """
    size = _amount(value, _BYTES, "a size", "write `64KiB`, `1MiB` or a number of bytes")
    if not 1 <= size <= _LARGEST:
        raise fault(f"a size of `{value}` is out of range", "it is between `1B` and `1024GiB`")
    return int(size)


def _amount(value: object, units: dict[str, Any], what: str, hint: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise fault(f"{what} is expected here", hint)
    if not isinstance(value, str):
        if not math.isfinite(value):
            raise fault(f"{what} cannot be `{value}`", hint)
        return float(value)
    found = _AMOUNT.match(value)
    if found is None:
        raise fault(f"`{value}` is not {what}", hint)
    number, unit = found.groups()
    if not unit:
        return float(number)
    if unit not in units:
        near = nearest(unit, units, 1)
        said = f"; did you mean `{number}{near[0]}`?" if near else ""
        raise fault(f"`{unit}` is not a unit of {what}{said}", hint)
    return float(number) * float(units[unit])


def check_scope(text: str) -> str:
    """The line itself when it is a scope.

    Raises `PydanticCustomError`, a `ValueError`, with the nearest right word.
    """
    try:
        parse_scope(text)
    except PackhostError as error:
        raise fault(error.message, error.hint) from None
    return text


Duration = Annotated[
    float,
    BeforeValidator(parse_duration),
    WithJsonSchema(
        {
            "description": "`60s`, `10m`, `1h`, or a number of seconds.",
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0},
                {"type": "string", "pattern": r"^\s*\d+(\.\d+)?\s*(ms|s|m|h|d)?\s*$"},
            ],
        }
    ),
]
Size = Annotated[
    int,
    BeforeValidator(parse_size),
    WithJsonSchema(
        {
            "description": "`64KiB`, `1MiB`, or a number of bytes.",
            "anyOf": [
                {"type": "integer", "minimum": 1},
                {"type": "string", "pattern": r"^\s*\d+(\.\d+)?\s*(B|[KMG]B|[KMG]iB)?\s*$"},
            ],
        }
    ),
]
ScopeLine = Annotated[str, AfterValidator(check_scope)]
"""One scope as it is written; checked, and kept verbatim for people."""
Flag = StrictBool
Whole = StrictInt
