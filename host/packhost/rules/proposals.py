"""Proposals: the narrowest grant that would have covered what a person approved again and again."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from packhost.rules.approvals import canonical_json
from packhost.rules.arguments import ArgumentMatch
from packhost.rules.grants import Pattern

LEAST = 3
"""So many like approvals make a habit."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A grant that a person may want; `id` stands for exactly this one."""

    id: str
    principal: str
    tool: str
    tool_version: str
    pattern: Pattern
    covered: int
    """How many approvals it would have spared."""


def narrowest(calls: Sequence[Mapping[str, object]], paths: Collection[str]) -> Pattern | None:
    """The narrowest pattern that covers all of these arguments, their paths in one spelling.

    An argument that is the same in all stays exact; a path becomes the longest folder that holds all,
    and any other may be anything. `None` when a name cannot be written in a pattern.
    """
    names = {name: None for call in calls for name in call}
    if any(not name or "." in name for name in names):
        return None
    matches: list[ArgumentMatch] = []
    free: set[str] = set()
    for name in names:
        values = [call[name] for call in calls if name in call]
        if len(values) < len(calls):
            free.add(name)
        elif len({canonical_json(value) for value in values}) == 1:
            matches.append(ArgumentMatch(name, "exact", exact=values[0]))
        elif name in paths and (texts := [value for value in values if isinstance(value, str)]) == values:
            matches.append(ArgumentMatch(name, "glob", glob=_folder(texts)))
        else:
            free.add(name)
    return Pattern(tuple(matches), frozenset(free))


def _folder(paths: Sequence[str]) -> str:
    """The glob of the longest folder that holds every path."""
    common: list[str] = []
    for parts in zip(*(path.split("/")[:-1] for path in paths), strict=False):
        if len(set(parts)) > 1 or "*" in parts[0]:
            break
        common.append(parts[0])
    return "/".join([*common, "**"])


def propose(
    principal: str,
    tool: str,
    tool_version: str,
    approved: Sequence[Mapping[str, object]],
    denied: Sequence[Mapping[str, object]],
    paths: Collection[str],
) -> Proposal | None:
    """A grant for what was approved; `None` for fewer than three, or when it would allow what was denied.

    All arguments have their paths in one spelling.
    """
    if len(approved) < LEAST:
        return None
    pattern = narrowest(approved, paths)
    if pattern is None or any(pattern.holds(arguments) for arguments in denied):
        return None
    spelled = canonical_json([principal, tool, tool_version, pattern.as_json()])
    identity = f"gp_{hashlib.sha256(spelled.encode('ascii')).hexdigest()[:12]}"
    return Proposal(identity, principal, tool, tool_version, pattern, len(approved))
