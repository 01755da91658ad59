"""The two kinds of runs, by name; what they need is imported when the first run is driven or shown.

A host loads its drivers when it starts, and most hosts list and call tools long before a model is
asked for anything.
"""

from __future__ import annotations

from typing import Any

from packhost.api import RunHandle, RunRecord, RunResult

TURN = "agent-runtime:turn"
WORKFLOW = "agent-runtime:workflow"


class TurnDriver:
    """Runs `agent-runtime:turn`: one turn, or turns to an end."""

    @property
    def name(self) -> str:
        """The word in a run's `kind`."""
        return TURN

    async def drive(self, run: RunHandle) -> RunResult:
        """Run to an end; `RunStopped` passes at a safe point.

        Raises `PackhostError` when the run cannot begin: no such model, messages that continue nothing.
        """
        from packhost_packs.agent_runtime.loop import run_turns  # see above

        return await run_turns(run)


class WorkflowDriver:
    """Runs `agent-runtime:workflow`."""

    @property
    def name(self) -> str:
        """The word in a run's `kind`."""
        return WORKFLOW

    async def drive(self, run: RunHandle) -> RunResult:
        """Run every node to its end; `RunStopped` passes when nothing is left to do before a time."""
        from packhost_packs.agent_runtime.workflows.driver import run_workflow  # see above

        return await run_workflow(run)


def write_trace(record: RunRecord) -> dict[str, Any]:
    """A run, or one node of a workflow, for `packhost trace check`."""
    from packhost_packs.agent_runtime.traces import trace_of  # see above

    return trace_of(record)
