"""The only path to a call: admit, cover, decide, approve, intent, run, record."""

from packhost.gate.gate import Gate
from packhost.gate.types import (
    Answer,
    Asker,
    Caller,
    CallRequest,
    Completed,
    Deferred,
    Outcome,
    Prompt,
    Refusal,
)

__all__ = [
    "Answer",
    "Asker",
    "CallRequest",
    "Caller",
    "Completed",
    "Deferred",
    "Gate",
    "Outcome",
    "Prompt",
    "Refusal",
]
