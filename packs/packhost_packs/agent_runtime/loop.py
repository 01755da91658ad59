"""The turn loop: put the conversation to a model, run what it asks for, until an end or a pause.

One turn without `loop`: what the model asks for is handed back. With it the host runs the calls,
one after the other in their order, each through the gate. Safe points are before each provider
request and before each call. History only grows, by whole turns: a message that asks for calls
enters it together with a result for every one of them.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

import anyio

from packhost.api import Message, OfferedTool, PackhostError, RunHandle, RunResult, RunStopped, ToolOutcome
from packhost_packs.agent_runtime.contract import check_contract
from packhost_packs.agent_runtime.conversation import check_continuation, normalised
from packhost_packs.agent_runtime.faults import TurnFault
from packhost_packs.agent_runtime.ledger import Ledger, Pending
from packhost_packs.agent_runtime.limits import Limits
from packhost_packs.agent_runtime.profiles import choose
from packhost_packs.agent_runtime.providers.base import Provider, Reply, TurnRequest
from packhost_packs.agent_runtime.providers.choice import provider_for

DRIVER = "agent-runtime:turn"

_THROWN = frozenset(
    {"TOOL_FAILED", "TOOL_TIMEOUT", "CANCELLED", "OUTPUT_INVALID", "OUTPUT_TOO_LARGE", "EFFECTS_UNKNOWN"}
)
"""Codes of calls that started and went wrong: what follows in their batch is not run."""
_FAILED = frozenset({"protocol_error", "provider_error", "unsupported"})
_SETTLE = 2.0

NOT_EXECUTED = "NOT_EXECUTED: an earlier call of this batch failed, so this one was not run."
NOT_STARTED = "NOT_EXECUTED: the run was ended before this call started."
UNKNOWN = (
    "EFFECTS_UNKNOWN: this call was cut off and is not run again; what it did is not known. "
    "Look at its effects before you repeat it."
)


class TurnDriver:
    """Runs `agent-runtime:turn`: one turn, or turns to an end."""

    @property
    def name(self) -> str:
        """The word in a run's `kind`."""
        return DRIVER

    async def drive(self, run: RunHandle) -> RunResult:
        """Run to an end; `RunStopped` passes at a safe point.

        Raises `PackhostError` when the run cannot begin: no such model, messages that continue nothing.
        """
        loop = _Loop(run)
        try:
            return await loop.to_end()
        except RunStopped as stop:
            if stop.how == "aborted":
                await loop.settle()
            raise
        except anyio.get_cancelled_exc_class():
            if run.aborting:
                await loop.settle()
            raise


class _Loop:
    def __init__(self, run: RunHandle) -> None:
        self._run = run
        self._chosen = choose(run.config, run.spec["model_profile"], run.spec["agent"])
        self._provider: Provider = provider_for(self._chosen, run)
        self._history: list[Message] = []
        started = anyio.current_time()
        self._ledger = Ledger(
            run.state, Limits(**run.spec["limits"]), lambda: anyio.current_time() - started - run.waited
        )
        self._tools: tuple[OfferedTool, ...] = ()

    async def to_end(self) -> RunResult:
        """Go on from the state until the run ends."""
        if self._ledger.ended is not None:
            return self._ledger.ended
        await self._open()
        while True:
            pending = self._ledger.pending
            if pending is not None:
                await self._work_through(pending)
            await self._safe_point()
            spent = self._ledger.spent()
            if spent is not None:
                return self._end("limit_exceeded", issue=spent[0], message=spent[1])
            try:
                ended = await self._take(await self._turn())
            except TurnFault as fault:
                await self._run.emit("turn.failed", {"turn": self._ledger.turns + 1, **_error(fault)})
                return self._end(fault.outcome, **_error(fault))
            if ended is not None:
                return ended

    async def settle(self) -> None:
        """Leave the history whole when the run ends in the middle of a batch."""
        pending = self._ledger.pending
        if pending is None:
            return
        with anyio.move_on_after(_SETTLE, shield=True):
            try:
                if pending.running is not None:
                    known = await self._run.recorded(pending.running)
                    if known is not None:
                        text = known.text if known.ok else UNKNOWN
                        pending.finish(pending.running, text, is_error=not known.ok)
                pending.fill(NOT_STARTED)
                await self._close(pending)
            except PackhostError:
                return  # the run's end is recorded all the same, and the history stays as it was

    async def _open(self) -> None:
        self._history = await self._run.history()
        on_offer = _both(self._run, self._chosen.agent.get("tools"), self._run.spec["tools"])
        if self._ledger.opened:
            self._tools = tuple(tool for tool in on_offer if tool.name in self._ledger.tools)
            return
        self._tools = on_offer
        added = normalised(self._run.spec["messages"])
        check_continuation(self._history, added)
        self._ledger.open([tool.name for tool in on_offer])
        await self._append(added)

    async def _safe_point(self) -> None:
        self._ledger.clock()
        await self._run.checkpoint()

    async def _append(self, messages: Sequence[Message]) -> None:
        self._ledger.clock()
        await self._run.append(messages)
        self._history.extend(messages)

    async def _turn(self) -> Reply:
        """One provider request and its reply, held to the contract; raises `TurnFault`."""
        ledger, turn = self._ledger, self._ledger.turns + 1
        await self._run.emit("turn.started", {"turn": turn, "model": self._chosen.name})
        await self._run.report_progress(f"turn {turn}: asking `{self._chosen.name}`")
        request = TurnRequest(
            model=str(self._chosen.profile.get("model", "")),
            system=self._chosen.agent.get("system"),
            messages=self._history,
            tools=self._tools,
            max_tokens=min(self._chosen.max_tokens, ledger.tokens_left),
            turn=ledger.turns,
        )
        deadline = anyio.current_time() + ledger.seconds_left
        try:
            reply = await self._provider.turn(request, deadline=deadline)
        except TurnFault:
            raise
        except PackhostError as error:
            raise TurnFault("provider_error", "PROVIDER_ERROR_EVENT", error.message, begun=False) from None
        if reply.verdict in ("final", "tools"):
            check_contract(reply.requested, reply.blocks, frozenset(ledger.ids))
        ledger.count(reply)
        await self._run.emit(
            "turn.completed",
            {
                "turn": turn,
                "stop_reason": reply.stop_reason,
                "requested": [{"id": call["id"], "name": call["name"]} for call in reply.requested],
                "usage": reply.usage.as_json(),
            },
        )
        return reply

    async def _take(self, reply: Reply) -> RunResult | None:
        """Act on a reply: an end, or `None` when the loop goes on with a batch."""
        if reply.verdict in ("incomplete", "refused"):
            ended = self._end(reply.verdict)
            if reply.text.strip():  # cut calls and cut thinking cannot be sent back: the text alone is kept
                await self._append([{"role": "assistant", "content": [{"type": "text", "text": reply.text}]}])
            return ended
        if reply.verdict == "final":
            ended = self._end("completed")
            if reply.text.strip():  # an empty message cannot be sent back
                await self._append([reply.message()])
            return ended
        if not self._run.spec["loop"]:
            ended = self._end("tool_request", reply)
            await self._append([reply.message()])
            return ended
        if self._ledger.admits(len(reply.requested)):
            self._ledger.begin_batch(reply.message(), len(reply.requested))
            return None
        message = f"the batch of {len(reply.requested)} calls does not fit the run's limit of tool calls"
        batch = self._ledger.begin_batch(reply.message(), 0)
        batch.fill(f"LIMIT_EXCEEDED: {message}; none of them was run.")
        ended = self._end("limit_exceeded", issue="BUDGET_TOOL_CALLS", message=message)
        await self._close(batch)
        return ended

    async def _work_through(self, pending: Pending) -> None:
        for call in pending.calls:
            if pending.has(call["id"]):
                continue
            outcome = await self._recovered(call) if pending.running == call["id"] else None
            if outcome is None:
                pending.start(call["id"])
                await self._safe_point()
                outcome = await self._call(call)
            pending.finish(call["id"], outcome.text, is_error=not outcome.ok)
            if not outcome.ok and outcome.code in _THROWN:
                pending.fill(NOT_EXECUTED)
        await self._close(pending)

    async def _close(self, pending: Pending) -> None:
        messages = pending.messages()
        self._ledger.end_batch()
        await self._append(messages)

    async def _recovered(self, call: Mapping[str, Any]) -> ToolOutcome | None:
        """What became of a call that was about to start when the run was interrupted; `None`: make it."""
        known = await self._run.recorded(call["id"])
        if known is None or known.ok:
            return known
        tool = self._find(call["name"])
        if known.code == "CANCELLED" and tool is not None and tool.idempotent:
            return None
        if known.code in ("CANCELLED", "EFFECTS_UNKNOWN"):
            return ToolOutcome(False, UNKNOWN, code="EFFECTS_UNKNOWN", call_id=known.call_id)
        return known

    async def _call(self, call: Mapping[str, Any]) -> ToolOutcome:
        tool = self._find(call["name"])
        if tool is None:
            near = difflib.get_close_matches(call["name"], [t.name for t in self._tools], n=3, cutoff=0.5)
            said = f" Did you mean {', '.join(f'`{one}`' for one in near)}?" if near else ""
            text = f"TOOL_NOT_FOUND: no tool `{call['name']}` is on offer in this run.{said}"
            return ToolOutcome(False, text, code="TOOL_NOT_FOUND")
        await self._run.report_progress(f"turn {self._ledger.turns}: `{tool.canonical}`")
        return await self._run.call_tool(tool.name, call["input"], tool_use_id=call["id"])

    def _find(self, name: str) -> OfferedTool | None:
        return next((tool for tool in self._tools if name in (tool.name, tool.canonical)), None)

    def _end(self, outcome: str, reply: Reply | None = None, **error: Any) -> RunResult:
        ledger = self._ledger
        text = reply.text if reply is not None else ledger.text
        blocks = list(reply.blocks) if reply is not None else [{"type": "text", "text": text}] if text else []
        result: dict[str, Any] = {
            "text": text,
            "content_blocks": blocks,
            "requested_tools": list(reply.requested) if reply is not None else [],
            "usage": ledger.usage.as_json(),
            "turns": ledger.turns,
            "tool_calls": ledger.tool_calls,
        }
        if error:
            result["error"] = error
        return ledger.end(RunResult(outcome, result, failed=outcome in _FAILED))


def _error(fault: TurnFault) -> dict[str, Any]:
    status = {} if fault.status is None else {"status": fault.status}
    return {"issue": fault.issue, "message": fault.message, **status}


def _both(
    run: RunHandle, saved: Sequence[str] | None, asked: Sequence[str] | None
) -> tuple[OfferedTool, ...]:
    """The tools that a saved agent has, narrowed to what the request asks for."""
    if saved is None or asked is None:
        return run.offered(asked if saved is None else saved)
    names = {tool.name for tool in run.offered(saved)}
    return tuple(tool for tool in run.offered(asked) if tool.name in names)
