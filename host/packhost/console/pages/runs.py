"""Runs: the list, one of them, and what a person may do to it."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from packhost.console.kit import Moved, Sent, Shown, Visit
from packhost.console.pages.common import PAGE, next_page, now, reason_of, titles
from packhost.console.views import approvals, runs, turns
from packhost.errors import NotFound, PackhostError

_EVENTS: Final = 100
_SAYING: Final = {
    "pause": ("Pause this run", "It stops at its next safe point; only a person resumes it then.", "Paused."),
    "resume": ("Resume this run", "It goes on from where it stood.", "Resumed."),
    "abort": (
        "End this run",
        "It stops now and cannot be resumed. A call that is under way is cut off; its effect may be unknown.",
        "Ended.",
    ),
}


async def listing(visit: Visit) -> Shown:
    """Runs, the newest first."""
    everything, before = visit.query.get("all") == "1", visit.query.get("before")
    found = await visit.ask("runs.list", all=everything, before=before or None, limit=PAGE)
    at = now()
    return Shown(
        "pages/runs.html",
        {
            "lines": [runs.line_of(run, at) for run in found["runs"]],
            "everything": everything,
            "next": next_page(found["runs"]),
            "first": not before,
        },
    )


async def show(visit: Visit) -> Shown:
    """One run."""
    run = await visit.ask("runs.show", id=visit.path["id"], evidence=True)
    node, at = visit.query.get("node"), now()
    trace, nodes, no_trace = await _trace(visit, run, node)
    named = await titles(visit)
    session = await _session(visit, run["session_id"])
    recent = await visit.ask("runs.events", id=run["id"], limit=_EVENTS)
    return Shown(
        "pages/run.html",
        {
            "run": run,
            "line": runs.line_of(run, at),
            "actions": runs.actions(run),
            "budgets": runs.budgets(run["evidence"]),
            "conversation": turns.conversation(trace, run["calls"], run["evidence"], node),
            "node": node,
            "nodes": nodes,
            "no_trace": no_trace,
            "approvals": [approvals.line_of(one, at, named.get(one["tool"], "")) for one in run["approvals"]],
            "issues": _issues(run),
            "events_shown": [runs.event_of(event, at) for event in recent["events"]],
            "more": len(recent["events"]) == _EVENTS,
            "after": recent["next"],
            "session": session,
        },
    )


async def _trace(visit: Visit, run: dict[str, Any], node: str) -> tuple[Any, list[str], str]:
    """The trace of a run or of a node of it; its nodes; and why there is none."""
    nodes = sorted(
        {line["node"] for line in (run["evidence"] or {}).get("correlation", []) if "node" in line}
    )
    if run["evidence"] is None:
        return None, nodes, ""
    try:
        return (
            await visit.ask("runs.trace", id=run["id"], node=node or (nodes[0] if nodes else "")),
            nodes,
            "",
        )
    except PackhostError as error:
        return None, nodes, error.message


def _issues(run: dict[str, Any]) -> list[dict[str, Any]]:
    evidence = run["evidence"] or {"issues": [], "coverage_gaps": []}
    return [*evidence["issues"], *evidence["coverage_gaps"]]


async def _session(visit: Visit, id: str) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = await visit.ask("sessions.show", id=id)
    except NotFound:
        return None
    status = await visit.ask("status")
    return {
        "id": found["id"],
        "level": found["level"],
        "means": runs.MEANING.get(found["level"], ""),
        "maximum": status["autonomy"]["maximum"],
        "ends": found["level_expires_at"],
    }


async def download(visit: Visit) -> Sent:
    """A run's trace as a file."""
    id = visit.path["id"]
    trace = await visit.ask("runs.trace", id=id, node=visit.query.get("node"))
    text = json.dumps(trace, ensure_ascii=True, indent=2)
    return Sent(f"{text}\n".encode(), f"{trace_name(id)}.json")


def trace_name(id: str) -> str:
    """A name for a file, of letters that every system takes."""
    return re.sub(r"[^0-9a-zA-Z_-]", "", id)[:64] or "run"


async def events(visit: Visit) -> Shown:
    """A run's events after the first ones, a page at a time."""
    after = visit.query.get("after")
    start = int(after[:16]) if after.isascii() and after.isdigit() else 0
    found = await visit.ask("runs.events", id=visit.path["id"], after=start, limit=_EVENTS)
    at = now()
    return Shown(
        "pages/run_events.html",
        {
            "id": visit.path["id"],
            "events_shown": [runs.event_of(event, at) for event in found["events"]],
            "next": found["next"] if len(found["events"]) == _EVENTS else None,
        },
    )


async def confirm(visit: Visit) -> Shown:
    """What pausing, resuming or ending does, and the form that does it."""
    what = visit.path["what"]
    if what not in _SAYING:
        raise NotFound(f"a run knows no `{what}`", hint="go back to the run")
    run = await visit.ask("runs.show", id=visit.path["id"])
    title, means, _ = _SAYING[what]
    return Shown(
        "pages/run_confirm.html",
        {
            "run": run,
            "line": runs.line_of(run, now()),
            "what": what,
            "title": title,
            "means": means,
            "possible": getattr(runs.actions(run), what),
        },
    )


async def steer(visit: Visit) -> Moved:
    """Pause, resume or end a run."""
    what, id = visit.path["what"], visit.path["id"]
    if what not in _SAYING:
        raise NotFound(f"a run knows no `{what}`", hint="go back to the run")
    reason = reason_of(visit)
    params = {"id": id} if what == "resume" else {"id": id, "reason": reason}
    after = await visit.ask(f"runs.{what}", **params)
    return Moved(f"/runs/{id}", f"{_SAYING[what][2]} The run {runs.says(after)}.")
