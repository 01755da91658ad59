"""A session's autonomy: raised for a time and never beyond the maximum, or lowered at once."""

from __future__ import annotations

from typing import Final

from packhost.console.kit import Moved, Shown, Visit
from packhost.console.pages.common import now, reason_of
from packhost.console.views import runs
from packhost.console.views.texts import moment, short
from packhost.errors import InvalidInput
from packhost.rules.autonomy import LEVELS, rank

TIMES: Final = {
    "15m": ("15 minutes", 900.0),
    "1h": ("1 hour", 3_600.0),
    "8h": ("8 hours", 28_800.0),
    "open": ("until somebody lowers it", None),
}
FIRST: Final = "1h"


async def listing(visit: Visit) -> Shown:
    """Sessions, the last used first."""
    found = await visit.ask("sessions.list", limit=100)
    at = now()
    return Shown(
        "pages/sessions.html",
        {
            "sessions": [
                {
                    "id": one["id"],
                    "client": short(one["client"], 60),
                    "principal": short(one["principal"], 60),
                    "level": one["level"],
                    "means": runs.MEANING.get(one["level"], ""),
                    "ends": moment(one["level_expires_at"], at),
                    "used": moment(one["updated_at"], at),
                }
                for one in found["sessions"]
            ]
        },
    )


async def show(visit: Visit) -> Shown:
    """One session and the form that changes its level."""
    found = await visit.ask("sessions.show", id=visit.path["id"])
    maximum = (await visit.ask("status"))["autonomy"]["maximum"]
    at = now()
    return Shown(
        "pages/session.html",
        {
            "session": found,
            "client": short(found["client"]),
            "levels": runs.levels(found["level"], maximum),
            "maximum": maximum,
            "ends": moment(found["level_expires_at"], at),
            "used": moment(found["updated_at"], at),
            "times": TIMES,
            "first": FIRST,
            "run": visit.query.get("run"),
        },
    )


async def change(visit: Visit) -> Moved:
    """Raise or lower a session's autonomy."""
    id, level, lasts = visit.path["id"], visit.form.get("level"), visit.form.get("lasts", FIRST)
    if level not in LEVELS:
        raise InvalidInput("choose a level", hint="")
    if lasts not in TIMES:
        raise InvalidInput("choose how long it holds", hint="")
    present = (await visit.ask("sessions.show", id=id))["level"]
    reason = reason_of(visit)
    if level == present:
        return Moved(f"/sessions/{id}", f"Its level is {level} already: nothing changed.")
    if rank(level) > rank(present):
        told, seconds = TIMES[lasts]
        await visit.ask("sessions.raise", id=id, level=level, reason=reason, expires_in=seconds)
        until = told if seconds is None else f"for {told}"
        return Moved(f"/sessions/{id}", f"Raised from {present} to {level}, {until}.")
    await visit.ask("sessions.lower", id=id, level=level, reason=reason)
    return Moved(f"/sessions/{id}", f"Lowered from {present} to {level}; it holds at once.")
