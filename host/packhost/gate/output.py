"""Step eight, the pure part: what a handler returned becomes what a caller may read."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from packhost.errors import PackhostError
from packhost.gate.catalog import Entry
from packhost.gate.display import as_text, spelled_out, whole_characters
from packhost.kinds.untrusted import UNTRUSTED, envelope
from packhost.workspace.redaction import redact_json

__all__ = ["RECORDED_RESULT", "UNTRUSTED", "Output", "check_output", "envelope", "recorded"]
RECORDED_RESULT = 65_536
"""Characters of a result that the record keeps; a longer one is kept as its size and beginning."""


@dataclass(frozen=True, slots=True)
class Output:
    """A checked result: the value, and its text as JSON."""

    value: Any
    text: str


def check_output(entry: Entry, value: Any, limit: int, redact: Callable[[str], str]) -> Output:
    """Hold a result to JSON, the size limit and the declared schema; redact secrets.

    :raises PackhostError: `OUTPUT_INVALID` or `OUTPUT_TOO_LARGE`.
    """
    try:
        text = as_text(value)
    except (ValueError, TypeError, RecursionError):
        raise PackhostError(
            f"`{entry.tool.id}` returned something that is not JSON",
            code="OUTPUT_INVALID",
            hint="tell the pack's author; the call itself ran",
        ) from None
    if len(text) > limit or (not text.isascii() and len(text.encode("utf-8", "surrogatepass")) > limit):
        raise PackhostError(
            f"`{entry.tool.id}` returned more than {limit} bytes",
            code="OUTPUT_TOO_LARGE",
            hint="ask for less, page by page, or raise `limits.max_result_bytes`",
        )
    if not whole_characters(value, text):
        value = spelled_out(value)
        text = as_text(value)
    clean = redact(text)
    if clean is not text and clean != text:
        value = redact_json(json.loads(text), redact)
        text = as_text(value)
    validator = entry.output_validator
    if validator is not None and not validator.is_valid(value):
        first = next(iter(validator.iter_errors(value)))
        why = " ".join(first.message.split())[:300]
        raise PackhostError(
            f"`{entry.tool.id}` returned what its output schema does not allow: {why}",
            code="OUTPUT_INVALID",
            hint="tell the pack's author; the call itself ran",
        )
    return Output(value, envelope(text) if entry.tool.spec.untrusted_output else text)


def recorded(text: str) -> str:
    """A result as the record keeps it: JSON text, cut when it is long."""
    if len(text) <= RECORDED_RESULT:
        return text
    return as_text({"truncated": True, "characters": len(text), "begins": text[:1000]})
