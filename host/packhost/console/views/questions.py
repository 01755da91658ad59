"""A form that a tool puts to a person before it is called, as a page shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from packhost.console.views.forms import Field, fields_of
from packhost.console.views.texts import Moment, about, moment, short, shown

_STATUS: Final[Mapping[str, str]] = {
    "pending": "waits for an answer",
    "accepted": "was answered",
    "declined": "was declined",
    "cancelled": "was withdrawn",
    "expired": "ran out of time",
}


@dataclass(frozen=True, slots=True)
class Page:
    """A question whole, never with what was answered."""

    id: str
    pending: bool
    status: str
    says: str
    tool: str
    title: str
    message: str
    fields: tuple[Field, ...]
    client: str
    principal: str
    session: str
    run_id: str | None
    created: Moment | None
    ends: Moment | None
    left: str
    answered_by: str


def page_of(
    question: Mapping[str, Any],
    now: float,
    title: str = "",
    filled: Mapping[str, str] | None = None,
    errors: Mapping[str, str] | None = None,
) -> Page:
    """A question's own page; `filled` and `errors` are what a person entered and what is wrong with it."""
    fields = fields_of(question["requested_schema"] or {}, filled) or ()
    wrong = errors or {}
    return Page(
        id=question["id"],
        pending=question["status"] == "pending",
        status=question["status"],
        says=_STATUS.get(question["status"], question["status"]),
        tool=shown(question["tool"]),
        title=title or shown(question["tool"]),
        message=shown(question["message"]),
        fields=tuple(replace(one, error=wrong.get(one.name, "")) for one in fields),
        client=short(question["client"]),
        principal=short(question["principal"]),
        session=short(question["session_id"]),
        run_id=question["run_id"],
        created=moment(question["created_at"], now),
        ends=moment(question["expires_at"], now),
        left=about(max(0.0, question["expires_at"] - now)),
        answered_by=short(question["answered_by"] or ""),
    )
