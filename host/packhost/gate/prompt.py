"""The question that a person is asked about a call: exactly what will run, and what an answer means.

Its own lines begin at the margin; what comes from the call, a tool or a client is quoted, indented or
behind a bar, so that no content can pass for a line of the prompt.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from packhost.gate.asked import PREVIEW, SAID
from packhost.gate.display import LINE_WIDTH, argument_lines, label, lookalikes, one_line, quoted, shorten
from packhost.rules.approvals import Assurance
from packhost.rules.autonomy import Level
from packhost.rules.policy import NamedApproval, Reason

PREVIEW_LIMIT = 8_000
"""Characters of a preview that a prompt shows; its lines are capped as well."""
PREVIEW_LINES = 200


@dataclass(frozen=True, slots=True)
class Question:
    """Everything that a prompt tells; `expires_in` in seconds, `expires_at` in seconds since the epoch."""

    approval_id: str
    tool: str
    tool_version: str
    arguments: Mapping[str, Any]
    """In their display form: hidden ones and secrets redacted."""
    paths: Collection[str]
    preview: str
    reasons: tuple[Reason, ...]
    approvals: tuple[NamedApproval, ...]
    approvers: int
    assurance: Assurance
    client: str
    principal: str
    session: str
    level: Level
    run: str | None
    expires_in: float
    expires_at: float
    subagent: Mapping[str, str] | None = None
    said: str = ""
    """Why the model says that it makes the call."""

    def text(self) -> str:
        """The whole prompt.

        Claude Code shows three lines of a dialog and counts the rest, so the first three say what would
        run, what would change, and how to see everything; what follows says the same at length.
        """
        lines = [headline(self.tool, self.arguments)]
        if self.preview:
            lines.append(f"Would do: {gist(self.preview)}")
        lines.append(self._whole())
        lines.append(self._asker())
        lines += [f"Why you are asked: {_reason(reason)}" for reason in self.reasons]
        if self.said:
            lines.append(SAID)
            lines += quoted(shorten(self.said))
        lines += self._needed()
        lines.append("Arguments, character for character:")
        lines += argument_lines(self.arguments, self.paths)
        if self.preview:
            lines.append(PREVIEW)
            lines += quoted(shorten(self.preview, PREVIEW_LIMIT, PREVIEW_LINES))
        lines.append(self._meaning())
        return "\n".join(lines)

    def _whole(self) -> str:
        text = f"Whole: packhost approvals show {self.approval_id} · once, within {_minutes(self.expires_in)}"
        if any(_odd(name) or _odd(value) for name, value in self.arguments.items()):
            text += " · look closely: letters of another alphabet"
        return text

    def _asker(self) -> str:
        run = f", in run {self.run}" if self.run else ""
        if self.subagent is not None:
            run += f" of the subagent {one_line(self.subagent['agent_name'])} ({self.subagent['tool_name']})"
        return (
            f"Asked by a client that calls itself {json.dumps(label(self.client), ensure_ascii=False)} "
            f"(its own label, no proof), for {one_line(self.principal)}, "
            f"in session {one_line(self.session)} at level {self.level}{run}."
        )

    def _needed(self) -> list[str]:
        lines = [f"It stands for: {label(one.title)} ({one.name})" for one in self.approvals]
        if self.assurance == "operator":
            lines.append(
                "Needed: an operator's passphrase. No dialog can give that: answer in the console, which "
                f"`packhost console` opens, or with `packhost approvals approve {self.approval_id}` in a "
                "terminal of your own."
            )
        if self.approvers > 1:
            lines.append(f"Needed: {self.approvers} different people; yours is one of the answers.")
        return lines

    def _meaning(self) -> str:
        until = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(self.expires_at))
        return (
            f"Approval {self.approval_id}, open until {until}, for {self.tool} {self.tool_version}. "
            "Accepting allows exactly this call, once, and nothing else."
        )


def cuts(preview: str) -> bool:
    """Whether a prompt shows a part of this preview alone."""
    return len(preview) > PREVIEW_LIMIT or preview.count("\n") >= PREVIEW_LINES


def headline(tool: str, arguments: Mapping[str, Any]) -> str:
    """One line: the tool and its shortest arguments, the first of them first."""
    text = f"Allow {tool}"
    for name, value in arguments.items():
        shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        part = f" {label(one_line(name))}={one_line(shown) if len(shown) <= LINE_WIDTH else '…'}"
        text += part if len(text) + len(part) <= LINE_WIDTH else f" {label(one_line(name))}=…"
        if len(text) > LINE_WIDTH:
            break
    return f"{label(text)}?"


def gist(preview: str) -> str:
    """A preview in one line: of a diff its changed lines, else its first lines."""
    lines = [line for line in preview[: 4 * PREVIEW_LIMIT].split("\n") if line.strip()]
    changed = [line for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    return label(" ⏎ ".join(changed or lines))


def _odd(value: Any) -> bool:
    if not isinstance(value, str):
        value = json.dumps(value, ensure_ascii=False)
    return bool(lookalikes(value[:100_000], short=len(value) <= 300))


def _reason(reason: Reason) -> str:
    place = f" ({reason.place})" if reason.place else ""
    return f"{label(reason.text, 300)}{place}"


def _minutes(seconds: float) -> str:
    return f"{round(seconds)} s" if seconds < 120 else f"{round(seconds / 60)} min"
