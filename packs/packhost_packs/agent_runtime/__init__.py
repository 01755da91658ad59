"""The agent-runtime pack: agent turns under control, and the seven tools that start and steer them."""

from __future__ import annotations

from packhost.api import RunDriver, hookimpl

__all__ = ["packhost_run_drivers"]


@hookimpl
def packhost_run_drivers() -> list[RunDriver]:
    """The drivers of `agent-runtime:turn` and `agent-runtime:workflow`."""
    from packhost_packs.agent_runtime.loop import TurnDriver  # a listing of tools needs no loop
    from packhost_packs.agent_runtime.workflows.driver import WorkflowDriver  # as above

    return [TurnDriver(), WorkflowDriver()]
