"""Rules that are likely a mistake, each with what is wrong and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packhost.errors import Place
from packhost.names import ToolId
from packhost.rules.analysis import KnownTool, findings
from packhost.rules.arguments import ArgumentMatch, parse_argument_match
from packhost.rules.autonomy import LEVELS
from packhost.rules.policy import Facts, Policy, Rule

SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "path": {"type": "string"},
        "size": {"type": "integer"},
        "mode": {"enum": ["fast", "slow"]},
        "open": {"type": "object"},
    },
}
TOOLS = (
    KnownTool(ToolId("files", "read"), "python", "read", False, SCHEMA),
    KnownTool(ToolId("files", "write"), "python", "write", False, SCHEMA),
    KnownTool(ToolId("net", "reset"), "http", "admin", False, {"type": "object"}),
)


def match(**conditions: Any) -> tuple[ArgumentMatch, ...]:
    return tuple(parse_argument_match(path, value) for path, value in conditions.items())


def found(*rules: Rule) -> list[str]:
    return [one.finding for one in findings(rules, TOOLS)]


@pytest.mark.parametrize(
    ("rule", "finding", "said"),
    [
        (Rule("deny", tool="files:wirte"), "unknown", "files:write"),
        (Rule("deny", tool="other:*"), "unknown", "enable its pack"),
        (Rule("deny", pack="flies"), "unknown", "files"),
        (Rule("deny", kind="pyton"), "unknown", "python"),
        (Rule("deny", tool="files:*", permission="admin"), "never", "check `tool`"),
        (Rule("deny", tool="files:read", pack="net"), "never", "check `tool`"),
        (Rule("deny", tool="files:read", arguments=match(pth="a")), "never", "path"),
        (Rule("deny", pack="files", arguments=match(mode="fats")), "never", "fast"),
        (Rule("deny", pack="files", arguments=match(mode="q*")), "never", "slow"),
        (Rule("deny", pack="files", arguments=match(path={"min": 3})), "error", "exact value"),
        (Rule("deny", pack="files", arguments=match(size="a*")), "error", "exact value"),
        (Rule("allow", pack="files"), "pointless", "take it out"),
    ],
)
def test_a_rule_that_is_likely_a_mistake_is_found(rule: Rule, finding: str, said: str) -> None:
    (one,) = findings([rule], TOOLS)
    assert one.finding == finding
    assert said in one.hint


@pytest.mark.parametrize(
    "rule",
    [
        Rule("deny", tool="files:*"),
        Rule("ask", permission="write"),
        Rule("allow", permission="admin"),
        Rule("deny", principal="nobody-we-know"),
        Rule("deny", arguments=match(anything="x")),
        Rule("deny", pack="files", arguments=match(mode="fast")),
        Rule("deny", pack="files", arguments=match(**{"open.any.deep": 1})),
        Rule("ask", tool="net:reset", arguments=match(any_argument={"min": 1})),
    ],
)
def test_a_sound_rule_is_left_alone(rule: Rule) -> None:
    assert found(rule) == []


@pytest.mark.parametrize(
    ("weaker", "stronger"),
    [
        (Rule("ask", tool="files:write"), Rule("deny", pack="files")),
        (Rule("deny", tool="files:write"), Rule("deny", pack="files")),
        (Rule("allow", tool="net:reset"), Rule("ask", tool="net:*")),
        (Rule("ask", pack="files", relaxable=True), Rule("ask", pack="files")),
        (Rule("ask", pack="files"), Rule("ask", pack="files", approvers=2, assurance="operator")),
        (Rule("ask", pack="files", principal="ann"), Rule("ask", pack="files")),
        (
            Rule("ask", pack="files", arguments=match(path="src/a.py")),
            Rule("ask", arguments=match(path="src/*")),
        ),
        (
            Rule("ask", pack="files", arguments=match(path="src/x/*")),
            Rule("ask", arguments=match(path="src/**")),
        ),
        (
            Rule("ask", pack="files", arguments=match(size={"min": 5, "max": 6})),
            Rule("ask", arguments=match(size={"min": 4})),
        ),
    ],
)
def test_a_rule_that_another_outdoes_is_found_in_any_order(weaker: Rule, stronger: Rule) -> None:
    assert found(weaker, stronger) == ["shadowed"]
    assert found(stronger, weaker) == ["shadowed"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Rule("ask", tool="files:write"), Rule("deny", tool="files:read")),
        (Rule("ask", pack="files"), Rule("ask", pack="files", relaxable=True, approvers=2)),
        (Rule("ask", pack="files"), Rule("ask", pack="files", principal="ann", approvers=2)),
        (
            Rule("ask", pack="files", arguments=match(path="src/**")),
            Rule("deny", arguments=match(path="src2/**")),
        ),
        (
            Rule("ask", pack="files", arguments=match(path="src2/a")),
            Rule("deny", arguments=match(path="src/**")),
        ),
    ],
)
def test_rules_that_both_have_something_to_say_are_left_alone(one: Rule, other: Rule) -> None:
    assert found(one, other) == []


def test_of_two_equal_rules_the_later_one_is_reported() -> None:
    rules = [Rule("deny", pack="files", place=Place("f", line)) for line in (1, 2)]
    (one,) = findings(rules, TOOLS)
    assert one.place == Place("f", 2)


CONDITIONS = st.sampled_from(
    [(), match(path="src/*"), match(path="src/**"), match(path="src/a"), match(size={"min": 2})]
)
RULES = st.builds(
    Rule,
    decide=st.sampled_from(["allow", "ask", "deny"]),
    relaxable=st.booleans(),
    tool=st.sampled_from([None, "files:*", "files:write", "net:reset"]),
    principal=st.sampled_from([None, "ann"]),
    permission=st.sampled_from([None, "write", "admin"]),
    arguments=CONDITIONS,
    approvers=st.sampled_from([1, 2]),
)
ARGUMENTS: list[Mapping[str, object]] = [{}, {"path": "src/a"}, {"path": "src/b/c"}, {"path": "x", "size": 3}]


@given(st.lists(RULES, min_size=1, max_size=4))
@settings(max_examples=300, deadline=None)
def test_taking_out_a_reported_rule_changes_no_verdict(rules: list[Rule]) -> None:
    placed = [replace(rule, place=Place("f", line)) for line, rule in enumerate(rules, 1)]
    for one in findings(placed, TOOLS):
        left = [rule for rule in placed if rule.place != one.place]
        for tool in TOOLS:
            for level in LEVELS:
                for arguments in ARGUMENTS:
                    for principal in ("ann", "bob"):
                        facts = Facts(tool.id, tool.kind, tool.permission, principal, "c", arguments)
                        before, after = Policy(placed).decide(facts, level), Policy(left).decide(facts, level)
                        assert (before.verdict, before.approvers, before.assurance) == (
                            after.verdict,
                            after.approvers,
                            after.assurance,
                        )
