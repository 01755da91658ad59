"""Grants: what is allowed for good, taking it back, and what the host proposes to allow."""

from __future__ import annotations

import re
from typing import Any, Final

from packhost.console.kit import Moved, Shown, Visit
from packhost.console.pages.common import PAGE, next_page, now, titles
from packhost.console.views import grants
from packhost.console.views.narrowing import UNTIL
from packhost.console.views.texts import plural, short
from packhost.errors import InvalidInput

_APPROVAL: Final = re.compile(r"/approvals/ap_[0-9a-z]+\?grant=gr_[0-9a-z]+\Z", re.ASCII)


async def listing(visit: Visit) -> Shown:
    """Grants, the newest first, and proposals."""
    everything, before = visit.query.get("all") == "1", visit.query.get("before")
    found = await visit.ask("grants.list", all=True, before=before or None, limit=PAGE)
    named, at = await titles(visit), now()
    lines = [grants.line_of(one, at, named.get(one["tool"], "")) for one in found["grants"]]
    proposed = {"proposals": []} if before else await visit.ask("grants.propose")
    return Shown(
        "pages/grants.html",
        {
            "lines": [line for line in lines if everything or line.live],
            "hidden": sum(not line.live for line in lines) if not everything else 0,
            "everything": everything,
            "next": next_page(found["grants"]),
            "proposals": [_proposal(one, named) for one in proposed["proposals"]],
            "until": UNTIL,
        },
    )


def _proposal(one: dict[str, Any], named: dict[str, str]) -> dict[str, Any]:
    return {
        "id": one["id"],
        "title": named.get(one["tool"], one["tool"]),
        "tool": one["tool"],
        "principal": short(one["principal"]),
        "words": [short(words, 300) for words in one["words"]],
        "approvals": plural(one["approvals"], "answer"),
        "also": one["also"]["count"],
    }


async def revoke(visit: Visit) -> Moved:
    """Take a grant back; asks nobody."""
    found = await visit.ask("grants.revoke", id=visit.path["id"])
    to = visit.form.get("to")
    to = to if _APPROVAL.match(to) else "/grants"
    return Moved(to, f"Revoked: calls of {short(found['tool'])} like these are asked for again.")


async def accept(visit: Visit) -> Moved:
    """Take up a proposal."""
    until = visit.form.get("until", "week")
    if until not in UNTIL:
        raise InvalidInput("choose how long it holds", hint="")
    words, seconds = UNTIL[until]
    done = await visit.take_up(visit.path["id"], expires_in=seconds)
    return Moved(
        "/grants", f"Allowed {words}: {short(done['tool'])}, {short('; '.join(done['words']), 200)}."
    )
