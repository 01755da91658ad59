"""Grants: a person's standing "always allow" for calls of one tool, within what the grant says.

A grant speaks of every argument by name: what it does not name must be absent from a call. It never
stands in for an approval that its manifest does not let be granted, nor for a control tool, nor where
its conditions cannot be asked of the arguments.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from packhost.errors import ConfigInvalid, InvalidInput
from packhost.names import ToolId, nearest
from packhost.rules.arguments import (
    ArgumentMatch,
    Unanswerable,
    as_path,
    format_argument_match,
    parse_argument_match,
    read,
)
from packhost.rules.globs import printable
from packhost.rules.policy import Facts

ANY = {"any": True}
"""How a pattern spells that an argument may have any value, or be absent."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """Which arguments a grant covers: `arguments` must all hold, `free` ones may be anything."""

    arguments: tuple[ArgumentMatch, ...] = ()
    free: frozenset[str] = frozenset()

    def holds(self, arguments: Mapping[str, object]) -> bool:
        """Whether the pattern covers exactly these arguments; one that cannot be asked is not met."""
        named = {match.path for match in self.arguments if len(match.keys) == 1} | self.free
        try:
            return arguments.keys() <= named and all(_holds(match, arguments) for match in self.arguments)
        except Unanswerable:
            return False

    def as_json(self) -> dict[str, object]:
        """The pattern as it is stored and shown; `pattern_of` reads it."""
        shown: dict[str, object] = {match.path: format_argument_match(match) for match in self.arguments}
        return {**shown, **dict.fromkeys(sorted(self.free), ANY)}

    def words(self) -> list[str]:
        """The pattern for people, a line an argument."""
        lines = [f"{match.path}: {_words(match)}" for match in self.arguments]
        return [*lines, *(f"{name}: anything" for name in sorted(self.free))] or ["no arguments"]


def _holds(match: ArgumentMatch, arguments: Mapping[str, object]) -> bool:
    """As the condition itself; but "below a folder" is not the folder, which a call may delete or move."""
    if not match.holds(arguments):
        return False
    if match.test != "glob" or not (match.glob == "**" or match.glob.endswith("/**")):
        return True
    return as_path(match.path, read(match.keys, arguments)) != match.glob.removesuffix("**").rstrip("/")


def _words(match: ArgumentMatch) -> str:
    if match.test == "exact":
        return f"exactly {json.dumps(match.exact, ensure_ascii=False)}"
    if match.test == "range":
        return f"from {match.minimum} to {match.maximum}"
    folder = match.glob.removesuffix("/**")
    if match.glob == "**":
        return "any path in the workspace"
    if folder != match.glob and "*" not in folder:
        return f"any path below {json.dumps(folder, ensure_ascii=False)}"
    return f"paths that match {json.dumps(match.glob, ensure_ascii=False)}"


def pattern_of(value: Mapping[str, object]) -> Pattern:
    """A pattern from its JSON.

    :raises ConfigInvalid: it is none.
    """
    free = frozenset(name for name, wanted in value.items() if wanted == ANY)
    matches = tuple(parse_argument_match(name, wanted) for name, wanted in value.items() if name not in free)
    return Pattern(matches, free)


def exact_pattern(arguments: Mapping[str, object]) -> Pattern:
    """The pattern that covers these very arguments and nothing else.

    :raises InvalidInput: an argument's name cannot be written in a pattern.
    """
    for name in arguments:
        if not name or "." in name:
            raise InvalidInput(
                f"the argument `{printable(name)}` cannot be named in a grant", hint="approve each call"
            )
    return Pattern(tuple(ArgumentMatch(name, "exact", exact=value) for name, value in arguments.items()))


def adjusted(
    pattern: Pattern,
    arguments: Mapping[str, object] | None,
    paths: Collection[str],
    only: Mapping[str, str],
    anything: Collection[str] = (),
) -> Pattern:
    """The pattern with a glob for some path arguments, and some arguments left open, as a person says.

    `paths` are the arguments that are paths: no other takes a glob. With `arguments`, those of a call,
    the outcome must cover that call.

    :raises InvalidInput: a name is no argument of the pattern, a glob is none, or it covers not the call.
    """
    matches = {match.path: match for match in pattern.arguments}
    free = set(pattern.free)
    known = {*matches, *free}
    for name in (*only, *anything):
        if name not in known:
            near = nearest(name, known, 1)
            raise InvalidInput(
                f"`{printable(name)}` is no argument of this call",
                hint=f"did you mean `{near[0]}`?" if near else f"name one of {', '.join(sorted(known))}",
            )
    for name, glob in only.items():
        if name not in paths:
            raise InvalidInput(
                f"`{name}` is no path, and only paths take a pattern",
                hint=f"leave it exact, or allow any value of it with `--any {name}`",
            )
        try:
            matches[name] = ArgumentMatch(name, "glob", glob=_clean(glob))
        except ConfigInvalid as error:
            raise InvalidInput(
                f"`{printable(glob)}` is no pattern: {error.message}", hint=error.hint
            ) from None
        free.discard(name)
    for name in anything:
        matches.pop(name, None)
        free.add(name)
    made = Pattern(tuple(matches.values()), frozenset(free))
    if arguments is not None and not made.holds(arguments):
        raise InvalidInput(
            "that pattern does not cover the call itself", hint="write one that the call's own values match"
        )
    return made


def _clean(glob: str) -> str:
    return glob.removeprefix("./")


def widest(pattern: Pattern, paths: Collection[str]) -> list[str]:
    """What a person should think twice about: the arguments that the pattern leaves open, in words."""
    wide = [f"`{name}` may be anything" for name in sorted(pattern.free)]
    wide += [
        f"`{match.path}` may be any path in the workspace"
        for match in pattern.arguments
        if match.path in paths and match.test == "glob" and match.glob == "**"
    ]
    return wide


def lexical(arguments: Mapping[str, object], paths: Collection[str]) -> dict[str, object] | None:
    """The arguments with each path in its one spelling; `None` when one is no path below the root."""
    clean = dict(arguments)
    try:
        for name in paths:
            if isinstance(clean.get(name), str):
                clean[name] = as_path(name, clean[name])
    except Unanswerable:
        return None
    return clean


@dataclass(frozen=True, slots=True)
class Grant:
    """One grant; times are seconds of one clock, `None` is never.

    `maximum_uses` `None` is without end; `uses` counts those so far. `hidden` stands for the hidden
    arguments that the person's answer was about.
    """

    id: str
    principal: str
    tool: ToolId
    tool_version: str
    pattern: Pattern = Pattern()
    expires_at: float | None = None
    revoked_at: float | None = None
    maximum_uses: int | None = None
    uses: int = 0
    hidden: str = ""


def live(grant: Grant, now: float) -> bool:
    """Whether the grant may cover anything still: not revoked, not expired, not used up."""
    return (
        grant.revoked_at is None
        and (grant.expires_at is None or now < grant.expires_at)
        and (grant.maximum_uses is None or grant.uses < grant.maximum_uses)
    )


def covers(grant: Grant, facts: Facts, tool_version: str, now: float, hidden: str = "") -> bool:
    """Whether the grant answers for this call; whoever asks has seen that the decision is grantable.

    `facts.arguments` are those that an agent gives; `hidden` stands for the others, as `Grant.hidden`.
    """
    if facts.control or not all(approval.grantable for approval in facts.required):
        return False
    if (grant.tool, grant.tool_version, grant.principal) != (facts.tool, tool_version, facts.principal):
        return False
    return live(grant, now) and grant.hidden == hidden and grant.pattern.holds(facts.arguments)
