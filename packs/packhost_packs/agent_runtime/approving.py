"""What a run asks of people beyond rules and manifests, and what of its calls it tells them.

A request adds to what its saved agent says and takes nothing back: whom a person's approval is needed for is
the workspace's to say, and never an argument's. Rules and manifests ask whatever stands here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from packhost.api import Manner, OfferedTool
from packhost_packs.agent_runtime.client_tools import KIND as CLIENT
from packhost_packs.agent_runtime.spawning import named

REASON = "approval_reason"
"""The parameter by which a model says why it makes a call."""
APPROVER = "approver"
"""The member by which a saved agent says who answers what it asks: `owner`, or `end-user`."""
LONGEST = 500
"""Characters of a reason that a person is shown."""
_WHY = {
    "type": "string",
    "maxLength": 2_000,
    "description": "Why you need this call, in a sentence: a person reads it before they decide.",
}


def joined(agent: Mapping[str, Any] | None, asked: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """What holds for a run of a saved agent: the stricter of the two in everything."""
    if agent is None:
        return None if asked is None else {name: asked[name] for name in asked if name != APPROVER}
    if asked is None:
        return dict(agent)
    found: dict[str, Any] = {}
    both = [one["require"] for one in (agent, asked) if one.get("require") is not None]
    if any(one is True for one in both):
        found["require"] = True
    elif both:
        listed = [pattern for one in both if one is not False for pattern in one]
        found["require"] = list(dict.fromkeys(listed)) or both[-1]
    if agent.get("request_reason") or asked.get("request_reason"):
        found["request_reason"] = True
    choices = [one["choices"] for one in (agent, asked) if one.get("choices") is not None]
    if choices:
        found["choices"] = {"always_allow": all(one.get("always_allow", True) for one in choices)}
    if agent.get(APPROVER) is not None:  # the workspace's to say, and never a request's
        found[APPROVER] = agent[APPROVER]
    return found


def required(approval: Mapping[str, Any] | None) -> list[str] | None:
    """Patterns of the tools that a run asks a person for; `None` where it says nothing of it."""
    require = None if approval is None else approval.get("require")
    if require is None:
        return None
    return ["*"] if require is True else list(require or ())


@dataclass(frozen=True, slots=True)
class Approving:
    """What one run asks and tells."""

    require: Sequence[str] | None
    ask_why: bool
    disclosed: Sequence[str]
    top_level: bool
    consent: bool = False
    """Whether the end user for whom the run goes may answer what the run itself asks."""

    def asks(self, tool: OfferedTool) -> bool:
        """Whether the run itself wants a person before each call of a tool."""
        return bool(self.require) and named(tool, self.require or ())

    def shown(self, tool: OfferedTool) -> OfferedTool:
        """The tool as the model is sent it: with a parameter for its reason, where one is asked for."""
        if not self._asks_why(tool):
            return tool
        schema = tool.input_schema
        properties = {**schema.get("properties", {}), REASON: _WHY}
        wanted = [*schema.get("required", ()), REASON]
        return replace(tool, input_schema={**schema, "properties": properties, "required": wanted})

    def taken(self, tool: OfferedTool, given: Mapping[str, Any]) -> tuple[Mapping[str, Any], Manner]:
        """The arguments of a call without its reason, and the manner in which it is made."""
        reason = ""
        if REASON in given and tool.input_schema.get("properties", {}).get(REASON) is _WHY:
            reason = str(given[REASON])[:LONGEST]
            given = {name: value for name, value in given.items() if name != REASON}
        disclose = bool(self.disclosed) and named(tool, self.disclosed)
        return given, Manner(self.top_level, disclose, reason, consent=self.consent)

    def _asks_why(self, tool: OfferedTool) -> bool:
        own = tool.input_schema.get("properties", {})
        return self.ask_why and self.asks(tool) and tool.kind != CLIENT and REASON not in own


def approving_of(spec: Mapping[str, Any]) -> Approving:
    """What a run's request says of it."""
    approval = spec.get("approval") or {}
    return Approving(
        required(spec.get("approval")),
        bool(approval.get("request_reason")),
        tuple((spec.get("disclose_tool_arguments") or {}).get("tools", ())),
        top_level=not spec.get("depth"),
        consent=approval.get(APPROVER) == "end-user",
    )
