"""The record: whether its chain holds, a search, one event, and the record as a file."""

from __future__ import annotations

import json
from typing import Final
from urllib.parse import urlencode

from packhost.console.kit import Sent, Shown, Visit
from packhost.console.pages.common import PAGE, now
from packhost.console.views import audit, runs
from packhost.console.views.texts import moment
from packhost.errors import InvalidInput, NotFound, PackhostError

_AT_ONCE: Final = 500
LONGEST_EXPORT: Final = 32 * 1024 * 1024
"""Characters of a record that is sent to a browser."""


async def search(visit: Visit) -> Shown:
    """The events that a search finds, the newest first."""
    return await _shown(visit, None)


async def verify(visit: Visit) -> Shown:
    """Walk the whole chain and say whether it holds."""
    return await _shown(visit, audit.proof_of(await visit.ask("audit.verify")))


async def _shown(visit: Visit, proof: audit.Proof | None) -> Shown:
    names = ("q", "type", "run", "since", "day", "before")
    wanted = audit.search_of({name: visit.query.get(name) for name in names})
    at, problem = now(), ""
    try:
        found = await visit.ask("audit.search", **wanted.params(at, PAGE))
    except InvalidInput as error:
        found, problem = {"events": [], "next": None}, error.message
    head = await visit.ask("audit.head")
    going_on = urlencode({**wanted.query, "before": found["next"]}) if found["next"] else ""
    return Shown(
        "pages/audit.html",
        {
            "search": wanted,
            "problem": problem,
            "events_shown": [runs.event_of(event, at) for event in found["events"]],
            "next": going_on,
            "head": head,
            "last": moment(head["time"], at),
            "proof_shown": proof,
            "types": runs.TYPES,
            "since": audit.SINCE,
        },
    )


async def export(visit: Visit) -> Sent:
    """The record as a file, an event a line; what is longer than a browser should be sent is left to the CLI.

    :raises PackhostError: `OUTPUT_TOO_LARGE` when it is too long.
    """
    pieces, size, after = list[str](), 0, 0
    while True:
        page = await visit.ask("audit.export", after=after, limit=_AT_ONCE, raw=True)
        lines = [f"{line}\n" for line in page["lines"]]
        pieces += lines
        size += sum(map(len, lines))
        if size > LONGEST_EXPORT:
            raise PackhostError(
                "the record is too long to be sent to a browser",
                code="OUTPUT_TOO_LARGE",
                hint="run `packhost audit export` in a terminal",
            )
        if page["next"] is None:
            return Sent("".join(pieces).encode(), "audit.jsonl", "application/jsonl")
        after = page["next"]


async def event(visit: Visit) -> Shown:
    """One event, whole."""
    given = visit.path["id"]
    if not (given.isascii() and given.isdigit()):
        raise NotFound(f"there is no event `{given}`", hint="events have numbers")
    found = await visit.ask("audit.event", id=int(given[:16]))
    return Shown(
        "pages/event.html",
        {
            "event": runs.event_of(found, now()),
            "record": found,
            "data": None
            if found["data"] is None
            else json.dumps(found["data"], ensure_ascii=False, indent=2, sort_keys=True),
        },
    )
