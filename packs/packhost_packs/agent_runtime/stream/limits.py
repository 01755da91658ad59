"""How much of a provider's reply is taken in; `docs/agent-runtime/limits.md` shows the same table."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

from packhost_packs.agent_runtime.faults import TurnFault

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True)
class SafetyLimits:
    """Bounds on one reply; passing one ends the turn with `limit_exceeded`, and nothing of it is run."""

    response_bytes: int = 8 * MIB
    stream_bytes: int = 32 * MIB
    event_bytes: int = 2 * MIB
    events: int = 200_000
    snapshots: int = 200_000
    content_blocks: int = 1024
    tool_calls: int = 128
    argument_bytes: int = 1 * MIB


class Row(NamedTuple):
    """One limit as a reader meets it: its name, the issue that passing it gives, and what it counts."""

    name: str
    issue: str
    counts: str


ROWS = (
    Row("response_bytes", "LIMIT_RESPONSE_BYTES", "bytes of a reply that is not streamed"),
    Row("stream_bytes", "LIMIT_STREAM_BYTES", "bytes of a whole stream, comments and the drain included"),
    Row("event_bytes", "LIMIT_STREAM_BYTES", "bytes of one event, or of one line, that is still incomplete"),
    Row("events", "LIMIT_EVENTS", "events of a stream, those without content included"),
    Row("snapshots", "LIMIT_SNAPSHOTS", "pieces shown while a reply arrives"),
    Row("content_blocks", "LIMIT_BLOCKS", "content blocks of a reply, kept or not"),
    Row("tool_calls", "LIMIT_TOOL_CALLS", "calls of a reply"),
    Row(
        "argument_bytes",
        "LIMIT_ARGUMENT_BYTES",
        "bytes of all arguments of a reply together, counted as the fragments arrive",
    ),
)

_ISSUES = {row.name: row.issue for row in ROWS}
_COUNTS = {row.name: row.counts for row in ROWS}


def exceeded(name: str, limit: int) -> TurnFault:
    """The fault for passing the limit `name`, which stands at `limit`."""
    return TurnFault(
        "limit_exceeded", _ISSUES[name], f"the provider sent more than {limit} {_COUNTS[name]} (`{name}`)"
    )


def table() -> str:
    """The limits with their defaults as Markdown."""
    defaults = {field.name: field.default for field in fields(SafetyLimits)}
    lines = ["| Limit | Default | Counts | Issue |", "| --- | --- | --- | --- |"]
    lines += [f"| `{r.name}` | {defaults[r.name]:,} | {r.counts} | `{r.issue}` |" for r in ROWS]
    return "\n".join(lines) + "\n"
