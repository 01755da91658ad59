"""Steps of a workflow that ask no model: one call of a tool, or a value put together from earlier ones.

Their texts are templates like a prompt's. A string that is one reference alone becomes what it finds, of
whatever type; nothing that is found is read as a template again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import packhost_packs.agent_runtime.strict_json as strict_json
from packhost.api import RunHandle, ToolOutcome
from packhost_packs.agent_runtime.approving import required
from packhost_packs.agent_runtime.children import Step
from packhost_packs.agent_runtime.faults import TurnFault
from packhost_packs.agent_runtime.spawning import named
from packhost_packs.agent_runtime.workflows.plan import Node
from packhost_packs.agent_runtime.workflows.values import Missing, look_up, render

_ALONE = re.compile(r"\{\{([^{}]*)\}\}\Z")
_BEYOND = "SCOPE_DENIED: `{tool}` is no tool of the run that calls this flow."
_UNKNOWN = "EFFECTS_UNKNOWN: this step was cut off and is not run again; what it did is not known."


def fill(template: Any, values: Mapping[str, Any]) -> Any:
    """A JSON template with its references replaced; what is not there is `null`."""
    if isinstance(template, str):
        alone = _ALONE.match(template)
        if alone is None:
            return render(template, values)
        found = look_up(alone[1].strip(), values)
        return None if isinstance(found, Missing) else found
    if isinstance(template, Mapping):
        return {name: fill(value, values) for name, value in template.items()}
    if isinstance(template, list):
        return [fill(value, values) for value in template]
    return template


async def run_step(
    run: RunHandle, node: Node, state: Mapping[str, Any], values: Mapping[str, Any]
) -> dict[str, Any]:
    """What a step's state becomes: its outcome and its value, also after it was interrupted."""
    step = node.step or {}
    if "call" not in step:
        return _done(fill(step["value"], values))
    call = step["call"]
    outcome = await _recovered(run, node, call["tool"]) if state.get("called") else None
    if outcome is None and not _within(run, call["tool"]):
        outcome = ToolOutcome(False, _BEYOND.format(tool=call["tool"]), code="SCOPE_DENIED")
    if outcome is None:
        arguments = fill(call.get("arguments") or {}, values)
        asks = _asks(run, call["tool"])
        told = _told(run.spec)
        outcome = await run.call_tool(call["tool"], arguments, tool_use_id=node.id, ask=asks, calling=told)
    if not outcome.ok:
        fault = {"issue": outcome.code or "TOOL_FAILED", "message": outcome.text.partition("\n")[0][:2000]}
        return {"outcome": "error", "error": fault, "text": ""}
    return _done(_value(outcome), None if outcome.text[:1] != "<" else outcome.text)


def _told(spec: Mapping[str, Any]) -> Step:
    """What a kind of this pack is told of the run whose step calls it."""
    depth = int(spec.get("depth", 0))
    return Step(required(spec.get("approval")), spec.get("within"), depth, bool(spec.get("nesting", True)))


def _within(run: RunHandle, name: str) -> bool:
    """Whether the run that calls this flow, if it is bound to one, has the tool."""
    within = run.spec.get("within")
    return within is None or any(tool.canonical in within for tool in run.offered([name]))


def _asks(run: RunHandle, name: str) -> str:
    """Why the run itself wants a person before a step's call; empty where it does not."""
    require = required(run.spec.get("approval"))
    if not require or not any(named(tool, require) for tool in run.offered([name])):
        return ""
    return f"the run asks a person before each call of `{name}`"


async def _recovered(run: RunHandle, node: Node, tool: str) -> ToolOutcome | None:
    known = await run.recorded(node.id)
    if known is None or known.ok:
        return known
    if known.code == "CANCELLED" and any(one.idempotent for one in run.offered([tool])):
        return None
    if known.code in ("CANCELLED", "EFFECTS_UNKNOWN"):
        return ToolOutcome(False, _UNKNOWN, code="EFFECTS_UNKNOWN", call_id=known.call_id)
    return known


def _value(outcome: ToolOutcome) -> Any:
    if outcome.value is not None:
        return outcome.value
    try:
        return strict_json.loads(outcome.text.encode("utf-8", "surrogatepass"), "the result")
    except TurnFault:
        return outcome.text


def _done(value: Any, text: str | None = None) -> dict[str, Any]:
    """`text` is the value as a later prompt sees it: untrusted output stays between its marks."""
    if text is None:
        text = value if isinstance(value, str) else strict_json.dumps(value).decode()
    return {"outcome": "completed", "text": text, "value": value}
