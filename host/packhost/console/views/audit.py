"""The record as a page shows it: whether its chain holds, and what a search asks for."""

from __future__ import annotations

import calendar
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from packhost.console.views.texts import plural, shown
from packhost.errors import InvalidInput

SINCE: Final[Mapping[str, tuple[str, float | None]]] = {
    "": ("at any time", None),
    "hour": ("in the last hour", 3_600.0),
    "day": ("in the last day", 86_400.0),
    "week": ("in the last week", 7 * 86_400.0),
    "month": ("in the last 30 days", 30 * 86_400.0),
}


@dataclass(frozen=True, slots=True)
class Search:
    """What is looked for."""

    text: str = ""
    type: str = ""
    run: str = ""
    since: str = ""
    day: str = ""
    before: int | None = None

    def params(self, now: float, limit: int) -> dict[str, Any]:
        """As `audit.search` takes it.

        :raises InvalidInput: a day is none.
        """
        found: dict[str, Any] = {"text": self.text, "type": self.type, "run": self.run, "limit": limit}
        span = SINCE.get(self.since, SINCE[""])[1]
        if span is not None:
            found["since"] = now - span
        if self.day:
            found["since"] = _day(self.day)
            found["until"] = found["since"] + 86_400.0
        if self.before is not None:
            found["before"] = self.before
        return found

    @property
    def query(self) -> dict[str, str]:
        """What the address of a page of it says, besides where the page begins."""
        named = {"q": self.text, "type": self.type, "run": self.run, "since": self.since, "day": self.day}
        return {name: held for name, held in named.items() if held}

    @property
    def empty(self) -> bool:
        """Nothing narrows it."""
        return not self.query


def search_of(query: Mapping[str, str]) -> Search:
    """What a page's address asks for."""
    before = query.get("before", "")
    return Search(
        text=query.get("q", "").strip()[:200],
        type=query.get("type", "").strip()[:100],
        run=query.get("run", "").strip()[:100],
        since=query.get("since", "") if query.get("since", "") in SINCE else "",
        day=query.get("day", "").strip()[:10],
        before=int(before[:16]) if before.isascii() and before.isdigit() else None,
    )


def _day(text: str) -> float:
    try:
        return float(calendar.timegm(time.strptime(text, "%Y-%m-%d")))
    except ValueError:
        raise InvalidInput(f"`{shown(text)}` is no day", hint="write it as 2027-01-31") from None


@dataclass(frozen=True, slots=True)
class Proof:
    """What a walk over the chain found."""

    ok: bool
    says: str
    notes: tuple[str, ...]


def proof_of(report: Mapping[str, Any]) -> Proof:
    """Of what `audit.verify` returns."""
    count = plural(report["events"], "event")
    if report["ok"]:
        says = f"The chain holds: {count}, each bound to the one before it."
    else:
        says = (
            f"The chain is broken at event {report['first_bad']}: {shown(report['reason'] or 'no reason')}."
        )
    notes = []
    if report["redacted"]:
        notes.append(f"The data of {plural(report['redacted'], 'event')} was removed on purpose, on record.")
    if report["pruned"]:
        notes.append(
            f"{plural(report['pruned'], 'event')} at the beginning were removed on purpose, on record."
        )
    if report["unfinished"]:
        notes.append(f"{plural(report['unfinished'], 'event')} of a removal on record are still there.")
    unsigned = sum(one["signed"] is False for one in report["prunings"])
    if unsigned:
        notes.append(f"{plural(unsigned, 'removal')} was not signed by the present operator.")
    return Proof(bool(report["ok"]), says, tuple(notes))
