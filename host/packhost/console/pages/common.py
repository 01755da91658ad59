"""What several pages need: the names of tools, a moment, an answer that came too late."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from packhost.console.kit import Moved, Visit
from packhost.console.views.approvals import ToolFacts, outcome, tool_facts
from packhost.console.views.texts import short
from packhost.errors import InvalidInput, PackhostError

PAGE: Final = 50
"""Rows of a list on one page."""
LONGEST_REASON: Final = 1_000


def now() -> float:
    """Seconds since the epoch, as the pages tell times by."""
    return time.time()


async def titles(visit: Visit) -> dict[str, str]:
    """What each tool on offer is called; nothing where a viewer may not see tools."""
    if not visit.viewer.may("tools:read"):
        return {}
    found = await visit.ask("tools.list")
    return {tool["tool"]: short(tool["title"]) for tool in found["tools"]}


async def facts_of(visit: Visit, tool: str) -> ToolFacts:
    """What is known of a tool; empty when it is gone, or may not be seen."""
    if not visit.viewer.may("tools:read"):
        return ToolFacts()
    try:
        return tool_facts(await visit.ask("tools.show", tool=tool))
    except PackhostError as error:
        if error.code != "TOOL_NOT_FOUND":
            raise
        return ToolFacts()


def reason_of(visit: Visit) -> str:
    """The reason that a form gives.

    :raises InvalidInput: it is too long.
    """
    reason = visit.form.get("reason").strip()
    if len(reason) > LONGEST_REASON:
        raise InvalidInput("the reason is too long", hint=f"use {LONGEST_REASON} characters or less")
    return reason


async def too_late(visit: Visit, id: str) -> Moved | None:
    """What to tell a person whose answer came after another's; `None` while the question still waits."""
    found: Mapping[str, Any] = await visit.ask("approvals.show", id=id)
    if found["status"] == "pending":
        return None
    said = f"Somebody was faster: this was {outcome(found)}. Your answer changed nothing."
    if visit.proof.asks:  # a passkey is not asked for nothing
        raise PackhostError(said.rstrip("."), code="RESUME_STATE_CHANGED", hint="load the page again")
    return Moved(f"/approvals/{id}", said, "failed")


def next_page(rows: list[Any], limit: int = PAGE) -> str:
    """The id to go on from after a full page; empty at the end."""
    return str(rows[-1]["id"]) if len(rows) == limit else ""
