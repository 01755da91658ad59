"""YAML as a person would write it, for the files that packhost writes and a person then edits."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from packhost.characters import visible
from packhost.workspace.rewriting import scalar

_WIDE: Final = 100


def block(value: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """A mapping, a line a member, what is large below it."""
    for key, inner in value.items():
        yield from _member(scalar(str(key)), inner, indent)


def entry(value: Mapping[str, Any], indent: str = "") -> list[str]:
    """A mapping as one entry of a list."""
    lines = list(block(value, f"{indent}  "))
    return [f"{indent}- {lines[0][len(indent) + 2 :]}", *lines[1:]]


def _member(key: str, value: Any, indent: str) -> Iterator[str]:
    flat = _flat(value)
    if flat is not None and len(indent) + len(key) + len(flat) < _WIDE:
        yield f"{indent}{key}: {flat}"
    elif isinstance(value, Mapping):
        yield f"{indent}{key}:"
        yield from block(value, f"{indent}  ")
    elif isinstance(value, list | tuple):
        yield f"{indent}{key}:"
        for one in value:
            yield from _item(one, f"{indent}  ")
    elif isinstance(value, str) and _literal(value):
        yield f"{indent}{key}: |-"
        yield from (f"{indent}  {line}" if line else "" for line in value.split("\n"))
    else:
        yield f"{indent}{key}: {_scalar(value)}"


def _item(value: Any, indent: str) -> Iterator[str]:
    flat = _flat(value)
    if flat is not None and len(indent) + len(flat) < _WIDE:
        yield f"{indent}- {flat}"
    elif isinstance(value, Mapping) and value:
        yield from entry(value, indent)
    elif isinstance(value, list | tuple) and value:
        yield f"{indent}-"
        for one in value:
            yield from _item(one, f"{indent}  ")
    else:
        yield f"{indent}- {_scalar(value)}"


def _flat(value: Any, deep: int = 0) -> str | None:
    """A value on one line; `None` for one that is better read on several."""
    if isinstance(value, Mapping):
        if not value:
            return "{}"
        inner = [(scalar(str(key)), _flat(one, deep + 1)) for key, one in value.items()]
        if deep > 1 or any(one is None for _, one in inner):
            return None
        return "{" + ", ".join(f"{key}: {one}" for key, one in inner) + "}"
    if isinstance(value, list | tuple):
        items = [_flat(one, deep + 1) for one in value]
        return None if any(one is None for one in items) else f"[{', '.join(map(str, items))}]"
    return None if isinstance(value, str) and "\n" in value else _scalar(value)


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        return scalar(value)
    if isinstance(value, Mapping | list | tuple):
        return "{}" if isinstance(value, Mapping) else "[]"
    return json.dumps(value)


def _literal(text: str) -> bool:
    """Whether a text can stand line by line as it is, with nothing lost and nothing hidden."""
    lines = text.split("\n")
    return (
        len(lines) > 1
        and visible(text) == text
        and "\t" not in text
        and bool(lines[0])
        and bool(lines[-1])
        and not lines[0].startswith(" ")
        and all(line == line.rstrip() for line in lines)
    )
