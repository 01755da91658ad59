"""Grants: a person's standing "always allow" for calls of one tool, within what the grant says.

A grant never stands in for an approval that its manifest does not let be granted, nor for a control
tool, nor where its conditions cannot be asked of the arguments.
"""

from __future__ import annotations

from dataclasses import dataclass

from packhost.names import ToolId
from packhost.rules.arguments import ArgumentMatch, Unanswerable
from packhost.rules.policy import Facts


@dataclass(frozen=True, slots=True)
class Grant:
    """One grant; times are seconds of one clock, `None` is never.

    `arguments` must all hold; `maximum_uses` `None` is without end; `uses` counts those so far.
    """

    id: str
    principal: str
    tool: ToolId
    tool_version: str
    arguments: tuple[ArgumentMatch, ...] = ()
    expires_at: float | None = None
    revoked_at: float | None = None
    maximum_uses: int | None = None
    uses: int = 0


def live(grant: Grant, now: float) -> bool:
    """Whether the grant may cover anything still: not revoked, not expired, not used up."""
    return (
        grant.revoked_at is None
        and (grant.expires_at is None or now < grant.expires_at)
        and (grant.maximum_uses is None or grant.uses < grant.maximum_uses)
    )


def covers(grant: Grant, facts: Facts, tool_version: str, now: float) -> bool:
    """Whether the grant answers for this call; whoever asks has seen that the decision is grantable."""
    if facts.control or not all(approval.grantable for approval in facts.required):
        return False
    if (grant.tool, grant.tool_version, grant.principal) != (facts.tool, tool_version, facts.principal):
        return False
    try:
        return live(grant, now) and all(condition.holds(facts.arguments) for condition in grant.arguments)
    except Unanswerable:
        return False
