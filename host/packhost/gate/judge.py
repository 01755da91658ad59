"""What the gate would say to a call, as a word with its grounds: for tests of a policy, and for what-ifs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from packhost.errors import Code, Place
from packhost.gate.configuration import Configuration
from packhost.gate.evaluate import Stopped, evaluate
from packhost.gate.types import Caller, CallRequest
from packhost.rules.autonomy import Level
from packhost.rules.policy import Verdict

SESSION = "policy"
"""The session that supposed calls belong to; nothing of it is stored."""


@dataclass(frozen=True, slots=True)
class Ground:
    """One thing that led to the verdict, and where it is written."""

    text: str
    place: Place | None = None

    def __str__(self) -> str:
        return f"{self.text} ({self.place})" if self.place else self.text


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict; `code` is set when it is `deny`. `step` is the gate's step that decided."""

    verdict: Verdict
    code: Code | None
    step: str
    grounds: tuple[Ground, ...]

    @property
    def word(self) -> str:
        """The verdict, with its code where there is one."""
        return f"{self.verdict} {self.code}" if self.code else self.verdict


def judge(
    tool: str,
    arguments: Mapping[str, Any],
    *,
    principal: str,
    client: str,
    level: Level,
    configuration: Configuration,
    root_descriptor: int,
) -> Judgement:
    """Take a supposed call through the gate's first four steps; nothing is written and nothing runs.

    Paths are resolved as they lie on disk. Hidden parameters that are given are left out, since the host
    fills them.
    """
    entry = configuration.catalog.find(tool)
    given = {name: value for name, value in arguments.items() if entry is None or name not in entry.hidden}
    request = CallRequest(tool, given, Caller(principal, client, SESSION))
    found = evaluate(request, configuration, level, root_descriptor)
    if isinstance(found, Stopped):
        refusal = found.refusal
        return Judgement("deny", refusal.code, found.step, (Ground(refusal.message, refusal.rule),))
    decision = found.decision
    grounds = tuple(Ground(reason.text, reason.place) for reason in decision.reasons)
    return Judgement(decision.verdict, None, "decide", grounds)
