"""Recorded calls held against two configurations."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from packhost.app.configuring import Supposition
from packhost.errors import InvalidInput
from packhost.gate.judge import Judgement, judge
from packhost.names import nearest
from packhost.rules.autonomy import LEVELS, Level
from packhost.store.ops.history import RecordedCall

_EXAMPLE: Final = 80
"""Characters of an example's arguments."""


@dataclass(slots=True)
class Change:
    """Calls of one tool that would meet something else, for the same reason."""

    before: str
    after: str
    tool: str
    because: str
    count: int = 0
    example: str = ""
    """The arguments of the first of them, shortened."""
    events: list[int] = field(default_factory=list)
    """The numbers of their events on record, at most a hundred."""


@dataclass(frozen=True, slots=True)
class Replay:
    """What would be different: `calls` were asked about, `left_out` could not be."""

    calls: int
    left_out: int
    level: Level
    changes: tuple[Change, ...]

    @property
    def changed(self) -> int:
        """How many calls would meet something else."""
        return sum(change.count for change in self.changes)

    def as_json(self) -> dict[str, Any]:
        """As a program reads it."""
        return {
            "calls": self.calls,
            "left_out": self.left_out,
            "level": self.level,
            "changed": self.changed,
            "changes": [asdict(change) for change in self.changes],
        }


def replay(calls: Sequence[RecordedCall], now: Supposition, then: Supposition, level: str | None) -> Replay:
    """Judge every call twice; the changes, those that concern most calls first.

    :raises InvalidInput: for a level that there is not.
    """
    wanted = _level(level, now)
    known: dict[str, tuple[Judgement, Judgement]] = {}
    changes: dict[tuple[str, ...], Change] = {}
    asked = 0
    for call in calls:
        if call.arguments is None:
            continue
        asked += 1
        text = json.dumps(call.arguments, ensure_ascii=False, sort_keys=True)
        key = json.dumps([call.tool, call.principal, call.client, text])
        if key not in known:
            known[key] = _judged(call, now, wanted), _judged(call, then, wanted)
        before, after = known[key]
        if before.word != after.word:
            because = "; ".join(map(str, (after if after.verdict != "allow" else before).grounds))
            group = (before.word, after.word, call.tool, because)
            change = changes.setdefault(group, Change(*group))
            change.count += 1
            change.example = change.example or (text if len(text) <= _EXAMPLE else f"{text[:_EXAMPLE]}…")
            if len(change.events) < 100:
                change.events.append(call.event)
    ordered = sorted(changes.values(), key=lambda one: (-one.count, one.tool, one.before, one.after))
    return Replay(asked, len(calls) - asked, wanted, tuple(ordered))


def _level(level: str | None, now: Supposition) -> Level:
    if level is None:
        return now.configuration.autonomy.default
    for known in LEVELS:
        if level == known:
            return known
    near = nearest(level, LEVELS, 1)
    hint = f"did you mean `{near[0]}`?" if near else f"use one of {', '.join(LEVELS)}"
    raise InvalidInput(f"`{level}` is no level of autonomy", hint=hint)


def _judged(call: RecordedCall, here: Supposition, level: Level) -> Judgement:
    return judge(
        call.tool,
        call.arguments or {},
        principal=call.principal,
        client=call.client,
        level=level,
        configuration=here.configuration,
        root_descriptor=here.root.descriptor,
    )
