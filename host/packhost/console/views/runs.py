"""Runs as the pages show them: a list, and one with its turns, calls, budgets and events."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from packhost.console.views.texts import Moment, about, moment, plural, short, shown
from packhost.rules.autonomy import LEVELS, rank

DIRECT: Final = "call"
"""The kind of a run that is one call made directly."""
_SAYS: Final[Mapping[str, str]] = {
    "queued": "waits to start",
    "running": "goes on",
    "paused": "is paused",
    "interrupted": "was interrupted",
    "completed": "is done",
    "failed": "has failed",
    "aborted": "was ended",
}
_ID: Final = re.compile(r"[a-z]{2}_[0-9a-z]+\Z", re.ASCII)
_ENDED: Final = frozenset({"completed", "failed", "aborted"})
_WAITS: Final[Mapping[str, str]] = {
    "approval": "waits for a person's answer",
    "question": "waits for what a person enters",
    "client": "waits for its client",
    "timer": "waits for a time",
}
HOST: Final = "host_"
"""How the ids of hosts begin, which write what happens to runs."""
MEANING: Final[Mapping[str, str]] = {
    "observe": "reads only",
    "supervised": "every change is asked for",
    "guarded": "asks where a pack or a rule says so",
    "autonomous": "rules that may be relaxed no longer ask",
}
"""What each level of autonomy lets a session do."""
_BUDGETS: Final[Mapping[str, str]] = {
    "turns": "Turns",
    "tool_calls": "Tool calls",
    "wall_clock": "Time",
    "tokens": "Tokens",
    "retries": "Retries",
}


@dataclass(frozen=True, slots=True)
class Line:
    """A run in a list."""

    id: str
    status: str
    says: str
    kind: str
    agent: str
    client: str
    session: str
    waits: str
    waits_link: str
    created: Moment | None
    ended: Moment | None
    took: str
    live: bool


def line_of(run: Mapping[str, Any], now: float) -> Line:
    """One line of the list."""
    waits, link = waiting(run["waiting_on"])
    ended = run["ended_at"]
    return Line(
        id=run["id"],
        status=run["status"],
        says=says(run),
        kind="a direct call" if run["kind"] == DIRECT else shown(run["kind"]),
        agent=short(run["agent"] or ""),
        client=short(run["client"], 60),
        session=short(run["session_id"], 60),
        waits=waits,
        waits_link=link,
        created=moment(run["created_at"], now),
        ended=moment(ended, now),
        took=about(ended - run["created_at"]) if ended is not None else "",
        live=run["status"] not in _ENDED,
    )


def says(run: Mapping[str, Any]) -> str:
    """How a run stands, in words."""
    told = _SAYS.get(run["status"], shown(run["status"]))
    outcome = run["outcome"]
    if outcome and outcome not in (run["status"], "running"):
        told += f": {shown(outcome).replace('_', ' ')}"
    if run["pause_requested"] and run["status"] in ("queued", "running"):
        told += ", and pauses at its next safe point"
    return told


def waiting(on: str | None) -> tuple[str, str]:
    """What a run waits for, in words, and the page where a person can answer."""
    if not on:
        return "", ""
    kind, _, rest = on.partition(":")
    if kind in ("approval", "question") and _ID.match(rest):
        return _WAITS[kind], f"/console/{kind}s/{rest}"
    return _WAITS.get(kind, f"waits for {shown(on)}"), ""


@dataclass(frozen=True, slots=True)
class Budget:
    """How much of a limit is used; `share` in percent, `None` where there is no limit."""

    name: str
    said: str
    share: int | None
    used: float
    limit: float | None


def budgets(evidence: Mapping[str, Any] | None) -> tuple[Budget, ...]:
    """The budgets of a run."""
    found = (evidence or {}).get("budgets", {})
    return tuple(_budget(name, one["used"], one["limit"]) for name, one in found.items())


def _budget(name: str, used: float, limit: float | None) -> Budget:
    told = about if name == "wall_clock" else _number
    said = told(used) if limit is None else f"{told(used)} of {told(limit)}"
    share = None if limit is None else min(100, round(100 * used / limit)) if limit > 0 else 100
    return Budget(_BUDGETS.get(name, shown(name)), said, share, used, limit)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"


@dataclass(frozen=True, slots=True)
class Actions:
    """What a person may do to a run now."""

    pause: bool
    resume: bool
    abort: bool


def actions(run: Mapping[str, Any]) -> Actions:
    """What makes sense of pausing, resuming and ending; the operation itself has the last word."""
    status, pausing = run["status"], bool(run["pause_requested"])
    turns = run["kind"] != DIRECT
    return Actions(
        pause=turns and status in ("queued", "running") and not pausing,
        resume=turns
        and (status in ("paused", "interrupted") or (pausing and status in ("queued", "running"))),
        abort=status not in _ENDED and turns,
    )


@dataclass(frozen=True, slots=True)
class Level:
    """A level of autonomy that a session may be given."""

    name: str
    meaning: str
    now: bool
    raises: bool
    allowed: bool


def levels(present: str, maximum: str) -> tuple[Level, ...]:
    """Every level, and which of them a person may choose: none beyond the workspace's maximum."""
    here = rank(present) if present in LEVELS else 0
    most = rank(maximum) if maximum in LEVELS else 0
    return tuple(
        Level(name, MEANING[name], name == present, rank(name) > here, rank(name) <= max(most, here))
        for name in LEVELS
    )


@dataclass(frozen=True, slots=True)
class Event:
    """An event of the record in words."""

    id: int
    type: str
    text: str
    actor: str
    at: Moment | None
    run_id: str | None
    call_id: str | None
    redacted: bool
    bad: bool


def event_of(record: Mapping[str, Any], now: float) -> Event:
    """One event for a page."""
    data = record["data"]
    return Event(
        id=record["id"],
        type=shown(record["type"]),
        text=event_words(record["type"], data if isinstance(data, Mapping) else {}),
        actor=_actor(record["actor"]),
        at=moment(record["ts"], now),
        run_id=record["execution_id"],
        call_id=record["call_id"],
        redacted=data is None,
        bad=record["type"].endswith((".failed", ".error", ".refused", ".denied", ".unknown", ".lost")),
    )


def _actor(actor: str) -> str:
    return "the host" if actor == "host" or actor.startswith(HOST) else short(actor, 60)


_WORDS: Final[Mapping[str, str]] = {
    "run.queued": "the run was asked for",
    "run.running": "the run goes on",
    "run.state": "the run's state was kept",
    "run.waiting": "the run waits",
    "run.paused": "the run paused",
    "run.pause_requested": "a pause of the run was asked for",
    "run.pause_withdrawn": "the run's pause was taken back",
    "run.abort_requested": "the run's end was asked for",
    "run.aborted": "the run was ended",
    "run.completed": "the run is done",
    "run.failed": "the run failed",
    "run.interrupted": "the run was interrupted",
    "run.held_back": "the run is held back until somebody resumes it",
    "turn.started": "the model was asked",
    "turn.completed": "the model replied",
    "turn.retried": "the model was asked again",
    "turn.failed": "the model's provider failed",
    "call.started": "a call began",
    "call.ok": "a call went well",
    "call.error": "a call failed",
    "call.unknown": "a call ended with unknown effect",
    "call.refused": "a call was refused",
    "call.awaited": "the run's caller is to make a call",
    "call.answered": "the run's caller made a call",
    "approval.requested": "a person was asked",
    "approval.answered": "a person answered, another must",
    "approval.approved": "a person allowed a call",
    "approval.denied": "a person denied a call",
    "approval.expired": "nobody answered in time",
    "approval.cancelled": "a question was withdrawn",
    "question.asked": "a person was asked for input",
    "grant.added": "calls like one were allowed from then on",
    "grant.revoked": "a grant was revoked",
    "session.opened": "a session began",
    "session.messages": "messages were added to the session",
    "session.level": "the session's autonomy changed",
    "replica.joined": "a host began to serve",
    "replica.left": "a host stopped",
    "replica.lost": "a host was lost",
    "operator.set": "an operator was set up",
    "operator.removed": "the operator was removed",
    "token.added": "a token was made",
    "token.revoked": "a token was revoked",
    "audit.redacted": "data was removed from the record",
    "audit.pruned": "old events were removed from the record",
}


def event_words(type: str, data: Mapping[str, Any]) -> str:
    """What happened, in words, with what it happened to."""
    told = _WORDS.get(type, shown(type))
    for name in ("tool", "level", "waiting_on", "model", "code", "reason", "message"):
        held = data.get(name)
        if isinstance(held, str | int) and held != "":
            told += f" · {short(held, 120)}"
    requested = data.get("requested")
    if type == "turn.completed" and isinstance(requested, Sequence) and requested:
        told += f" · wants {plural(len(requested), 'call')}"
    return told


TYPES: Final = tuple(sorted(_WORDS))
"""The types of events that a search offers."""
