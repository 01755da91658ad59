"""Governed calls as spans and numbers.

A span is named `packhost.tool.call` and carries what the semantic conventions for GenAI and MCP name of a
tool's run. It holds no argument, result, message or reason: those stand in the record, where they can be
redacted.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from opentelemetry import propagate, trace
from opentelemetry.trace import Span, SpanContext, SpanKind, Status, StatusCode

from packhost.gate.context import GateContext
from packhost.gate.evaluate import Evaluation, Stopped
from packhost.gate.outcomes import Approved
from packhost.gate.types import CallRequest, Completed, Deferred, Outcome
from packhost.store.rows import ApprovalRow
from packhost.telemetry.metrics import Instruments

SPAN: Final = "packhost.tool.call"
_UNKNOWN: Final = "unknown"
_KEPT: Final = 4_096
"""So many direct calls are remembered for the runs that they started."""


class Origins:
    """Which span a run came from, by the run of the call that started it; the latest are kept."""

    def __init__(self) -> None:
        self._known: dict[str, SpanContext] = {}

    def remember(self, run_id: str, context: SpanContext) -> None:
        """Keep the span of a call."""
        self._known[run_id] = context
        if len(self._known) > _KEPT:
            del self._known[next(iter(self._known))]

    def of(self, run_id: str | None) -> SpanContext | None:
        """The span of the call that has this run; `None` when it is not known."""
        return self._known.get(run_id) if run_id is not None else None


@dataclass(slots=True)
class CallSight:
    """One call as a span; implements `Sight`."""

    span: Span
    instruments: Instruments
    origins: Origins
    direct: bool
    began: float = field(default_factory=time.perf_counter)
    tool: str = _UNKNOWN
    verdict: str = _UNKNOWN
    code: str = ""
    _asked: float | None = None
    _waited: float = 0.0

    def found(self, found: Evaluation | Stopped) -> None:
        """Its tool is known, and what the rules say of it."""
        if found.entry is None or self.verdict != _UNKNOWN:
            return
        tool = found.entry.tool
        self.tool = tool.id.canonical
        self.verdict = found.decision.verdict if isinstance(found, Evaluation) else "deny"
        self.span.set_attributes(
            {
                "gen_ai.tool.name": tool.id.canonical,
                "packhost.tool.version": tool.version,
                "packhost.tool.permission": tool.spec.permission,
                "packhost.decision": self.verdict,
            }
        )

    def asking(self) -> None:
        """A person is being asked from now on."""
        self._asked = time.perf_counter()

    def answered(self) -> None:
        """Nobody is being asked any more."""
        if self._asked is not None:
            self._waited += time.perf_counter() - self._asked
            self._asked = None
            self.span.set_attribute("packhost.approval.wait", self._waited)

    def starting(self, context: GateContext, approved: Approved) -> None:
        """It may run: its identifiers, and what allowed it."""
        self.span.set_attributes({"packhost.call.id": context.call_id, "packhost.run.id": context.run_id})
        for name, value in (("approval", approved.approval_id), ("grant", approved.grant_id)):
            if value is not None:
                self.span.set_attribute(f"packhost.{name}.id", value)
        if self.direct:
            self.origins.remember(context.run_id, self.span.get_span_context())

    def ended(self, outcome: Outcome) -> None:
        """How it ended."""
        if isinstance(outcome, Completed):
            self.span.set_attribute("packhost.enforcement", outcome.enforcement)
            return
        self.code = "APPROVAL_REQUIRED" if isinstance(outcome, Deferred) else outcome.code
        self.span.set_attributes({"error.type": self.code, "packhost.code": self.code})
        if not isinstance(outcome, Deferred):
            self.span.set_status(Status(StatusCode.ERROR, self.code))
            for name in ("enforcement", "approval_id"):
                value = getattr(outcome, name)
                if value is not None:
                    self.span.set_attribute(f"packhost.{name.replace('_', '.')}", value)

    def outgoing(self) -> Mapping[str, str]:
        """The W3C headers that name this span as the parent."""
        headers: dict[str, str] = {}
        propagate.inject(headers, trace.set_span_in_context(self.span))
        return headers

    def over(self) -> None:
        """Count it."""
        seconds = time.perf_counter() - self.began
        self.instruments.call(self.tool, self.verdict, self.code, seconds, self._waited)


class CallObserver:
    """Watches every call; implements `Observer`."""

    def __init__(self, tracer: trace.Tracer, instruments: Instruments, origins: Origins) -> None:
        self._tracer = tracer
        self._instruments = instruments
        self._origins = origins

    @contextmanager
    def call(self, request: CallRequest, nested: bool) -> Iterator[CallSight]:
        """A call begins, within whatever span is the present one: the MCP request's, else its run's."""
        caller = request.caller
        attributes: dict[str, str] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.type": "extension",
            "gen_ai.conversation.id": caller.session_id,
            "packhost.client": caller.client,
        }
        direct = caller.run_id is None
        if direct:
            attributes |= {"mcp.method.name": "tools/call", "mcp.session.id": caller.session_id}
        if request.tool_use_id is not None:
            attributes["gen_ai.tool.call.id"] = request.tool_use_id
        with self._tracer.start_as_current_span(
            SPAN,
            kind=SpanKind.INTERNAL,
            attributes=attributes,
            record_exception=False,  # an exception's text may hold what a tool was given
            set_status_on_exception=False,
        ) as span:
            sight = CallSight(span, self._instruments, self._origins, direct and not nested)
            try:
                yield sight
            except BaseException as error:
                sight.code = type(error).__name__
                span.set_attribute("error.type", sight.code)
                span.set_status(Status(StatusCode.ERROR))
                raise
            finally:
                sight.over()

    def decided(self, row: ApprovalRow) -> None:
        """A person has answered a question."""
        if row.decided_at is not None:
            channel = row.decided_channel or _UNKNOWN
            self._instruments.decision(row.tool, row.status, channel, row.decided_at - row.created_at)
