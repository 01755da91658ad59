"""What a driver is told: tools as a model may be offered them, and what came of calls."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from typing import Any

from packhost.gate import Completed, Deferred, Outcome
from packhost.gate.display import as_text
from packhost.gate.hidden import filled_by
from packhost.kinds.base import Tool
from packhost.kinds.context import OfferedTool, ToolOutcome
from packhost.manifest.elicit import without
from packhost.store.rows import CallRow


def rendered(outcome: Outcome) -> ToolOutcome:
    """What came of a call, as a driver and its model have it: a refusal as its sentence and as JSON."""
    if isinstance(outcome, Completed):
        return ToolOutcome(True, outcome.text, outcome.value, call_id=outcome.call_id)
    if isinstance(outcome, Deferred):
        text = f"APPROVAL_REQUIRED: the call {outcome.prompt.wish}."
        return ToolOutcome(False, text, code="APPROVAL_REQUIRED")
    text = f"{outcome.text}\n{as_text(outcome.as_json())}"
    return ToolOutcome(False, text, code=outcome.code, call_id=outcome.call_id)


def remembered(row: CallRow) -> ToolOutcome:
    """What a call's row says of it; one that was started and has no end is `EFFECTS_UNKNOWN`."""
    if row.status == "ok":
        return ToolOutcome(True, row.result_json or "null", call_id=row.id)
    if row.status == "error" and row.code == "CANCELLED":
        return ToolOutcome(False, "CANCELLED: the call was cut off.", code="CANCELLED", call_id=row.id)
    if row.status == "error":
        text = f"the call failed: {row.result_json or row.code}"
        return ToolOutcome(False, text, code="TOOL_FAILED", call_id=row.id)
    text = "EFFECTS_UNKNOWN: the call was cut off, what it did is not known."
    return ToolOutcome(False, text, code="EFFECTS_UNKNOWN", call_id=row.id)


def offer(tool: Tool, variables: Mapping[str, Any] | None = None) -> OfferedTool:
    """A tool as a model may be offered it: what the host fills, also from a run's variables, is left out."""
    spec = tool.spec
    unseen = tool.unseen | filled_by(spec.hidden_parameters, variables) if variables else tool.unseen
    return OfferedTool(
        name=tool.id.wire,
        canonical=tool.id.canonical,
        description=spec.description,
        input_schema=without(spec.input_schema, unseen) if unseen else spec.input_schema,
        idempotent=spec.idempotent,
        read_only=spec.permission == "read",
        kind=spec.kind,
        title=spec.title,
    )


def matches(tool: Tool, patterns: Sequence[str]) -> bool:
    """Whether one of the patterns is the tool's: by canonical name, or by its own or its given wire name."""
    names = (tool.id.canonical, tool.id.wire, tool.wire)
    return any(fnmatch.fnmatchcase(name, pattern) for name in names for pattern in patterns)
