"""The inbox, and the pages of one approval: answer it, allow calls like it, see how it was answered."""

from __future__ import annotations

from typing import Any, Final, Literal

from packhost.console.kit import Moved, Shown, Visit
from packhost.console.pages.common import PAGE, facts_of, next_page, now, reason_of, titles, too_late
from packhost.console.views import approvals, grants, questions
from packhost.console.views.narrowing import UNTIL, Choice, choice_of
from packhost.console.views.texts import short
from packhost.errors import InvalidInput, NotFound, PackhostError

STATUSES: Final = ("pending", "approved", "denied", "expired", "cancelled")
_WHOLE: Final = 20
"""Questions that the inbox shows whole; further ones stand in a line each."""
_LATE: Final = frozenset({"APPROVAL_DENIED", "APPROVAL_EXPIRED", "APPROVAL_REQUIRED", "RESUME_STATE_CHANGED"})


async def inbox(visit: Visit) -> Shown:
    """Everything that waits for a person, what ends first at the top."""
    found = await visit.ask("approvals.list", status="pending", limit=200)
    asked = await visit.ask("questions.list", status="pending", limit=50)
    named, at = await titles(visit), now()
    waiting = sorted(found["approvals"], key=lambda one: (one["expires_at"], one["id"]))
    cards = [approvals.page_of(one, await facts_of(visit, one["tool"]), at) for one in waiting[:_WHOLE]]
    return Shown(
        "pages/inbox.html",
        {
            "cards": cards,
            "more": [approvals.line_of(one, at, named.get(one["tool"], "")) for one in waiting[_WHOLE:]],
            "questions": [
                questions.page_of(one, at, named.get(one["tool"], "")) for one in asked["questions"]
            ],
        },
    )


async def history(visit: Visit) -> Shown:
    """Approvals of every status, the newest first."""
    status, before = visit.query.get("status"), visit.query.get("before")
    if status and status not in STATUSES:
        raise InvalidInput("there is no such status", hint="choose one of the list")
    found = await visit.ask("approvals.list", status=status or None, before=before or None, limit=PAGE)
    named, at = await titles(visit), now()
    return Shown(
        "pages/approvals.html",
        {
            "lines": [approvals.line_of(one, at, named.get(one["tool"], "")) for one in found["approvals"]],
            "status": status,
            "statuses": STATUSES,
            "next": next_page(found["approvals"]),
        },
    )


async def show(visit: Visit) -> Shown:
    """One approval; after "always allow" also the grant, which can be taken back here."""
    found = await visit.ask("approvals.show", id=visit.path["id"])
    preview = await _preview(visit)
    page = approvals.page_of(found, await facts_of(visit, found["tool"]), now(), preview)
    return Shown("pages/approval.html", {"page": page, "grant": await _given(visit)})


async def whole(visit: Visit) -> Shown:
    """One approval with nothing of it cut."""
    found = await visit.ask("approvals.show", id=visit.path["id"])
    preview = await _preview(visit)
    page = approvals.page_of(found, await facts_of(visit, found["tool"]), now(), preview, whole=True)
    return Shown("pages/approval_whole.html", {"page": page})


async def _preview(visit: Visit) -> str | None:
    found = await visit.ask("approvals.preview", id=visit.path["id"])
    return None if found["preview"] is None else str(found["preview"])


async def _given(visit: Visit) -> Any:
    id = visit.query.get("grant")
    if not id or not visit.viewer.may("grants:read"):
        return None
    try:
        found = await visit.ask("grants.show", id=id)
    except NotFound:
        return None
    return grants.line_of(found, now())


async def decide(visit: Visit) -> Moved:
    """Allow once, or deny."""
    id, verdict, reason = visit.path["id"], visit.form.get("verdict"), reason_of(visit)
    if verdict not in ("approve", "deny"):
        raise InvalidInput("that is no answer", hint="allow it or deny it")
    found = await visit.ask("approvals.show", id=id)
    if found["status"] != "pending" and (late := await too_late(visit, id)):
        return late
    answer: Literal["approve", "deny"] = "approve" if verdict == "approve" else "deny"
    try:
        done = await visit.decide(found, answer, reason)
    except PackhostError as error:
        if error.code in _LATE and (late := await too_late(visit, id)):
            return late
        raise
    named = (await titles(visit)).get(found["tool"], found["tool"])
    back = "/" if visit.form.get("from") == "inbox" else f"/approvals/{id}"
    return Moved(back, _said(done, f"{named} · {approvals.about_call(found['arguments'])}"))


def _said(done: dict[str, Any], what: str) -> str:
    if done["status"] == "pending":
        given = sum(each["verdict"] == "approve" for each in done["answers"])
        return f"Your answer counts: {given} of {done['approvers_needed']} people agreed. {what}"
    if done["status"] == "denied":
        return f"Denied: {what}. The agent is told so, with your reason."
    return f"Allowed once: {what}"


async def always(visit: Visit) -> Shown:
    """What "always allow" would allow, with what may be narrowed of it or left open."""
    return await _choosing(visit, {}, "")


async def allow_always(visit: Visit) -> Moved | Shown:
    """Allow calls like this from now on, if exactly that was shown before; else show it."""
    id = visit.path["id"]
    given = {name: visit.form.get(name) for name in _names(visit)}
    try:
        found, choice = await _chosen(visit, given)
        offer = await visit.ask("grants.offer", id=id, **choice.params)
    except InvalidInput as error:
        return await _choosing(visit, given, error.message)
    if visit.form.get("step") != "allow" or visit.form.get("shown") != choice.digest(offer):
        look = (
            "This is what you chose now. Look at it, then allow it."
            if visit.form.get("step") == "allow"
            else ""
        )
        if visit.proof.asks:  # a passkey signs what was shown, and nothing else
            raise InvalidInput("this is not what was shown", hint="press `Show what this allows`, and look")
        return await _choosing(visit, given, look)
    terms = {**choice.params, "expires_in": choice.expires_in, "uses": choice.uses}
    try:
        done = await visit.decide(found, "approve", reason_of(visit), always=terms)
    except PackhostError as error:
        if error.code in _LATE and (late := await too_late(visit, id)):
            return late
        raise
    if not done["grant"]:
        return Moved(f"/approvals/{id}", _said(done, "another person must agree before anything is allowed"))
    return Moved(
        f"/approvals/{id}?grant={done['grant']}", f"Allowed, and calls like it from now on, {choice.ends}."
    )


def _names(visit: Visit) -> list[str]:
    """The fields of the choice that a form brought."""
    prefixed = [f"{prefix}{rest}" for prefix in ("how.", "pattern.") for rest in visit.form.below(prefix)]
    return [*prefixed, *(name for name in ("until", "uses") if name in visit.form)]


async def _chosen(visit: Visit, given: dict[str, str]) -> tuple[dict[str, Any], Choice]:
    found = await visit.ask("approvals.show", id=visit.path["id"])
    exact = await visit.ask("grants.offer", id=found["id"])
    facts = await facts_of(visit, found["tool"])
    return found, choice_of(exact["match"], facts.paths, given)


async def _choosing(visit: Visit, given: dict[str, str], problem: str) -> Shown:
    """The form, with what it would allow as it is filled in; a choice that cannot be is shown as exact."""
    id = visit.path["id"]
    found = await visit.ask("approvals.show", id=id)
    facts = await facts_of(visit, found["tool"])
    page = approvals.page_of(found, facts, now())
    filled: dict[str, Any] = {"page": page, "until": UNTIL, "problem": problem, "choice": None, "offer": None}
    if not page.pending:
        return Shown("pages/always.html", {**filled, "never": ""})
    try:
        exact = await visit.ask("grants.offer", id=id)
    except PackhostError as error:
        return Shown("pages/always.html", {**filled, "never": error.message})
    try:
        choice = choice_of(exact["match"], facts.paths, given)
        offer = await visit.ask("grants.offer", id=id, **choice.params)
    except InvalidInput as error:
        choice, offer = choice_of(exact["match"], facts.paths, _kept(given)), None
        filled["problem"] = problem or error.message
    shown = None
    if offer is not None:
        shown = {
            "words": [short(words, 300) for words in offer["words"]],
            "wide": [short(words, 300) for words in offer["wide"]],
            "principal": short(offer["principal"]),
            "digest": choice.digest(offer),
        }
    return Shown("pages/always.html", {**filled, "choice": choice, "offer": shown, "never": ""})


def _kept(given: dict[str, str]) -> dict[str, str]:
    """Of a choice that cannot be, what stands in the patterns' fields."""
    return {name: held for name, held in given.items() if name.startswith(("how.", "pattern."))}
