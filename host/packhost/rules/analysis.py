"""What is likely wrong with rules: they can never match, are outdone by others, or speak of nothing.

A finding is sure as far as it goes: what is not plain to see is not reported. A tool is known by what its
manifest says; a rule counts as pointless only where that holds for every tool that it is about.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from packhost.errors import Place
from packhost.names import ToolId, nearest
from packhost.rules.arguments import ArgumentMatch, Unanswerable
from packhost.rules.globs import tool_matches
from packhost.rules.policy import Permission, Rule

Finding = Literal["unknown", "never", "error", "shadowed", "pointless"]
_STRENGTH = {"allow": 0, "ask": 1, "deny": 2}
_UNFIT = {
    "range": ("string", "boolean", "array", "object"),
    "glob": ("integer", "number", "boolean", "array", "object"),
}
"""Types of values that a test cannot be asked of."""


@dataclass(frozen=True, slots=True)
class KnownTool:
    """What rules can be about, of one tool."""

    id: ToolId
    kind: str
    permission: Permission
    control: bool
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RuleFinding:
    """One thing that is likely wrong, where, and what to do about it."""

    finding: Finding
    text: str
    hint: str
    place: Place | None


def findings(rules: Sequence[Rule], tools: Sequence[KnownTool]) -> tuple[RuleFinding, ...]:
    """Everything that is likely wrong, in the order of the rules; at most one finding a rule."""
    found = []
    for number, rule in enumerate(rules):
        one = _of_rule(rule, number, rules, tools)
        if one is not None:
            found.append(one)
    return tuple(found)


def _of_rule(
    rule: Rule, number: int, rules: Sequence[Rule], tools: Sequence[KnownTool]
) -> RuleFinding | None:
    about = [tool for tool in tools if _about(rule, tool)]
    if not about:
        return _about_nothing(rule, tools)
    met = _met(rule, tools)
    if not met:
        finding, text, hint = next(_faults(rule, about[0]))
        return RuleFinding(finding, text, hint, rule.place)
    for position, other in enumerate(rules):
        if position == number or not _outdone(rule, other, met):
            continue
        # Of two that say the same the later one is reported.
        if position < number or not _outdone(other, rule, _met(other, tools)):
            where = f" at {other.place}" if other.place else ""
            text = f"the rule that says {other.decide}{where} decides every call that this one is about"
            return RuleFinding("shadowed", text, "take it out, or narrow the other", rule.place)
    if rule.decide == "allow" and all(tool.control or tool.permission != "admin" for tool in met):
        text = "the rule changes nothing: only an admin call asks where no rule speaks of it"
        hint = "take it out; an `allow` takes back no other rule, approval or level"
        return RuleFinding("pointless", text, hint, rule.place)
    return None


def _met(rule: Rule, tools: Sequence[KnownTool]) -> list[KnownTool]:
    """The tools that some call of which the rule may match."""
    return [tool for tool in tools if _about(rule, tool) and next(_faults(rule, tool), None) is None]


def _about(rule: Rule, tool: KnownTool) -> bool:
    return (
        (rule.tool is None or tool_matches(rule.tool, tool.id.canonical))
        and rule.pack in (None, tool.id.pack)
        and rule.kind in (None, tool.kind)
        and rule.permission in (None, tool.permission)
    )


def _about_nothing(rule: Rule, tools: Sequence[KnownTool]) -> RuleFinding:
    names = [tool.id.canonical for tool in tools]
    for what, value, known in (
        ("tool", rule.tool, names),
        ("pack", rule.pack, [tool.id.pack for tool in tools]),
        ("kind", rule.kind, [tool.kind for tool in tools]),
    ):
        if value is None:
            continue
        exists = any(tool_matches(value, name) for name in names) if what == "tool" else value in known
        if not exists:
            near = nearest(value, sorted(set(known)), 1)
            hint = f"did you mean `{near[0]}`?" if near else "enable its pack, or take the rule out"
            return RuleFinding("unknown", f"there is no {what} `{value}` here", hint, rule.place)
    text = "no tool is all that the rule's `match` says at once, so that it never matches"
    return RuleFinding("never", text, "check `tool`, `pack`, `kind` and `permission`", rule.place)


def _faults(rule: Rule, tool: KnownTool) -> Iterator[tuple[Finding, str, str]]:
    """What is wrong with the rule's conditions for every call of a tool: finding, text and hint."""
    for condition in rule.arguments:
        schema: Any = tool.schema
        for key in condition.keys:
            known = schema.get("properties", {})
            if key in known:
                schema = known[key]
            elif schema.get("additionalProperties", True) is False:
                near = nearest(key, known, 1)
                takes = ", ".join(f"`{name}`" for name in known) or "none"
                hint = f"did you mean `{near[0]}`?" if near else f"it takes {takes}"
                text = f"`{tool.id}` has no argument `{condition.path}`, so that the rule never matches"
                yield "never", text, hint
                break
            else:
                break
            if not isinstance(schema, Mapping):
                break
        else:
            yield from _value_faults(condition, schema, tool)


def _value_faults(
    condition: ArgumentMatch, schema: Any, tool: KnownTool
) -> Iterator[tuple[Finding, str, str]]:
    if not isinstance(schema, Mapping):
        return
    allowed = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if isinstance(allowed, list) and not any(_holds(condition, value) for value in allowed):
        listed = ", ".join(f"`{value}`" for value in allowed)
        yield (
            "never",
            f"`{condition.path}` of `{tool.id}` is never what the rule asks for, so that it never matches",
            f"it is one of {listed}",
        )
    kind = schema.get("type")
    if kind in _UNFIT.get(condition.test, ()):
        needs = "a number" if condition.test == "range" else "text"
        yield (
            "error",
            f"`{condition.path}` of `{tool.id}` is of type {kind}, and a {condition.test} needs {needs}: "
            "the rule denies every such call as an error",
            "ask for an exact value, or for another argument",
        )


def _holds(condition: ArgumentMatch, value: object) -> bool:
    nested: object = value
    for key in reversed(condition.keys):
        nested = {key: nested}
    try:
        return isinstance(nested, Mapping) and condition.holds(nested)
    except Unanswerable:
        return False


def _outdone(rule: Rule, other: Rule, tools: Sequence[KnownTool]) -> bool:
    """Whether `other` matches whatever `rule` matches and leaves it nothing to say."""
    if other.principal is not None and other.principal != rule.principal:
        return False
    if not all(_about(other, tool) for tool in tools):
        return False
    if not all(any(_implies(mine, theirs) for mine in rule.arguments) for theirs in other.arguments):
        return False
    if _STRENGTH[other.decide] > _STRENGTH[rule.decide]:
        return other.decide == "deny" or not other.relaxable
    if other.decide != rule.decide:
        return False
    if rule.decide != "ask":
        return True
    return (
        other.approvers >= rule.approvers
        and (other.assurance == "operator" or rule.assurance == "client")
        and (rule.relaxable or not other.relaxable)
    )


def _implies(mine: ArgumentMatch, theirs: ArgumentMatch) -> bool:
    """Whether a value that meets `mine` surely meets `theirs`."""
    if mine.path != theirs.path:
        return False
    if mine == theirs:
        return True
    if mine.test == "exact":
        return _holds(theirs, mine.exact)
    if mine.test == "range" and theirs.test == "range":
        above = theirs.minimum is None or (mine.minimum is not None and mine.minimum >= theirs.minimum)
        below = theirs.maximum is None or (mine.maximum is not None and mine.maximum <= theirs.maximum)
        return above and below
    if mine.test == "glob" and theirs.test == "glob":
        head = theirs.glob[:-3] if theirs.glob.endswith("/**") and "*" not in theirs.glob[:-3] else None
        inside = head is not None and f"{mine.glob}/".startswith(f"{head}/")
        return theirs.glob == "**" or inside
    return False
