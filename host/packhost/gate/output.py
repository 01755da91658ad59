"""Step eight, the pure part: what a handler returned becomes what a caller may read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from packhost.errors import PackhostError
from packhost.gate.catalog import Entry
from packhost.gate.display import as_text, spelled_out, whole_characters
from packhost.kinds.content import Block, Content, block_fault, text_of, value_of
from packhost.kinds.untrusted import UNTRUSTED, envelope
from packhost.workspace.redaction import redact_json

__all__ = ["RECORDED_RESULT", "UNTRUSTED", "Output", "check_output", "envelope", "recorded"]
RECORDED_RESULT = 65_536
"""Characters of a result that the record keeps; a longer one is kept as its size and beginning."""


@dataclass(frozen=True, slots=True)
class Output:
    """A checked result: the value, its text as a model reads it, and its blocks where it has any."""

    value: Any
    text: str
    blocks: tuple[Block, ...] = ()
    kept: str = ""
    """What the record keeps, where that is not the text."""


def check_output(entry: Entry, value: Any, limit: int, redact: Callable[[str], str]) -> Output:
    """Hold a result to JSON, the size limit and the declared schema; redact secrets.

    :raises PackhostError: `OUTPUT_INVALID` or `OUTPUT_TOO_LARGE`.
    """
    if isinstance(value, Content):
        return _check_content(entry, value, limit, redact)
    value, text = _checked(entry, value, limit, redact)
    _check_schema(entry, value)
    return Output(value, envelope(text) if entry.tool.spec.untrusted_output else text)


def _check_content(entry: Entry, content: Content, limit: int, redact: Callable[[str], str]) -> Output:
    """The same for content blocks; the structured data beside them is what a schema speaks of."""
    fault = next((said for block in content.blocks if (said := block_fault(block)) is not None), None)
    if fault is not None or (content.data is not None and not isinstance(content.data, Mapping)):
        raise PackhostError(
            f"`{entry.tool.id}` returned content of no known form: {fault or 'its data is not an object'}",
            code="OUTPUT_INVALID",
            hint="tell the pack's author; the call itself ran",
        )
    whole, _ = _checked(entry, {"blocks": list(content.blocks), "data": content.data}, limit, redact)
    clean = Content(tuple(whole["blocks"]), whole["data"])
    if entry.output_validator is not None:
        _check_schema(entry, clean.data)
    untrusted = entry.tool.spec.untrusted_output
    value = value_of(clean)
    kept = as_text(value)
    text = text_of(clean.blocks) if clean.blocks else kept
    return Output(
        value,
        envelope(text) if untrusted else text,
        tuple(map(_marked, clean.blocks)) if untrusted else clean.blocks,
        envelope(kept) if untrusted else kept,
    )


def _checked(entry: Entry, value: Any, limit: int, redact: Callable[[str], str]) -> tuple[Any, str]:
    """A value as plain JSON within the limit, without secrets, and its text."""
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
    return value, text


def _check_schema(entry: Entry, value: Any) -> None:
    validator = entry.output_validator
    if validator is not None and not validator.is_valid(value):
        first = next(iter(validator.iter_errors(value)))
        why = " ".join(first.message.split())[:300]
        raise PackhostError(
            f"`{entry.tool.id}` returned what its output schema does not allow: {why}",
            code="OUTPUT_INVALID",
            hint="tell the pack's author; the call itself ran",
        )


def _marked(block: Block) -> Block:
    """A block with marks around its text, which nobody vouches for."""
    if block["type"] == "text":
        return {**block, "text": envelope(block["text"])}
    if block["type"] == "resource" and "text" in block["resource"]:
        return {**block, "resource": {**block["resource"], "text": envelope(block["resource"]["text"])}}
    return block


def recorded(text: str) -> str:
    """A result as the record keeps it: JSON text, cut when it is long."""
    if len(text) <= RECORDED_RESULT:
        return text
    return as_text({"truncated": True, "characters": len(text), "begins": text[:1000]})
