"""Logs of a host that serves, a line each on stderr: never on stdout, which belongs to the protocol.

A line has the time, the level, the event, and whichever of run, call and session it is about. What happens to
calls and runs is told from the record, so that a line says what was committed and no more than that: neither
arguments nor results, nor any text of a person's or a model's. Whatever else is logged is redacted first.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, Literal

from packhost.gate.context import GateContext
from packhost.gate.evaluate import Evaluation, Stopped
from packhost.gate.observed import Sight
from packhost.gate.outcomes import Approved
from packhost.gate.types import CallRequest, Outcome
from packhost.journal import Record
from packhost.store.rows import ApprovalRow

Form = Literal["text", "json"]
LEVELS: Final = ("debug", "info", "warning", "error")
EVENTS: Final = "packhost.events"
_IDS: Final = ("run_id", "call_id", "session_id", "tool")
_NAME: Final = re.compile(r"[a-z][a-z0-9-]*:[a-z][a-z0-9_-]*\Z")
_KEPT: Final = 4_096
_OPENING: Final = frozenset({"call.started", "run.queued"})
_QUIET: Final = frozenset({"call.started", "run.state", "session.messages", "run.waiting"})
_LOUD: Final = frozenset(
    {"call.unknown", "run.failed", "run.interrupted", "replica.lost", "audit.pruned", "audit.redacted"}
)
_SAFE: Final = (
    "tool",
    "code",
    "status",
    "outcome",
    "kind",
    "owner",
    "turn",
    "model",
    "stop_reason",
    "enforcement",
)
"""Members of an event that are names of ours or of a tool, never what somebody wrote."""

_about: ContextVar[dict[str, str] | None] = ContextVar("packhost-log", default=None)


class LineFormatter(logging.Formatter):
    """A record as one line: `text` for people, `json` for programs."""

    def __init__(self, form: Form) -> None:
        super().__init__()
        self._json = form == "json"

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        about = getattr(record, "about", None) or _about.get() or {}
        facts: Mapping[str, object] = getattr(record, "facts", {})
        message = record.getMessage()
        trouble = record.exc_text or (self.formatException(record.exc_info) if record.exc_info else "")
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        whole = {
            "time": f"{moment}.{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "event": getattr(record, "event", record.name),
            **{name: about[name] for name in _IDS if about.get(name)},
            **facts,
        }
        if message and message != whole["event"]:
            whole["message"] = message
        if trouble:
            whole["trouble"] = trouble
        if self._json:
            return json.dumps(whole, ensure_ascii=True, default=str)
        head = f"{whole.pop('time')} {str(whole.pop('level')).ljust(7)} {whole.pop('event')}"
        said = str(whole.pop("message", ""))
        tail = str(whole.pop("trouble", ""))
        pairs = " ".join(f"{name}={_word(value)}" for name, value in whole.items() if value is not None)
        line = " ".join(part for part in (head, _flat(said), pairs) if part)
        return f"{line}\n{tail}" if tail else line


def _flat(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)


def _word(value: object) -> str:
    text = str(value)
    return text if text.isascii() and text.isprintable() and " " not in text else json.dumps(text)


class LineHandler(logging.StreamHandler):  # type: ignore[type-arg]  # generic in the stubs alone
    """Writes lines to stderr."""

    lines = True
    """By this a host sees that somebody reads its log."""

    def __init__(self, form: Form) -> None:
        super().__init__(sys.stderr)
        self.setFormatter(LineFormatter(form))


@contextmanager
def logged_lines(form: Form, level: str) -> Iterator[None]:
    """As long as this lasts everything that is logged from `level` on is a line on stderr."""
    root, handler = logging.getLogger(), LineHandler(form)
    before = root.level
    root.addHandler(handler)
    root.setLevel(level.upper())
    for name in ("mcp", "uvicorn", "httpx2", "anyio", "asyncio"):
        logging.getLogger(name).setLevel(max(logging.WARNING, getattr(logging, level.upper())))
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(before)


class EventSink:
    """Takes the events of the record and logs each that somebody who looks after a host wants to see."""

    def __init__(self) -> None:
        self._log = logging.getLogger(EVENTS)
        self._sessions: dict[str, str] = {}

    def __call__(self, record: Record) -> None:
        """Take one event."""
        level = logging.DEBUG if record.type in _QUIET else logging.INFO
        level = logging.WARNING if record.type in _LOUD else level
        wanted = self._log.isEnabledFor(level)
        if not wanted and record.type not in _OPENING:
            return
        data = json.loads(record.data) if record.data is not None else {}
        run = record.execution_id or ""
        session = self._session(record.type, run, data)
        if not wanted:
            return
        facts = {name: data[name] for name in _SAFE if isinstance(data.get(name), str | int)}
        if not _NAME.match(str(facts.get("tool", ""))):
            facts.pop("tool", None)  # of a tool that there is not somebody wrote the name
        about = {"run_id": run, "call_id": record.call_id or "", "session_id": session}
        more = {"event": record.type, "about": about, "facts": {"number": record.id, **facts}}
        self._log.log(level, record.type, extra=more)

    def _session(self, type: str, run: str, data: Mapping[str, Any]) -> str:
        """The session that an event is about: its own word, or that of what opened the run."""
        if type.startswith("session."):
            return str(data.get("id", ""))
        said = data.get("session_id")
        if isinstance(said, str) and run:
            self._sessions[run] = said
            if len(self._sessions) > _KEPT:
                del self._sessions[next(iter(self._sessions))]
        return said if isinstance(said, str) else self._sessions.get(run, "")


@dataclass(slots=True)
class _LogSight:
    about: dict[str, str]

    def found(self, found: Evaluation | Stopped) -> None:
        if found.entry is not None:
            self.about["tool"] = found.entry.tool.id.canonical

    def asking(self) -> None:
        """Nothing is logged of it: the question is in the record."""

    def answered(self) -> None:
        """As above."""

    def starting(self, context: GateContext, approved: Approved) -> None:
        self.about |= {"call_id": context.call_id, "run_id": context.run_id}

    def ended(self, outcome: Outcome) -> None:
        """The record says how."""

    def outgoing(self) -> Mapping[str, str]:
        return {}


class LogObserver:
    """Lets whatever is logged within a call name that call; implements `Observer`."""

    @contextmanager
    def call(self, request: CallRequest, nested: bool) -> Iterator[Sight]:
        """A call begins."""
        caller = request.caller
        about = {"session_id": caller.session_id, "run_id": caller.run_id or ""}
        token = _about.set(about)
        try:
            yield _LogSight(about)
        finally:
            _about.reset(token)

    def decided(self, row: ApprovalRow) -> None:
        """The record says it."""
