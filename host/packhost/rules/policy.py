"""Policy: rules, a manifest's required approvals and the level of autonomy make one decision.

Precedence, strictest first; what stands higher wins, and nothing below it takes it back:

1. A rule whose condition cannot be asked of the arguments denies, as does a rule that says `deny`:
   `POLICY_DENIED`. A rule one of whose conditions is plainly not met does not apply, so it cannot err.
2. At `observe` whatever is not a read tool is denied: `AUTONOMY_DENIED`.
3. Asking, and all askers add up (each named approval, the most approvers, the higher assurance):
   a manifest's required approvals, at every level; rules that say `ask`, save those marked relaxable
   at `autonomous`; and at `supervised` every write and admin call.
4. No rule matched at all: an admin call asks at `guarded`.
5. Allow.

An `allow` rule thus lifts only 4, the default; it outweighs no deny, ask, approval or level. Levels do not
apply to control tools: rules (relaxable ones as well) and their manifest's approvals do.
A decision to ask may be answered by a grant only when one person at a client's channel would do, every
named approval is grantable, the tool is no control tool, and it is not `supervised` that asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from packhost.errors import Code, ConfigInvalid, Place
from packhost.names import ToolId
from packhost.rules.approvals import Assurance
from packhost.rules.arguments import ArgumentMatch, Unanswerable, parse_argument_match
from packhost.rules.autonomy import Level
from packhost.rules.dispatch import Dispatch
from packhost.rules.globs import check_tool_pattern, tool_matches

__all__ = [
    "ArgumentMatch",
    "Decision",
    "Facts",
    "NamedApproval",
    "Permission",
    "Policy",
    "Reason",
    "Rule",
    "Verdict",
    "parse_argument_match",
    "strictest",
]

Verdict = Literal["allow", "ask", "deny"]
Permission = Literal["read", "write", "admin"]

_SEVERITY: dict[Verdict, int] = {"allow": 0, "ask": 1, "deny": 2}
_SOURCES = ("error", "rule", "manifest", "autonomy", "default")
_MOST_PLANS = 2048
_MOST_OUTCOMES = 256


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of a policy; a field that is `None` matches anything, all that are given must match.

    `tool` is a pattern over `pack:tool`; `approvers` and `assurance` say who must answer an `ask`.
    """

    decide: Verdict
    reason: str = ""
    relaxable: bool = False
    place: Place | None = None
    tool: str | None = None
    pack: str | None = None
    kind: str | None = None
    permission: Permission | None = None
    principal: str | None = None
    arguments: tuple[ArgumentMatch, ...] = ()
    approvers: int = 1
    assurance: Assurance = "client"


@dataclass(frozen=True, slots=True)
class NamedApproval:
    """An approval that a manifest asks for by name (`pack:name`); `approvers` counts different people."""

    name: str
    title: str
    assurance: Assurance = "client"
    grantable: bool = True
    approvers: int = 1


@dataclass(frozen=True, slots=True)
class Facts:
    """What a decision rests on: the tool as its manifest declares it, and the host's view of the call.

    `arguments` are all of them, as admitted; a path in them is relative to the root. Nothing here may
    come from what a model says of itself.
    """

    tool: ToolId
    kind: str
    permission: Permission
    principal: str
    client: str
    arguments: Mapping[str, object]
    required: tuple[NamedApproval, ...] = ()
    control: bool = False


@dataclass(frozen=True, slots=True)
class Reason:
    """One thing that led to a decision, and where it is written."""

    source: Literal["rule", "manifest", "autonomy", "default", "error"]
    text: str
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict with its reasons, those of the verdict alone, in a fixed order.

    `code` is set when it is `deny`. `approvals`, `approvers` (how many different people), `assurance`
    and `grantable` (whether a live grant may stand in for the answer) tell of an `ask`; else they are
    empty, 0, `client` and false. `consent`: nothing asks but the agent of the run, for the consent of the
    one for whom it goes, who may answer then.
    """

    verdict: Verdict
    code: Code | None
    reasons: tuple[Reason, ...]
    approvals: tuple[NamedApproval, ...] = ()
    approvers: int = 0
    assurance: Assurance = "client"
    grantable: bool = False
    consent: bool = False


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is known of a tool's calls before their arguments are."""

    certain: tuple[Rule, ...]
    conditional: tuple[Rule, ...]
    dispatch: Dispatch
    decisions: dict[tuple[int, ...], Decision]
    """By the places in `conditional` of those that matched."""


class Policy:
    """Rules, checked and indexed once; deciding never changes what is decided.

    :raises ConfigInvalid: a rule's pattern of tools is not one; the error carries its place.
    """

    __slots__ = ("_index", "_plans", "rules")

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = tuple(rules)
        self._index: dict[str, list[Rule]] = {}
        self._plans: dict[object, _Plan] = {}
        for rule in self.rules:
            _check(rule)
            self._index.setdefault(_index_key(rule), []).append(rule)

    def decide(self, facts: Facts, level: Level) -> Decision:
        """Allow, ask or deny; see the module for the precedence. It raises nothing: an error denies."""
        known = (
            facts.tool,
            facts.kind,
            facts.permission,
            facts.principal,
            facts.control,
            facts.required,
            level,
        )
        plan = self._plans.get(known)
        if plan is None:
            plan = self._plan(facts, level)
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            self._plans[known] = plan
        if not plan.conditional:
            return plan.decisions[()]
        matched: list[int] = []
        errors: list[Reason] = []
        for number in plan.dispatch.candidates(facts.arguments):
            met = _conditions(plan.conditional[number], facts.arguments)
            if met is True:
                matched.append(number)
            elif met is not False:
                errors.append(met)
        which = tuple(matched)
        decision = None if errors else plan.decisions.get(which)
        if decision is None:
            rules = (*plan.certain, *(plan.conditional[number] for number in which))
            decision = _decide(facts, level, rules, errors)
            if not errors and len(plan.decisions) < _MOST_OUTCOMES:
                plan.decisions[which] = decision
        return decision

    def _plan(self, facts: Facts, level: Level) -> _Plan:
        certain: list[Rule] = []
        conditional: list[Rule] = []
        canonical = facts.tool.canonical
        for key in (canonical, facts.tool.pack, ""):
            for rule in self._index.get(key, ()):
                if _concerns(rule, facts, canonical):
                    (conditional if rule.arguments else certain).append(rule)
        dispatch = Dispatch([rule.arguments for rule in conditional])
        decisions: dict[tuple[int, ...], Decision] = {(): _decide(facts, level, certain, ())}
        return _Plan(tuple(certain), tuple(conditional), dispatch, decisions)


def _check(rule: Rule) -> None:
    try:
        if rule.tool is not None:
            check_tool_pattern(rule.tool)
    except ConfigInvalid as error:
        raise ConfigInvalid(error.message, hint=error.hint, place=rule.place) from None


def _index_key(rule: Rule) -> str:
    """The one tool, else the one pack, that the rule can concern; empty when it may be any."""
    if rule.tool is None:
        return rule.pack or ""
    if "*" not in rule.tool:
        return rule.tool
    pack = rule.tool.partition(":")[0]
    return pack if "*" not in pack else rule.pack or ""


def _concerns(rule: Rule, facts: Facts, canonical: str) -> bool:
    return (
        (rule.pack is None or rule.pack == facts.tool.pack)
        and (rule.kind is None or rule.kind == facts.kind)
        and (rule.permission is None or rule.permission == facts.permission)
        and (rule.principal is None or rule.principal == facts.principal)
        and (rule.tool is None or tool_matches(rule.tool, canonical))
    )


def _conditions(rule: Rule, arguments: Mapping[str, object]) -> bool | Reason:
    """Whether all conditions hold; one that fails outweighs one that cannot be asked, in any order."""
    error: Reason | None = None
    for condition in rule.arguments:
        try:
            if not condition.holds(arguments):
                return False
        except Unanswerable as problem:
            error = error or Reason("error", f"{problem}: the rule that asks of it denies", rule.place)
    return True if error is None else error


def _decide(facts: Facts, level: Level, matched: Sequence[Rule], errors: Sequence[Reason]) -> Decision:
    denials = [*errors, *(_said(rule) for rule in matched if rule.decide == "deny")]
    if level == "observe" and facts.permission != "read" and not facts.control:
        text = f"at the level `observe` only read tools run, and `{facts.tool}` is a {facts.permission} tool"
        code: Code = "POLICY_DENIED" if denials else "AUTONOMY_DENIED"
        return Decision("deny", code, _ordered([*denials, Reason("autonomy", text)]))
    if denials:
        return Decision("deny", "POLICY_DENIED", _ordered(denials))
    relaxing = level == "autonomous" and not facts.control
    asking = [rule for rule in matched if rule.decide == "ask" and not (relaxing and rule.relaxable)]
    by_level = _asked_by_level(facts, level, bool(matched))
    if not asking and not facts.required and by_level is None:
        return Decision("allow", None, _ordered(_allowing(facts, matched)))
    reasons = [_said(rule) for rule in asking]
    reasons += [
        Reason("manifest", f"`{facts.tool}` needs the approval `{approval.name}` ({approval.title})")
        for approval in facts.required
    ]
    if by_level is not None:
        reasons.append(by_level)
    askers: list[Rule | NamedApproval] = [*asking, *facts.required]
    approvers = max((asker.approvers for asker in askers), default=1)
    assurance = _highest(asker.assurance for asker in askers)
    grantable = (
        approvers <= 1
        and assurance == "client"
        and not facts.control
        and all(approval.grantable for approval in facts.required)
        and (by_level is None or level != "supervised")
    )
    approvals = _merged(facts.required)
    return Decision("ask", None, _ordered(reasons), approvals, max(approvers, 1), assurance, grantable)


def _asked_by_level(facts: Facts, level: Level, any_rule: bool) -> Reason | None:
    if facts.control or facts.permission == "read":
        return None
    if level == "supervised":
        return Reason("autonomy", "at the level `supervised` every write and admin call asks")
    if level == "guarded" and facts.permission == "admin" and not any_rule:
        return Reason("autonomy", "at the level `guarded` an admin call asks unless a rule allows it")
    return None


def _allowing(facts: Facts, matched: Sequence[Rule]) -> list[Reason]:
    if not matched:
        return [
            Reason("default", f"no rule speaks of this call, and a {facts.permission} call is allowed then")
        ]
    said = [(rule, _said(rule)) for rule in matched]
    return [
        replace(reason, text=f"{reason.text} (relaxed at `autonomous`)") if rule.decide == "ask" else reason
        for rule, reason in said
    ]


def _said(rule: Rule) -> Reason:
    if rule.reason:
        return Reason("rule", rule.reason, rule.place)
    named = {
        "tool": rule.tool,
        "pack": rule.pack,
        "kind": rule.kind,
        "permission": rule.permission,
        "principal": rule.principal,
        "arguments": ", ".join(condition.path for condition in rule.arguments) or None,
    }
    match = ", ".join(f"{key} `{value}`" for key, value in named.items() if value is not None)
    return Reason("rule", f"a rule says {rule.decide} for {match or 'every call'}", rule.place)


def _highest(found: Iterable[Assurance]) -> Assurance:
    return "operator" if "operator" in found else "client"


def _ordered(reasons: Iterable[Reason]) -> tuple[Reason, ...]:
    return tuple(sorted(dict.fromkeys(reasons), key=_order))


def _order(reason: Reason) -> tuple[int, str, int, int, str]:
    place = reason.place or Place("")
    return (_SOURCES.index(reason.source), place.file, place.line, place.column, reason.text)


def _merged(approvals: Iterable[NamedApproval]) -> tuple[NamedApproval, ...]:
    """One of each name, the stricter where two configurations tell of it differently."""
    found: dict[str, NamedApproval] = {}
    for approval in approvals:
        other = found.get(approval.name, approval)
        found[approval.name] = NamedApproval(
            approval.name,
            min(approval.title, other.title),
            _highest((approval.assurance, other.assurance)),
            approval.grantable and other.grantable,
            max(approval.approvers, other.approvers),
        )
    return tuple(found[name] for name in sorted(found))


def strictest(first: Decision, second: Decision) -> Decision:
    """What holds when both do: a call passes two configurations at once.

    The stricter verdict with its reasons; when both ask, all approvals, the most approvers, the higher
    assurance, and grantable only if both are. A policy's denial names the code before a level's. The order
    of the two does not matter.
    """
    if first.verdict != second.verdict:
        return first if _SEVERITY[first.verdict] > _SEVERITY[second.verdict] else second
    if first == second:
        return first
    code = "POLICY_DENIED" if "POLICY_DENIED" in (first.code, second.code) else first.code
    return Decision(
        first.verdict,
        code,
        _ordered((*first.reasons, *second.reasons)),
        _merged((*first.approvals, *second.approvals)),
        max(first.approvers, second.approvers),
        _highest((first.assurance, second.assurance)),
        first.grantable and second.grantable,
    )
