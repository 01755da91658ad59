"""Calls that a run's caller makes for it: how a driver's state says which, and what came of them.

A state, or that of one branch, has the member `awaits`: `{checkpoint, calls, answers}`. `calls` are shown to
the caller, each with its `tool_call_id`; `answers` holds `{text, is_error}` by that id. Whoever resumes
the run adds answers; the driver takes them all at once and then forgets the member, in one step with what it
goes on to. The calls of a branch are known outside as `BRANCH/ID`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from packhost.names import new_id

MEMBER = "awaits"
PAST = "answered"
"""The member with the ids of calls whose answers were taken before."""


@dataclass(frozen=True, slots=True)
class Group:
    """The calls that one conversation waits for together."""

    branch: str
    raw: dict[str, Any]
    past: Sequence[str]

    def outside(self, identity: str) -> str:
        """A call's id as the caller knows it."""
        return f"{self.branch}/{identity}" if self.branch else identity

    @property
    def calls(self) -> list[dict[str, Any]]:
        """Every call, as the caller is shown it."""
        return [{**call, "tool_call_id": self.outside(call["tool_call_id"])} for call in self.raw["calls"]]

    @property
    def outstanding(self) -> list[dict[str, Any]]:
        """Those without an answer."""
        return [call for call in self.calls if self.inside(call["tool_call_id"]) not in self.raw["answers"]]

    def inside(self, identity: str) -> str:
        """A call's id as its conversation has it."""
        return identity.removeprefix(f"{self.branch}/") if self.branch else identity


def await_calls(state: dict[str, Any], calls: Sequence[Mapping[str, Any]]) -> None:
    """Have a state wait for these calls, under a checkpoint of its own."""
    state[MEMBER] = {"checkpoint": new_id("pause"), "calls": [dict(call) for call in calls], "answers": {}}


def take_answers(state: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Every answer of a group that is complete; the state waits no longer."""
    raw = state.pop(MEMBER)
    answers: dict[str, dict[str, Any]] = raw["answers"]
    state.setdefault(PAST, []).extend(answers)
    return answers


def awaited(state: Mapping[str, Any]) -> Group | None:
    """What this conversation itself waits for."""
    return next(_group("", state), None)


def groups_of(state: Mapping[str, Any]) -> Iterator[Group]:
    """What a run waits for: its own group, and those of its branches."""
    yield from _group("", state)
    for name, branch in (state.get("branches") or {}).items():
        yield from _group(name, branch)


def _group(branch: str, state: Mapping[str, Any]) -> Iterator[Group]:
    raw = state.get(MEMBER)
    if raw is not None:
        yield Group(branch, raw, state.get(PAST, ()))


def past_of(state: Mapping[str, Any]) -> frozenset[str]:
    """Ids, as the caller knows them, of calls whose answers were taken before."""
    found = set(state.get(PAST, ()))
    for name, branch in (state.get("branches") or {}).items():
        found.update(f"{name}/{identity}" for identity in branch.get(PAST, ()))
    return frozenset(found)


def same_output(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two answers say the same."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
