"""What is allowed for good, as a page shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from packhost.console.views.texts import Moment, moment, plural, short, shown

_STATE: Final[Mapping[str, str]] = {
    "live": "holds",
    "revoked": "is revoked",
    "expired": "has ended",
    "used up": "is used up",
    "void": "covers nothing any more",
}


@dataclass(frozen=True, slots=True)
class Line:
    """A grant."""

    id: str
    live: bool
    state: str
    says: str
    tool: str
    title: str
    version: str
    principal: str
    words: tuple[str, ...]
    uses: str
    ends: Moment | None
    given_by: str
    given: Moment | None
    revoked: Moment | None


def line_of(grant: Mapping[str, Any], now: float, title: str = "") -> Line:
    """One grant, in words."""
    state, why = grant["state"], grant["why"]
    return Line(
        id=grant["id"],
        live=state == "live",
        state=state,
        says=f"{_STATE.get(state, state)}{f': {shown(why)}' if why else ''}",
        tool=shown(grant["tool"]),
        title=title or shown(grant["tool"]),
        version=shown(grant["tool_version"]),
        principal=short(grant["principal"] or "anyone"),
        words=tuple(short(words, 300) for words in grant["words"]),
        uses=_uses(grant["uses"], grant["max_uses"]),
        ends=moment(grant["expires_at"], now),
        given_by=short(grant["created_by"]),
        given=moment(grant["created_at"], now),
        revoked=moment(grant["revoked_at"], now),
    )


def _uses(uses: int, most: int | None) -> str:
    if most is not None:
        return f"used {uses} of {plural(most, 'time')}"
    return f"used {plural(uses, 'time')}" if uses else "not used yet"
