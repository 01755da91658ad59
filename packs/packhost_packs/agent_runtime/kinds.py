"""The two kinds of tools that this pack brings, by name; what runs them is imported with the first such tool.

A host gathers its kinds when it starts, and most have no tool of these.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from packhost.api import CallContext, Tool, ToolSpec


class _Work(Protocol):
    """What differs between the kinds, in the module of each."""

    def check(self, spec: ToolSpec, folder: Path | None = None) -> list[str]: ...

    async def run(self, tool: Tool, arguments: dict[str, Any], context: CallContext) -> Any: ...


class _Lazy:
    """A kind whose module is imported when it is first needed."""

    name = ""

    def _work(self) -> _Work:
        raise AssertionError("a kind says where it is")

    def check(self, spec: ToolSpec, folder: Path | None = None) -> list[str]:
        """What is wrong with a tool's definition, a sentence each."""
        return self._work().check(spec, folder)

    def enforcement(self, tool: Tool) -> Any:
        """`host`: nothing of a pack's own runs."""
        return "host"

    async def preview(self, tool: Tool, arguments: dict[str, Any], context: CallContext) -> str:
        """Nothing: the arguments say it all."""
        return ""

    async def run(self, tool: Tool, arguments: dict[str, Any], context: CallContext) -> Any:
        """Run one call; see the kind itself."""
        return await self._work().run(tool, arguments, context)

    async def close(self) -> None:
        """Nothing is left running."""


class FlowTools(_Lazy):
    """Tools that run a workflow; see `flows`."""

    name = "flow"

    def _work(self) -> _Work:
        from packhost_packs.agent_runtime.flows import FlowKind  # see above

        return FlowKind()


class SubagentTools(_Lazy):
    """Tools that hand a task to a child agent; see `subagents`."""

    name = "subagent"

    def _work(self) -> _Work:
        from packhost_packs.agent_runtime.subagents import SubagentKind  # see above

        return SubagentKind()
