"""How the workspace stands."""

from __future__ import annotations

from packhost.console.kit import Shown, Visit
from packhost.console.pages.common import now
from packhost.console.views import overview


async def show(visit: Visit) -> Shown:
    """The overview."""
    status = await visit.ask("status")
    sessions = (
        (await visit.ask("sessions.list", limit=100))["sessions"] if visit.viewer.may("runs:read") else []
    )
    store = await visit.ask("store.info") if visit.viewer.may("audit:read") else None
    found = overview.overview_of(status, sessions, visit.waiting, now())
    return Shown("pages/overview.html", {"overview": found, "store": store})
