"""The agent-runtime pack: agent turns under control, and the seven tools that start and steer them."""

from __future__ import annotations

from packhost.api import RunDriver, TraceWriter, hookimpl

__all__ = ["packhost_run_drivers", "packhost_trace_writers"]


@hookimpl
def packhost_run_drivers() -> list[RunDriver]:
    """The drivers of `agent-runtime:turn` and `agent-runtime:workflow`."""
    from packhost_packs.agent_runtime.loop import TurnDriver  # a listing of tools needs no loop
    from packhost_packs.agent_runtime.workflows.driver import WorkflowDriver  # as above

    return [TurnDriver(), WorkflowDriver()]


@hookimpl
def packhost_trace_writers() -> dict[str, TraceWriter]:
    """Runs of turns and the nodes of workflows as traces."""
    from packhost_packs.agent_runtime.traces import trace_of  # as above

    return dict.fromkeys(("agent-runtime:turn", "agent-runtime:workflow"), trace_of)
