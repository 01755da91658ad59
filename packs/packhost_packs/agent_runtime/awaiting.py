"""Calls of client tools: the run pauses until its caller has sent what came of every one of a group.

Calls of client tools that stand next to each other are a group: they are asked for together. What comes
after them in the batch waits for them, and the model is asked nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from packhost.api import (
    RunHandle,
    RunStopped,
    ToolOutcome,
    await_calls,
    awaited,
    envelope,
    input_fault,
    take_answers,
)
from packhost_packs.agent_runtime.client_tools import KIND, of_run, untrusted

Call = Mapping[str, Any]


class ClientCalls:
    """The client tools of one run of turns."""

    def __init__(self, run: RunHandle, safe_point: Callable[[], Awaitable[None]]) -> None:
        self._run = run
        self._tools = {one["name"]: one for one in of_run(run.spec, run.state)}
        self._safe_point = safe_point

    def refusal(self, call: Call) -> ToolOutcome | None:
        """Why the caller is not asked to make a call at all; `None` where it is."""
        if self.waits_for(call):
            return None  # it was asked for already, whatever became of the tool
        said = input_fault(self._tools[_plain(call["name"])]["parameters_schema"], call["input"])
        if said is None:
            return None
        text = (
            f"INVALID_INPUT: the arguments do not fit `{call['name']}`: {said}. Correct them and call again."
        )
        return ToolOutcome(False, text, code="INVALID_INPUT")

    def waits_for(self, call: Call) -> bool:
        """Whether the caller was asked to make this call."""
        group = awaited(self._run.state)
        return group is not None and any(one["tool_call_id"] == call["id"] for one in group.raw["calls"])

    async def outcomes(self, calls: Sequence[Call]) -> dict[str, ToolOutcome]:
        """What came of a group of calls, by their ids.

        Raises `RunStopped`: `client` while one of them has no answer.
        """
        state = self._run.state
        if awaited(state) is None:
            await_calls(state, [self._record(call) for call in calls])
        group = awaited(state)
        if group is not None and group.outstanding:
            await self._safe_point()
            raise RunStopped("client")
        names = {call["id"]: call["name"] for call in calls}
        return {one: self._outcome(names[one], answer) for one, answer in take_answers(state).items()}

    def settled(self) -> dict[str, ToolOutcome]:
        """What came of those calls that were answered, when the run ends before the others are."""
        group = awaited(self._run.state)
        if group is None:
            return {}
        names = {call["tool_call_id"]: call["tool_name"] for call in group.raw["calls"]}
        return {
            one: self._outcome(names[one], answer) for one, answer in take_answers(self._run.state).items()
        }

    def _record(self, call: Call) -> dict[str, Any]:
        return {
            "tool_call_id": call["id"],
            "tool_name": call["name"],
            "parameters": call["input"],
            "origin": self._tools[_plain(call["name"])]["origin"],
            "awaited_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        }

    def _outcome(self, name: str, answer: Mapping[str, Any]) -> ToolOutcome:
        text, tool = str(answer["text"]), self._tools.get(_plain(name))
        if tool is None or untrusted(tool):
            text = envelope(text)
        if answer["is_error"]:
            return ToolOutcome(False, text, code="TOOL_FAILED")
        return ToolOutcome(True, text)


def _plain(name: str) -> str:
    return name.removeprefix(f"{KIND}:")
