"""Runs and their turns as spans, made from the record: `invoke_agent` for a run, `chat` for a model's reply.

The record is what happened, so a span begins and ends where its events say, whatever was going on meanwhile.
Only runs that this very host took are told of: where several share a store each tells of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, Span, SpanKind, Status, StatusCode, Tracer

from packhost.errors import NotFound
from packhost.journal import Record
from packhost.store.base import Store
from packhost.store.ops import executions
from packhost.telemetry.calls import Origins
from packhost.telemetry.metrics import Instruments

_LET_GO: Final = frozenset({"run.completed", "run.failed", "run.aborted", "run.paused", "run.interrupted"})


@dataclass(slots=True)
class _Run:
    span: Span
    session: str
    turns: dict[tuple[str, int], tuple[Span, float, str]] = field(default_factory=dict)


class TurnSink:
    """Takes the events of the record; `owner` is this host's name in the store."""

    def __init__(
        self, tracer: Tracer, instruments: Instruments, origins: Origins, store: Store, owner: str
    ) -> None:
        self._tracer = tracer
        self._instruments = instruments
        self._origins = origins
        self._store = store
        self._owner = owner
        self._runs: dict[str, _Run] = {}
        self._takes: Mapping[str, Callable[[_Run, Record, dict[str, Any]], None]] = {
            "turn.started": self._asked,
            "turn.completed": self._replied,
            "turn.failed": self._failed,
        }

    def __call__(self, record: Record) -> None:
        """Take one event."""
        id = record.execution_id
        if id is None or not record.type.startswith(("run.", "turn.")):
            return
        data = json.loads(record.data) if record.data is not None else {}
        if record.type == "run.running" and data.get("owner") == self._owner:
            self._begin(id, record)
        run = self._runs.get(id)
        if run is None:
            return
        if (take := self._takes.get(record.type)) is not None:
            take(run, record, data)
        elif record.type in _LET_GO:
            self._end(id, run, record, data)

    def _begin(self, id: str, record: Record) -> None:
        try:
            row = self._store.read(executions.get, id)
        except NotFound:
            return
        origin = self._origins.of(row.parent)
        context = trace.set_span_in_context(NonRecordingSpan(origin)) if origin is not None else None
        attributes = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": row.agent or row.kind,
            "gen_ai.conversation.id": row.session_id,
            "packhost.run.id": id,
            "packhost.run.kind": row.kind,
        }
        span = self._tracer.start_span(
            f"invoke_agent {row.agent or row.kind}",
            context=context,
            kind=SpanKind.INTERNAL,
            attributes=attributes,
            start_time=_nanoseconds(record.ts),
        )
        self._runs[id] = _Run(span, row.session_id)

    def _end(self, id: str, run: _Run, record: Record, data: dict[str, Any]) -> None:
        for span, _, _ in run.turns.values():
            span.set_attribute("error.type", record.type)
            span.end(_nanoseconds(record.ts))
        outcome = str(data.get("outcome") or record.type.partition(".")[2])
        run.span.set_attribute("packhost.run.outcome", outcome)
        if record.type in ("run.failed", "run.interrupted"):
            run.span.set_attribute("error.type", outcome)
            run.span.set_status(Status(StatusCode.ERROR, outcome))
        run.span.end(_nanoseconds(record.ts))
        del self._runs[id]

    def _asked(self, run: _Run, record: Record, data: dict[str, Any]) -> None:
        model = str(data.get("model", ""))
        span = self._tracer.start_span(
            f"chat {model}",
            context=trace.set_span_in_context(run.span),
            kind=SpanKind.CLIENT,
            attributes={
                "gen_ai.operation.name": "chat",
                "gen_ai.request.model": model,
                "gen_ai.conversation.id": run.session,
                "packhost.run.id": record.execution_id or "",
                "packhost.turn": int(data.get("turn", 0)),
            },
            start_time=_nanoseconds(record.ts),
        )
        run.turns[_place(data)] = (span, record.ts, model)

    def _replied(self, run: _Run, record: Record, data: dict[str, Any]) -> None:
        usage = data.get("usage") or {}
        span, began, model = run.turns.pop(_place(data), (None, 0.0, ""))
        if span is None:
            return
        span.set_attribute("gen_ai.response.finish_reasons", [str(data.get("stop_reason"))])
        for kind in ("input", "output"):
            if f"{kind}_tokens" in usage:
                span.set_attribute(f"gen_ai.usage.{kind}_tokens", usage[f"{kind}_tokens"])
        span.end(_nanoseconds(record.ts))
        self._instruments.turn(model, record.ts - began, usage)

    def _failed(self, run: _Run, record: Record, data: dict[str, Any]) -> None:
        span, began, model = run.turns.pop(_place(data), (None, 0.0, ""))
        if span is None:
            return
        issue = str(data.get("issue", "failed"))
        span.set_attribute("error.type", issue)
        span.set_status(Status(StatusCode.ERROR, issue))
        span.end(_nanoseconds(record.ts))
        self._instruments.turn(model, record.ts - began, {}, issue)


def _place(data: Mapping[str, Any]) -> tuple[str, int]:
    return str(data.get("branch", "")), int(data.get("turn", 0))


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
