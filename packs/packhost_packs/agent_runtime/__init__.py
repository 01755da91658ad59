"""The agent-runtime pack: agent turns under control, and the seven tools that start and steer them."""

from __future__ import annotations

from packhost.api import Kind, RunDriver, TraceWriter, hookimpl

__all__ = ["packhost_kinds", "packhost_run_drivers", "packhost_trace_writers"]


@hookimpl
def packhost_kinds() -> list[Kind]:
    """The kinds `flow` and `subagent`."""
    from packhost_packs.agent_runtime.kinds import FlowTools, SubagentTools  # only a host has a use

    return [FlowTools(), SubagentTools()]


@hookimpl
def packhost_run_drivers() -> list[RunDriver]:
    """The drivers of `agent-runtime:turn` and `agent-runtime:workflow`."""
    from packhost_packs.agent_runtime.drivers import TurnDriver, WorkflowDriver  # only a host has a use

    return [TurnDriver(), WorkflowDriver()]


@hookimpl
def packhost_trace_writers() -> dict[str, TraceWriter]:
    """Runs of turns and the nodes of workflows as traces."""
    from packhost_packs.agent_runtime.drivers import TURN, WORKFLOW, write_trace  # as above

    return dict.fromkeys((TURN, WORKFLOW), write_trace)
