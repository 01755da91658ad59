"""What a workflow comes to, from how its nodes ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from packhost_packs.agent_runtime.ledger import spent_in
from packhost_packs.agent_runtime.workflows.plan import Node

_AS = {"tool_request": "incomplete", "error": "unsupported"}
"""Outcomes of a node that would say something else of the whole."""


def result_of_workflow(
    nodes: Sequence[Node], states: Mapping[str, Any], branches: Mapping[str, Any], run_id: str
) -> tuple[str, dict[str, Any]]:
    """The outcome and the result: `completed`, unless a node failed and no condition looked at it.

    The text is that of the last node that completed and that no other completed one depends on.
    """
    shown = {node.id: _node(node.id, states[node.id], branches.get(node.id, {}), run_id) for node in nodes}
    failed = [node.id for node in nodes if _failed(states[node.id]) and not _handled(node.id, nodes, states)]
    good = [node for node in nodes if states[node.id].get("outcome") == "completed"]
    used = {name for node in good for name in node.depends_on}
    last = [node.id for node in good if node.id not in used]
    text = shown[last[-1]]["text"] if last else ""
    result: dict[str, Any] = {
        "text": text,
        "content_blocks": [{"type": "text", "text": text}] if text else [],
        "requested_tools": [],
        "usage": {
            name: sum(state.get(name, 0) for state in branches.values())
            for name in ("input_tokens", "output_tokens")
        },
        "turns": sum(one["turns"] for one in shown.values()),
        "tool_calls": sum(one["tool_calls"] for one in shown.values()),
        "retries": sum(spent_in(state).retries for state in branches.values()),
        "nodes": shown,
        "last": last[-1] if last else None,
    }
    if not failed:
        return "completed", result
    outcome = shown[failed[0]]["outcome"]
    error = shown[failed[0]].get("error", {"issue": outcome.upper(), "message": f"it ended as `{outcome}`"})
    result["error"] = {**error, "message": f"node `{failed[0]}`: {error['message']}"}
    return _AS.get(outcome, outcome), result


def _node(identity: str, state: Mapping[str, Any], branch: Mapping[str, Any], run_id: str) -> dict[str, Any]:
    ended = branch.get("ended") or {}
    result = ended.get("result", {})
    spent = spent_in(branch)
    shown: dict[str, Any] = {
        "status": state["status"],
        "text": result.get("text", state.get("text", "")),
        "turns": spent.turns,
        "tool_calls": spent.tool_calls + bool(state.get("called")),
    }
    if "value" in state:
        shown["value"] = state["value"]
    if "outcome" in state:
        shown["outcome"] = state["outcome"]
    if branch:
        shown["session_id"] = f"{run_id}.{identity}"
    if error := state.get("error") or result.get("error"):
        shown["error"] = error
    return shown


def _failed(state: Mapping[str, Any]) -> bool:
    return bool(state["status"] == "ended" and state["outcome"] != "completed")


def _handled(identity: str, nodes: Sequence[Node], states: Mapping[str, Any]) -> bool:
    """Whether a node that looks at how this one ended has run."""
    return any(
        identity in node.depends_on and node.when and states[node.id]["status"] == "ended" for node in nodes
    )
