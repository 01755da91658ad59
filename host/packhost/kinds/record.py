"""What is on record of one run, as a pack is given it to write the run down in another form."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from packhost.kinds.context import Message, OfferedTool


@dataclass(frozen=True, slots=True)
class RecordedMessage:
    """A message of a session's history; `own` says whether the run itself added it."""

    own: bool
    message: Message


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """An event of a run; `at` is in seconds since the epoch, `call_id` the record's own."""

    type: str
    at: float
    call_id: str | None
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RecordedApproval:
    """A question to a person that a call of the run used; `arguments` are in their display form."""

    id: str
    tool: str
    arguments: Any
    status: str


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run, or one branch of it: its conversation up to its end, and everything that it did.

    `branch` is empty for the run itself; `events` are those of the whole run. `tools` are those that
    the host has now.
    """

    id: str
    kind: str
    status: str
    outcome: str | None
    spec: Mapping[str, Any]
    state: Mapping[str, Any]
    result: Mapping[str, Any] | None
    branch: str
    messages: Sequence[RecordedMessage]
    events: Sequence[RecordedEvent]
    approvals: Sequence[RecordedApproval]
    tools: Sequence[OfferedTool]
    untrusted: frozenset[str]
    """Wire names of the tools whose output is declared untrusted."""


TraceWriter = Callable[[RunRecord], dict[str, Any]]
"""Writes a run as a trace for `packhost trace check`."""
