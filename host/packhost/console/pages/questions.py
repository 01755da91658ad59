"""A form that a tool puts to a person: fill it in, or decline."""

from __future__ import annotations

from collections.abc import Mapping

from packhost.console.kit import CHANNEL, Moved, Shown, Visit
from packhost.console.pages.common import facts_of, now
from packhost.console.views import forms, questions
from packhost.errors import PackhostError


async def show(visit: Visit) -> Shown:
    """One question."""
    return await _shown(visit, {}, {})


async def _shown(
    visit: Visit, filled: Mapping[str, str], errors: Mapping[str, str], problem: str = ""
) -> Shown:
    found = await visit.ask("questions.show", id=visit.path["id"])
    facts = await facts_of(visit, found["tool"])
    page = questions.page_of(found, now(), facts.title, filled, errors)
    return Shown("pages/question.html", {"page": page, "problem": problem})


async def answer(visit: Visit) -> Moved | Shown:
    """Give what was filled in."""
    id = visit.path["id"]
    found = await visit.ask("questions.show", id=id)
    fields = forms.fields_of(found["requested_schema"] or {}) or ()
    given = {field.key: visit.form.get(field.key) for field in fields}
    filled = forms.read(fields, given)
    if filled.errors:
        return await _shown(visit, given, filled.errors, "Some fields need another look.")
    return await _answered(visit, "accept", filled.values, "Given. The call goes on.", given)


async def decline(visit: Visit) -> Moved | Shown:
    """Give nothing: the call is skipped."""
    return await _answered(
        visit, "decline", None, "Declined: the call is skipped, and the agent is told so.", {}
    )


async def _answered(
    visit: Visit, action: str, content: Mapping[str, object] | None, said: str, given: Mapping[str, str]
) -> Moved | Shown:
    id = visit.path["id"]
    try:
        await visit.ask("questions.answer", id=id, action=action, content=content, channel=CHANNEL)
    except PackhostError as error:
        present = await visit.ask("questions.show", id=id)
        if present["status"] != "pending":
            page = questions.page_of(present, now())
            who = f" by {page.answered_by}" if page.answered_by else ""
            late = f"Somebody was faster: this {page.says}{who}. Your answer changed nothing."
            return Moved(f"/questions/{id}", late, "failed")
        if error.code != "INVALID_INPUT":
            raise
        return await _shown(visit, given, {}, error.message)
    return Moved("/", said)
