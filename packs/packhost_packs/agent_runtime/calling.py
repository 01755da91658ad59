"""A batch of calls worked through: in the model's order, each through the gate, a result for every id.

Calls that only read and may be repeated run side by side where they stand next to each other; any
other runs alone, after what stands before it. A call that starts and goes wrong ends its batch: what
follows is not executed and says so. A refused call is told to the model and the others go on.
"""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import anyio

from packhost.api import OfferedTool, RunHandle, ToolOutcome
from packhost_packs.agent_runtime.awaiting import ClientCalls
from packhost_packs.agent_runtime.batch import Pending
from packhost_packs.agent_runtime.children import Parent
from packhost_packs.agent_runtime.client_tools import KIND as CLIENT
from packhost_packs.agent_runtime.equipment import Equipment
from packhost_packs.agent_runtime.ledger import SAME_FAILURES, Ledger
from packhost_packs.agent_runtime.searching import TOOL as SEARCH_TOOL

SIDE_BY_SIDE = 8
"""So many reading calls of one batch run at once."""

NOT_EXECUTED = "NOT_EXECUTED: an earlier call of this batch failed, so this one was not run."
NOT_STARTED = "NOT_EXECUTED: the run was ended before this call started."
UNKNOWN = (
    "EFFECTS_UNKNOWN: this call was cut off and is not run again; what it did is not known. "
    "Look at its effects before you repeat it."
)
REPEATED = (
    "LIMIT_EXCEEDED: this very call has failed {times} times and was not run again. Change its input, use "
    "another tool, or say what stands in the way; the run ends if it is asked for yet again."
)

_THROWN = frozenset(
    {"TOOL_FAILED", "TOOL_TIMEOUT", "CANCELLED", "OUTPUT_INVALID", "OUTPUT_TOO_LARGE", "EFFECTS_UNKNOWN"}
)
"""Codes of calls that started and went wrong: what follows in their batch is not run."""


def _thrown(outcome: ToolOutcome) -> bool:
    """Whether a call had started when it went wrong; one that its person called off had not."""
    called_off = outcome.code == "CANCELLED" and outcome.call_id is None
    return not outcome.ok and outcome.code in _THROWN and not called_off


class Calling:
    """Makes a run's calls; `safe_point` has the state written down along with them and may stop the run."""

    def __init__(
        self,
        run: RunHandle,
        ledger: Ledger,
        equipment: Equipment,
        safe_point: Callable[[], Awaitable[None]],
        parent: Parent,
    ) -> None:
        self._run = run
        self._ledger = ledger
        self._equipment = equipment
        self._safe_point = safe_point
        self._parent = parent
        self._client = ClientCalls(run, safe_point)

    @property
    def _tools(self) -> Sequence[OfferedTool]:
        return self._equipment.sent

    async def work_through(self, pending: Pending) -> None:
        """Bring every call of a batch to its result."""
        thrown = await self._recover(pending)
        while not thrown and (calls := self._next(pending.open)):
            (first, *_) = calls
            if (times := self._ledger.failed_before(first)) >= SAME_FAILURES:
                await self._run.emit(
                    "call.repeated", {"id": first["id"], "name": first["name"], "failed": times}
                )
                self._finish(pending, first, ToolOutcome(False, REPEATED.format(times=SAME_FAILURES)))
                continue
            if self._at_client(first):
                thrown = await self._of_client(pending)
                continue
            pending.start([call["id"] for call in calls])
            await self._safe_point()
            thrown = await self._make(pending, calls)
        if thrown:
            pending.fill(NOT_EXECUTED)

    def _next(self, calls: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        """The calls that come next: one, or several reading ones that may run side by side."""
        together = 0
        for call in calls[:SIDE_BY_SIDE]:
            if not self._only_reads(call):
                break
            if self._ledger.failed_before(call) >= SAME_FAILURES:
                break
            together += 1
        return calls[: max(together, 1)]

    def _only_reads(self, call: Mapping[str, Any]) -> bool:
        tool = self._equipment.get(call["name"])
        return tool is not None and tool.read_only and tool.idempotent

    async def _make(self, pending: Pending, calls: Sequence[Mapping[str, Any]]) -> bool:
        """Make calls, several at once; whether one of them went wrong after it had started."""
        thrown: list[bool] = []

        async def one(call: Mapping[str, Any]) -> None:
            outcome = await self._call(call)
            self._finish(pending, call, outcome)
            thrown.append(_thrown(outcome))

        if len(calls) == 1:
            await one(calls[0])
            return thrown[0]
        try:
            async with anyio.create_task_group() as group:
                for call in calls:
                    group.start_soon(one, call)
        except BaseExceptionGroup as group_of:
            raise group_of.exceptions[0] from None
        return any(thrown)

    def at_client(self, pending: Pending) -> dict[str, bool]:
        """Of each call of a batch that is of a client tool whether it came to anything."""
        return {
            call["id"]: not pending.unanswered(call["id"]) for call in pending.calls if self._at_client(call)
        }

    def _at_client(self, call: Mapping[str, Any]) -> bool:
        tool = self._equipment.get(call["name"])
        return (tool is not None and tool.kind == CLIENT) or self._client.waits_for(call)

    async def _of_client(self, pending: Pending) -> bool:
        """Have the caller make the calls that come next; whether one of them went wrong."""
        group: list[dict[str, Any]] = []
        for call in pending.open:
            if not self._at_client(call) or self._ledger.failed_before(call) >= SAME_FAILURES:
                break
            refusal = self._client.refusal(call)
            if refusal is None:
                group.append(call)
            else:
                self._finish(pending, call, refusal)
        if not group:
            return False
        outcomes = await self._client.outcomes(group)
        for call in group:
            self._finish(pending, call, outcomes[call["id"]])
        return not all(outcome.ok for outcome in outcomes.values())

    def _finish(self, pending: Pending, call: Mapping[str, Any], outcome: ToolOutcome) -> None:
        self._ledger.note(call, ok=outcome.ok)
        pending.finish(call["id"], outcome.text, is_error=not outcome.ok)

    async def _recover(self, pending: Pending) -> bool:
        """Settle what was about to start when the run was interrupted; whether such a call went wrong."""
        thrown = False
        for call in pending.open:
            if call["id"] in pending.running:
                outcome = await self._recovered(call)
                if outcome is not None:
                    self._finish(pending, call, outcome)
                    thrown |= _thrown(outcome)
        return thrown

    async def _recovered(self, call: Mapping[str, Any]) -> ToolOutcome | None:
        """What became of an interrupted call; `None`: it never started, or may be made again.

        It may where it was declared safe to repeat when it started and still is.
        """
        known = await self._run.recorded(call["id"])
        if known is None or known.ok:
            return known
        tool = self._equipment.get(call["name"])
        if known.code == "CANCELLED" and tool is not None and tool.idempotent:
            return None
        if known.code in ("CANCELLED", "EFFECTS_UNKNOWN"):
            return ToolOutcome(False, UNKNOWN, code="EFFECTS_UNKNOWN", call_id=known.call_id)
        return known

    async def _call(self, call: Mapping[str, Any]) -> ToolOutcome:
        tool = self._equipment.get(call["name"])
        if tool is None:
            near = difflib.get_close_matches(call["name"], [t.name for t in self._tools], n=3, cutoff=0.5)
            said = f" Did you mean {', '.join(f'`{one}`' for one in near)}?" if near else ""
            text = f"TOOL_NOT_FOUND: no tool `{call['name']}` is on offer in this run.{said}"
            return ToolOutcome(False, text, code="TOOL_NOT_FOUND")
        if tool is SEARCH_TOOL:
            outcome = self._equipment.search(call["input"])
            await self._run.emit(
                "tools.searched",
                {"id": call["id"], "input": call["input"], "ok": outcome.ok, "found": self._ledger.found},
            )
            return outcome
        await self._run.report_progress(f"turn {self._ledger.turns}: `{tool.canonical}`")
        approving = self._equipment.approving
        arguments, manner = approving.taken(tool, call["input"])
        manner = replace(manner, turn=self._ledger.turns)
        asks = f"the run asks a person before each call of `{tool.canonical}`" if approving.asks(tool) else ""
        return await self._run.call_tool(
            tool.name, arguments, tool_use_id=call["id"], ask=asks, calling=self._parent, manner=manner
        )

    async def settle(self, pending: Pending) -> None:
        """Give every call a result when the run ends in the middle of the batch."""
        for identity, outcome in self._client.settled().items():
            pending.finish(identity, outcome.text, is_error=not outcome.ok)
        for identity in pending.running:
            known = await self._run.recorded(identity)
            if known is not None:
                pending.finish(identity, known.text if known.ok else UNKNOWN, is_error=not known.ok)
        pending.fill(NOT_STARTED, unanswered=True)
