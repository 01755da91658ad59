"""What may be done: scopes, policy, autonomy, approvals and grants; values in, values out.

Nothing here reads a file, a clock or a manifest. Each module states the precedence that it applies.
"""

from packhost.rules.approvals import ApprovalStatus, Assurance, Vote
from packhost.rules.arguments import ArgumentMatch, parse_argument_match
from packhost.rules.autonomy import LEVELS, Level
from packhost.rules.grants import Grant
from packhost.rules.policy import Decision, Facts, NamedApproval, Policy, Reason, Rule, Verdict, strictest
from packhost.rules.scopes import Layer, Scope, Uncovered, format_scope, parse_scope

__all__ = [
    "LEVELS",
    "ApprovalStatus",
    "ArgumentMatch",
    "Assurance",
    "Decision",
    "Facts",
    "Grant",
    "Layer",
    "Level",
    "NamedApproval",
    "Policy",
    "Reason",
    "Rule",
    "Scope",
    "Uncovered",
    "Verdict",
    "Vote",
    "format_scope",
    "parse_argument_match",
    "parse_scope",
    "strictest",
]
