"""An approval as a page shows it: what will run, who asks, why, until when, and how it was decided."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from packhost.console.views.diffs import Preview, preview_of
from packhost.console.views.texts import Moment, Value, about, moment, plural, short, shown, values
from packhost.gate.asked import read

_CHANNELS: Final[Mapping[str, str]] = {
    "cli": "at a terminal",
    "client": "in the client's dialog",
    "console": "in the console",
    "api": "through the API",
}
_STATUS: Final[Mapping[str, str]] = {
    "pending": "waits for an answer",
    "approved": "was allowed",
    "denied": "was denied",
    "expired": "ran out of time",
    "cancelled": "was withdrawn",
}
_BRIEF: Final = 80
_ABOUT: Final = 3
"""Arguments that a line about a call names."""


@dataclass(frozen=True, slots=True)
class ToolFacts:
    """What is known of a tool by now; empty for one that is gone."""

    title: str = ""
    about: str = ""
    permission: str = ""
    paths: frozenset[str] = frozenset()


def tool_facts(tool: Mapping[str, Any] | None) -> ToolFacts:
    """Of what `tools.show` or `tools.list` returns."""
    if tool is None:
        return ToolFacts()
    properties = tool.get("input_schema", {}).get("properties", {})
    paths = frozenset(
        name for name, part in properties.items() if isinstance(part, Mapping) and "x-path" in part
    )
    return ToolFacts(
        short(tool["title"]), short(_first_sentence(tool["description"]), 300), tool["permission"], paths
    )


def _first_sentence(text: str) -> str:
    line = text.split("\n")[0]
    head, stop, _ = line.partition(". ")
    return f"{head}." if stop else line


@dataclass(frozen=True, slots=True)
class Line:
    """An approval in a list."""

    id: str
    status: str
    title: str
    about: str
    tool: str
    client: str
    run_id: str | None
    created: Moment | None
    ends: Moment | None
    reason: str
    outcome: str
    operator: bool
    people: str


def line_of(approval: Mapping[str, Any], now: float, title: str = "") -> Line:
    """One line of the inbox."""
    asked = read(approval["prompt"])
    needed = approval["approvers_needed"]
    given = sum(each["verdict"] == "approve" for each in approval["answers"])
    return Line(
        id=approval["id"],
        status=approval["status"],
        title=title or shown(approval["tool"]),
        about=about_call(approval["arguments"]),
        tool=shown(approval["tool"]),
        client=short(approval["client"], 60),
        run_id=approval["run_id"],
        created=moment(approval["created_at"], now),
        ends=moment(approval["expires_at"], now),
        reason=shown(asked.reasons[0]) if asked.reasons else "",
        outcome=outcome(approval),
        operator=approval["assurance"] == "operator",
        people=f"{given} of {needed} people agreed" if needed > 1 else "",
    )


def about_call(arguments: Any) -> str:
    """A call's arguments in a line, the first of them first, long ones by their size."""
    if not isinstance(arguments, Mapping):
        return ""
    found = []
    for name, given in list(arguments.items())[:_ABOUT]:
        text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
        long = len(text) > 100 or "\n" in text
        found.append(f"{short(name, 40)}: {plural(len(text), 'character')}" if long else short(text, 100))
    more = len(arguments) - _ABOUT
    return " · ".join(found) + (f" · and {more} more" if more > 0 else "")


def outcome(approval: Mapping[str, Any]) -> str:
    """How it was decided, in words; empty while it waits."""
    status = approval["status"]
    if status == "pending":
        return ""
    by, where = approval["decided_by"], _CHANNELS.get(approval["decided_channel"] or "", "")
    if status == "approved":
        names = _joined([each["by"] for each in approval["answers"] if each["verdict"] == "approve"])
        return " ".join(filter(None, (f"allowed by {short(names or by or 'somebody')}", where)))
    if status == "denied":
        return " ".join(filter(None, (f"denied by {short(by or 'somebody')}", where)))
    return "nobody answered in time" if status == "expired" else "withdrawn before anybody answered"


def _joined(names: Sequence[str]) -> str:
    return ", ".join(names[:-1]) + (" and " if len(names) > 1 else "") + names[-1] if names else ""


@dataclass(frozen=True, slots=True)
class Page:
    """An approval whole."""

    id: str
    status: str
    pending: bool
    headline: str
    says: str
    title: str
    subject: str
    """What the call is about: a path, else the first short text among its arguments."""
    tool: str
    version: str
    about: str
    permission: str
    arguments: tuple[Value, ...]
    cut: bool
    preview: Preview
    more_preview: bool
    reasons: tuple[str, ...]
    stands_for: tuple[str, ...]
    said: str
    client: str
    principal: str
    session: str
    level: str
    run_id: str | None
    subagent: str
    operator: bool
    needed: int
    given: tuple[str, ...]
    outcome: str
    reason: str
    decided: Moment | None
    created: Moment | None
    ends: Moment | None
    left: str
    used_by: str | None
    state: str
    proposal: str

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person would overlook in the arguments, each by its name."""
        return tuple(f"{one.name}: {note}" for one in self.arguments for note in one.notes)


def page_of(
    approval: Mapping[str, Any],
    facts: ToolFacts,
    now: float,
    whole_preview: str | None = None,
    *,
    whole: bool = False,
) -> Page:
    """An approval's own page; with `whole` nothing of it is cut."""
    asked = read(approval["prompt"])
    arguments = approval["arguments"] if isinstance(approval["arguments"], Mapping) else {}
    told = values(arguments, facts.paths, whole=whole)
    preview = preview_of(whole_preview or asked.preview, None) if whole else preview_of(asked.preview)
    pending = approval["status"] == "pending"
    proposal = approval.get("proposal")
    return Page(
        id=approval["id"],
        status=approval["status"],
        pending=pending,
        headline=shown(asked.headline),
        says=_STATUS.get(approval["status"], approval["status"]),
        title=facts.title or shown(approval["tool"]),
        subject=_subject(arguments, facts.paths),
        tool=shown(approval["tool"]),
        version=shown(approval["tool_version"]),
        about=facts.about,
        permission=facts.permission,
        arguments=told,
        cut=not whole and (any(one.cut for one in told) or preview.left > 0 or whole_preview is not None),
        preview=preview,
        more_preview=whole_preview is not None and not whole,
        reasons=tuple(shown(each) for each in asked.reasons),
        stands_for=tuple(shown(each) for each in asked.stands_for),
        said=shown(asked.said),
        client=short(approval["client"]),
        principal=short(approval["principal"]),
        session=short(approval["session_id"]),
        level=asked.level,
        run_id=approval["run_id"],
        subagent=shown(asked.subagent),
        operator=approval["assurance"] == "operator",
        needed=approval["approvers_needed"],
        given=_answers(approval["answers"]),
        outcome=outcome(approval),
        reason=shown(approval["reason"] or ""),
        decided=moment(approval["decided_at"], now),
        created=moment(approval["created_at"], now),
        ends=moment(approval["expires_at"], now),
        left=about(max(0.0, approval["expires_at"] - now)),
        used_by=approval["consumed_by"],
        state=_state(approval),
        proposal=_proposed(proposal),
    )


def _subject(arguments: Mapping[str, Any], paths: Collection[str]) -> str:
    texts = {name: given for name, given in arguments.items() if isinstance(given, str)}
    first = next((name for name in texts if name in paths), None)
    if first is None:
        first = next((name for name, text in texts.items() if text and len(text) <= _BRIEF), None)
    return short(texts[first], _BRIEF) if first is not None else ""


def _answers(answers: Collection[Mapping[str, Any]]) -> tuple[str, ...]:
    return tuple(
        f"{short(each['by'])} {'allowed' if each['verdict'] == 'approve' else 'denied'} it"
        f" {_CHANNELS.get(each['channel'], '')}"
        f"{', with the passphrase or a passkey' if each['assurance'] == 'operator' else ''}".strip()
        for each in answers
    )


def _state(approval: Mapping[str, Any]) -> str:
    """What follows from how it stands, for whoever looks at it late."""
    if approval["status"] == "approved":
        if approval["consumed_by"]:
            return "The call has run; the approval is used up."
        return "The call runs once it is made again, exactly so; the approval is used up by it."
    if approval["status"] == "denied":
        return "The call did not run. Made again, it asks again, at most three times."
    if approval["status"] == "expired":
        return "The call did not run. Made again, it asks again."
    if approval["status"] == "cancelled":
        return "The call did not run."
    return ""


def _proposed(proposal: Mapping[str, Any] | None) -> str:
    if proposal is None:
        return ""
    return f"People allowed {plural(proposal['approvals'], 'call')} like this lately."
