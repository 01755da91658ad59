"""Policy: each row of its precedence, and the laws that keep it from loosening."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packhost.errors import ConfigInvalid, Place
from packhost.names import ToolId
from packhost.rules.autonomy import LEVELS, Level
from packhost.rules.policy import (
    Decision,
    Facts,
    NamedApproval,
    Permission,
    Policy,
    Rule,
    Verdict,
    parse_argument_match,
    strictest,
)

SEVERITY = {"allow": 0, "ask": 1, "deny": 2}
CONTROL = NamedApproval("agent-runtime:remote_control", "Remote control", grantable=False)
PLAIN = NamedApproval("workspace:publish", "Publishing")


def facts(permission: Permission = "write", **more: Any) -> Facts:
    given_facts: dict[str, Any] = {"arguments": {"path": "src/a", "amount": 5}, **more}
    tool = given_facts.pop("tool", ToolId("workspace", "write_file"))
    return Facts(tool, "python", permission, "me", "editor", **given_facts)


def decide(rules: list[Rule], about: Facts, level: Level = "guarded") -> Decision:
    return Policy(rules).decide(about, level)


@pytest.mark.parametrize(
    ("permission", "level", "verdict", "code"),
    [
        ("read", "observe", "allow", None),
        ("read", "supervised", "allow", None),
        ("read", "guarded", "allow", None),
        ("read", "autonomous", "allow", None),
        ("write", "observe", "deny", "AUTONOMY_DENIED"),
        ("write", "supervised", "ask", None),
        ("write", "guarded", "allow", None),
        ("write", "autonomous", "allow", None),
        ("admin", "observe", "deny", "AUTONOMY_DENIED"),
        ("admin", "supervised", "ask", None),
        ("admin", "guarded", "ask", None),
        ("admin", "autonomous", "allow", None),
    ],
)
def test_without_rules_permission_and_level_decide(
    permission: Permission, level: Level, verdict: Verdict, code: str | None
) -> None:
    decision = decide([], facts(permission), level)
    assert (decision.verdict, decision.code) == (verdict, code)
    source = "default" if verdict == "allow" else "autonomy"
    assert [reason.source for reason in decision.reasons] == [source]


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        (("allow",), "allow"),
        (("allow", "ask"), "ask"),
        (("ask", "allow"), "ask"),
        (("allow", "ask", "deny"), "deny"),
        (("deny", "allow"), "deny"),
    ],
)
def test_deny_beats_ask_beats_allow_in_any_order(verdicts: tuple[Verdict, ...], expected: Verdict) -> None:
    decision = decide([Rule(verdict, f"says {verdict}") for verdict in verdicts], facts())
    assert decision.verdict == expected
    assert [reason.text for reason in decision.reasons] == [f"says {expected}"]


@pytest.mark.parametrize(
    ("match", "applies"),
    [
        ({}, True),
        ({"tool": "workspace:write_file"}, True),
        ({"tool": "workspace:*"}, True),
        ({"tool": "*:write_*"}, True),
        ({"tool": "*"}, True),
        ({"tool": "workspace:read_file"}, False),
        ({"tool": "other:*"}, False),
        ({"pack": "workspace"}, True),
        ({"pack": "other"}, False),
        ({"pack": "other", "tool": "workspace:*"}, False),
        ({"pack": "other", "tool": "workspace:write_file"}, False),
        ({"kind": "python"}, True),
        ({"kind": "http"}, False),
        ({"permission": "write"}, True),
        ({"permission": "read"}, False),
        ({"principal": "me"}, True),
        ({"principal": "you"}, False),
        ({"arguments": (parse_argument_match("path", "src/**"),)}, True),
        ({"arguments": (parse_argument_match("path", "docs/**"),)}, False),
        ({"arguments": (parse_argument_match("amount", {"min": 5, "max": 5}),)}, True),
        ({"arguments": (parse_argument_match("amount", {"max": 4}),)}, False),
        ({"arguments": (parse_argument_match("absent", {"max": 4}),)}, False),
        (
            {"arguments": (parse_argument_match("path", "src/**"), parse_argument_match("amount", 6))},
            False,
        ),
        ({"tool": "workspace:*", "permission": "write", "principal": "me", "kind": "python"}, True),
        ({"tool": "workspace:*", "permission": "write", "principal": "you"}, False),
    ],
)
def test_a_rule_applies_when_all_that_it_names_matches(match: dict[str, Any], applies: bool) -> None:
    assert (decide([Rule("deny", **match)], facts()).verdict == "deny") is applies


@pytest.mark.parametrize("decides", ["allow", "ask", "deny"])
def test_a_rule_that_cannot_be_asked_denies_whatever_it_says(decides: Verdict) -> None:
    place = Place("packhost.yaml", 9)
    rule = Rule(decides, "r", arguments=(parse_argument_match("path", {"min": 1}),), place=place)
    decision = decide([rule], facts("read"), "autonomous")
    assert (decision.verdict, decision.code) == ("deny", "POLICY_DENIED")
    assert [(reason.source, reason.place) for reason in decision.reasons] == [("error", place)]
    assert "`path`" in decision.reasons[0].text


def test_a_rule_plainly_not_met_does_not_err_in_either_order() -> None:
    conditions = (parse_argument_match("amount", 6), parse_argument_match("path", {"min": 1}))
    for ordered in (conditions, conditions[::-1]):
        assert decide([Rule("deny", arguments=ordered)], facts()).verdict == "allow"


def test_a_path_cannot_slip_past_a_rule_by_another_spelling() -> None:
    policy = Policy([Rule("deny", arguments=(parse_argument_match("path", "secrets/**"),))])
    for path in ("secrets/a", "./secrets/a", "secrets//a", "src/../secrets/a", "/secrets/a", "secrets/"):
        assert policy.decide(facts(arguments={"path": path}), "autonomous").verdict == "deny"


def test_an_allow_rule_lifts_the_default_of_admin_calls_at_guarded_alone() -> None:
    rule = [Rule("allow", "fine")]
    assert decide(rule, facts("admin"), "guarded").verdict == "allow"
    assert decide(rule, facts("admin"), "supervised").verdict == "ask"
    assert decide(rule, facts("admin"), "observe").code == "AUTONOMY_DENIED"
    assert decide(rule, facts("write"), "supervised").verdict == "ask"


def test_an_allow_rule_removes_no_approval_of_a_manifest() -> None:
    decision = decide([Rule("allow")], facts(required=(PLAIN,)), "autonomous")
    assert (decision.verdict, decision.approvals) == ("ask", (PLAIN,))


@pytest.mark.parametrize("level", ["supervised", "guarded", "autonomous"])
def test_a_manifests_approvals_ask_at_every_level(level: Level) -> None:
    for permission in ("read", "write", "admin"):
        decision = decide([], facts(permission, required=(PLAIN,)), level)
        assert decision.verdict == "ask"
        assert "workspace:publish" in " ".join(reason.text for reason in decision.reasons)


def test_a_relaxable_rule_asks_below_autonomous_and_not_at_it() -> None:
    rules = [Rule("ask", "look first", relaxable=True)]
    assert decide(rules, facts(), "guarded").verdict == "ask"
    relaxed = decide(rules, facts(), "autonomous")
    assert relaxed.verdict == "allow"
    assert "relaxed" in relaxed.reasons[0].text
    assert decide([*rules, Rule("ask", "always")], facts(), "autonomous").verdict == "ask"


def test_relaxable_does_not_relax_a_rule_that_denies() -> None:
    assert decide([Rule("deny", relaxable=True)], facts(), "autonomous").verdict == "deny"


@pytest.mark.parametrize("level", LEVELS)
def test_levels_do_not_apply_to_control_tools(level: Level) -> None:
    assert decide([], facts("write", control=True), level).verdict == "allow"
    assert decide([], facts("write", control=True, required=(CONTROL,)), level).verdict == "ask"
    assert decide([Rule("ask", relaxable=True)], facts("write", control=True), level).verdict == "ask"
    assert decide([Rule("deny")], facts("write", control=True), level).code == "POLICY_DENIED"


def test_a_denial_by_policy_and_level_names_the_policy_and_tells_both() -> None:
    decision = decide([Rule("deny", "no")], facts(), "observe")
    assert decision.code == "POLICY_DENIED"
    assert [reason.source for reason in decision.reasons] == ["rule", "autonomy"]


def test_all_who_ask_add_up() -> None:
    rules = [Rule("ask", approvers=2), Rule("ask", assurance="operator"), Rule("allow", approvers=9)]
    decision = decide(rules, facts(required=(CONTROL, PLAIN, PLAIN)))
    assert (decision.approvers, decision.assurance) == (2, "operator")
    assert decision.approvals == (CONTROL, PLAIN)
    named = NamedApproval("a:b", "B", approvers=3, assurance="operator")
    assert decide([], facts(required=(named,))).approvers == 3
    assert decide([], facts(required=(named,))).assurance == "operator"


@pytest.mark.parametrize(
    ("rules", "about", "level", "grantable"),
    [
        ([Rule("ask")], facts(), "guarded", True),
        ([], facts("admin"), "guarded", True),
        ([], facts(required=(PLAIN,)), "autonomous", True),
        ([], facts(), "supervised", False),
        ([Rule("ask")], facts("read"), "supervised", True),
        ([Rule("ask", approvers=2)], facts(), "guarded", False),
        ([Rule("ask", assurance="operator")], facts(), "guarded", False),
        ([], facts(required=(PLAIN, CONTROL)), "guarded", False),
        ([Rule("ask")], facts(control=True), "guarded", False),
    ],
)
def test_what_a_grant_may_answer(rules: list[Rule], about: Facts, level: Level, grantable: bool) -> None:
    decision = decide(rules, about, level)
    assert decision.verdict == "ask"
    assert decision.grantable is grantable


def test_reasons_carry_where_a_rule_stands() -> None:
    place = Place("packhost.yaml", 12, 5)
    decision = decide([Rule("deny", "not here", place=place)], facts())
    assert [(reason.text, reason.place) for reason in decision.reasons] == [("not here", place)]


def test_a_rule_without_a_reason_is_told_by_what_it_matches() -> None:
    rule = Rule("deny", tool="workspace:*", arguments=(parse_argument_match("path", "src/**"),))
    assert (
        decide([rule], facts()).reasons[0].text == "a rule says deny for tool `workspace:*`, arguments `path`"
    )
    assert decide([Rule("deny")], facts()).reasons[0].text == "a rule says deny for every call"


def test_a_rule_that_is_none_is_an_error_with_its_place() -> None:
    with pytest.raises(ConfigInvalid) as caught:
        Policy([Rule("deny", tool="write_file", place=Place("packhost.yaml", 3))])
    assert caught.value.place == Place("packhost.yaml", 3)


def test_one_policy_tells_principals_tools_levels_and_arguments_apart() -> None:
    conditional = Rule("ask", arguments=(parse_argument_match("path", "src/**"),), principal="me")
    policy = Policy([conditional, Rule("deny", tool="workspace:delete_path")])
    calls = [
        (facts(), "guarded", "ask"),
        (facts(arguments={"path": "docs/a"}), "guarded", "allow"),
        (facts(arguments={"path": 3}), "guarded", "deny"),
        (replace(facts(), principal="you"), "guarded", "allow"),
        (facts(tool=ToolId("workspace", "delete_path")), "guarded", "deny"),
        (facts(arguments={}), "supervised", "ask"),
        (facts("admin", arguments={}), "autonomous", "allow"),
        (facts("admin", arguments={}), "guarded", "ask"),
    ]
    for about, level, verdict in calls * 2:
        assert policy.decide(about, level).verdict == verdict


def test_a_decision_among_a_thousand_rules_is_quick() -> None:
    condition = (parse_argument_match("path", "src/**"),)
    rules = [Rule("ask", tool=f"pack{i}:write", arguments=condition) for i in range(500)]
    rules += [Rule("deny", permission="write", kind=f"kind{i}") for i in range(500)]
    policy = Policy(rules)
    about = facts(tool=ToolId("pack7", "write"))
    assert policy.decide(about, "guarded").verdict == "ask"
    started = time.perf_counter()
    for _ in range(1000):
        policy.decide(about, "guarded")
    # Ten times what a quiet machine needs, so that a busy one does not fail.
    assert (time.perf_counter() - started) / 1000 < 50e-6


# --- laws --------------------------------------------------------------------------------------------

conditions = st.sampled_from(
    [
        (),
        (),
        (parse_argument_match("path", "src/**"),),
        (parse_argument_match("path", "docs/*"),),
        (parse_argument_match("amount", {"min": 3}),),
        (parse_argument_match("path", {"max": 3}), parse_argument_match("amount", 5)),
    ]
)
rules_of = st.builds(
    Rule,
    st.sampled_from(["allow", "allow", "ask", "ask", "deny"]),
    st.sampled_from(["", "because", "so"]),
    relaxable=st.booleans(),
    place=st.sampled_from([None, Place("a", 1), Place("a", 2), Place("b", 1)]),
    tool=st.sampled_from([None, "workspace:*", "*:write_file", "workspace:write_file", "x:y"]),
    permission=st.sampled_from([None, None, "read", "write", "admin"]),
    arguments=conditions,
    approvers=st.sampled_from([1, 1, 2]),
    assurance=st.sampled_from(["client", "client", "operator"]),
)
approvals_of = st.builds(
    NamedApproval,
    st.sampled_from(["a:x", "a:y"]),
    st.sampled_from(["X", "Y"]),
    st.sampled_from(["client", "operator"]),
    st.booleans(),
    st.integers(1, 2),
)
facts_of = st.builds(
    Facts,
    st.sampled_from([ToolId("workspace", "write_file"), ToolId("workspace", "read_file")]),
    st.just("python"),
    st.sampled_from(["read", "write", "admin"]),
    st.just("me"),
    st.just("editor"),
    st.sampled_from([{}, {"path": "src/a"}, {"path": "docs/a", "amount": 5}, {"path": 1, "amount": 1}]),
    st.lists(approvals_of, max_size=2).map(tuple),
    st.booleans(),
)
levels_of = st.sampled_from(LEVELS)
decisions_of = st.builds(decide, st.lists(rules_of, max_size=4), facts_of, levels_of)
# Decisions that deny are many among random rules: a third of these are made to ask.
asking_of = st.builds(
    lambda rules, about, level: decide([replace(rule, decide="ask") for rule in rules], about, level),
    st.lists(rules_of, min_size=1, max_size=3),
    facts_of,
    levels_of,
)
joined = st.one_of(decisions_of, asking_of)


def no_looser(stricter: Decision, than: Decision) -> bool:
    """Whether `stricter` lets through no more than `than`, in the verdict and in who must answer."""
    if stricter.verdict != than.verdict or stricter.verdict != "ask":
        return SEVERITY[stricter.verdict] >= SEVERITY[than.verdict]
    names = {approval.name for approval in stricter.approvals}
    return (
        stricter.approvers >= than.approvers
        and (stricter.assurance, than.assurance) != ("client", "operator")
        and (than.grantable or not stricter.grantable)
        and names >= {approval.name for approval in than.approvals}
    )


@settings(max_examples=500, deadline=None)
@given(joined, joined, joined)
def test_the_strictest_of_decisions_does_not_depend_on_order_or_repetition(
    first: Decision, second: Decision, third: Decision
) -> None:
    assert strictest(first, second) == strictest(second, first)
    assert strictest(first, first) == first
    assert strictest(strictest(first, second), third) == strictest(first, strictest(second, third))


@settings(max_examples=500, deadline=None)
@given(joined, joined)
def test_the_strictest_of_two_is_no_looser_than_either(first: Decision, second: Decision) -> None:
    both = strictest(first, second)
    assert no_looser(both, first)
    assert no_looser(both, second)


@settings(max_examples=500, deadline=None)
@given(st.lists(rules_of, max_size=4), rules_of, facts_of, levels_of)
def test_a_further_rule_that_asks_or_denies_never_loosens(
    rules: list[Rule], further: Rule, about: Facts, level: Level
) -> None:
    before = decide(rules, about, level)
    denying = decide([*rules, replace(further, decide="deny")], about, level)
    assert SEVERITY[denying.verdict] >= SEVERITY[before.verdict]
    asking = decide([*rules, replace(further, decide="ask", relaxable=False)], about, level)
    assert no_looser(asking, before)


@settings(max_examples=500, deadline=None)
@given(st.lists(rules_of, max_size=4), facts_of)
def test_a_lower_level_never_lets_more_through(rules: list[Rule], about: Facts) -> None:
    policy = Policy(rules)
    decisions = [policy.decide(about, level) for level in LEVELS]
    for lower, higher in itertools.pairwise(decisions):
        assert no_looser(lower, higher)


@settings(max_examples=500, deadline=None)
@given(st.lists(rules_of, max_size=4), facts_of, approvals_of, levels_of)
def test_a_further_required_approval_never_loosens(
    rules: list[Rule], about: Facts, further: NamedApproval, level: Level
) -> None:
    before = decide(rules, about, level)
    assert no_looser(decide(rules, replace(about, required=(*about.required, further)), level), before)


@settings(max_examples=500, deadline=None)
@given(
    st.permutations([Rule("ask", "a"), Rule("deny", "b", permission="admin"), Rule("allow", "c")]),
    facts_of,
    levels_of,
)
def test_the_order_of_rules_does_not_matter(rules: list[Rule], about: Facts, level: Level) -> None:
    assert decide(rules, about, level) == decide(rules[::-1], about, level)


@settings(max_examples=300, deadline=None)
@given(st.lists(rules_of, max_size=4), st.lists(st.tuples(facts_of, levels_of), max_size=6))
def test_a_policy_decides_as_a_fresh_one_would(rules: list[Rule], calls: list[tuple[Facts, Level]]) -> None:
    policy = Policy(rules)
    for about, level in [*calls, *calls]:
        assert policy.decide(about, level) == decide(rules, about, level)


@settings(max_examples=500, deadline=None)
@given(joined)
def test_a_decision_is_whole(decision: Decision) -> None:
    assert decision.reasons
    assert (decision.code is None) is (decision.verdict != "deny")
    if decision.verdict == "ask":
        assert decision.approvers >= 1
    else:
        assert (decision.approvals, decision.approvers, decision.grantable) == ((), 0, False)
