"""The turn loop: put the conversation to a model, run what it asks for, until an end or a pause.

One turn without `loop`: what the model asks for is handed back. With it the host runs the calls, each
through the gate. Safe points are before each provider request, also a repeated one, and before each
call. History only grows, by whole turns: a message that asks for calls enters it together with a
result for every one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio

from packhost.api import Message, OfferedTool, PackhostError, RunHandle, RunResult, RunStopped
from packhost_packs.agent_runtime.asking import Asking
from packhost_packs.agent_runtime.batch import Pending
from packhost_packs.agent_runtime.calling import Calling
from packhost_packs.agent_runtime.children import Parent
from packhost_packs.agent_runtime.conversation import (
    NAMED,
    check_continuation,
    check_name,
    names_in,
    normalised,
    unknown,
)
from packhost_packs.agent_runtime.equipment import Equipment
from packhost_packs.agent_runtime.faults import TurnFault
from packhost_packs.agent_runtime.ledger import Ledger, Share
from packhost_packs.agent_runtime.limits import Limits
from packhost_packs.agent_runtime.profiles import choose
from packhost_packs.agent_runtime.providers.base import Reply
from packhost_packs.agent_runtime.providers.choice import provider_for
from packhost_packs.agent_runtime.replaying import marked_calls

FAILED = frozenset({"protocol_error", "provider_error", "unsupported"})
"""Outcomes of a run that has failed."""
_SETTLE = 2.0
_RAW_INPUT = 2_000
"""So many characters of an input that cannot be read are shown."""


async def run_turns(run: RunHandle, share: Share | None = None) -> RunResult:
    """Run turns by the run's request to an end, within `share` where this is one part of a run.

    Raises `RunStopped` at a safe point, and `PackhostError` when the run cannot begin: no such model,
    messages that continue nothing.
    """
    loop = _Loop(run, share)
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
    def __init__(self, run: RunHandle, share: Share | None) -> None:
        self._run = run
        self._spec = spec = run.spec
        self._chosen = choose(run.config, spec["model_profile"], spec["agent"])
        self._history: list[Message] = []
        started = anyio.current_time()
        self._ledger = Ledger(
            run.state, Limits(**spec["limits"]), lambda: anyio.current_time() - started - run.waited, share
        )
        provider = provider_for(self._chosen, run)
        self._asking = Asking(run, self._ledger, self._chosen, provider, stream=bool(spec.get("stream")))
        self._equipment = Equipment(run, (), self._ledger)
        self._calling = self._with(())

    async def to_end(self) -> RunResult:
        """Go on from the state until the run ends."""
        if self._ledger.ended is not None:
            return self._ledger.ended
        await self._open()
        while True:
            pending = self._ledger.pending
            if pending is not None:
                await self._calling.work_through(pending)
                await self._close(pending)
            await self._run.checkpoint()
            spent = self._ledger.spent()
            if spent is not None:
                return self._end("limit_exceeded", issue=spent[0], message=spent[1])
            try:
                reply = await self._asking.turn(self._history, self._equipment.sent, self._equipment.names)
            except TurnFault as fault:
                await self._run.emit("turn.failed", {"turn": self._ledger.turns + 1, **_error(fault)})
                return self._end(fault.outcome, **_error(fault))
            self._ledger.count(reply)  # and act on it in the same step of the state
            if (ended := await self._take(reply)) is not None:
                return ended

    async def settle(self) -> None:
        """Leave the history whole when the run ends in the middle of a batch."""
        pending = self._ledger.pending
        if pending is None:
            return
        with anyio.move_on_after(_SETTLE, shield=True):
            try:
                await self._calling.settle(pending)
                await self._close(pending)
            except PackhostError:
                return  # the run's end is recorded all the same, and the history stays as it was

    async def _open(self) -> None:
        self._history = await self._run.history()
        self._calling = self._with(_both(self._run, self._chosen.agent.get("tools"), self._spec["tools"]))
        if not self._ledger.opened:
            added, places = unknown(self._history, normalised(self._spec["messages"]))
            check_continuation(self._history, added, places)
            check_name(self._spec.get(NAMED), self._history, added)
            self._ledger.open(self._equipment.names)
            await self._append(added)
        else:
            self._ledger.offer(self._equipment.names)

    def _with(self, saved: Sequence[OfferedTool]) -> Calling:
        """What makes the run's calls, given the saved tools that it may use."""
        self._equipment = equipment = Equipment(self._run, saved, self._ledger)
        parent = Parent(
            equipment.resolved,
            equipment.definitions,
            equipment.approving.require,
            int(self._spec.get("depth", 0)),
            not self._spec.get("depth") or bool(self._spec.get("nesting")),
            self._chosen.name,
            self._ledger,
        )
        return Calling(self._run, self._ledger, equipment, self._safe_point, parent)

    async def _safe_point(self) -> None:
        self._ledger.clock()
        await self._run.checkpoint(lazily=True)

    async def _append(self, messages: Sequence[Message]) -> None:
        self._ledger.clock()
        await self._run.append(messages)
        self._history.extend(messages)

    async def _take(self, reply: Reply) -> RunResult | None:
        """Act on a reply: an end, or `None` when the loop goes on with a batch."""
        if reply.verdict in ("incomplete", "refused"):
            # cut calls and cut thinking cannot be sent back: the text alone is kept
            cut: Message = {"role": "assistant", "content": [{"type": "text", "text": reply.text}]}
            return await self._close_with(reply.verdict, cut if reply.text.strip() else None)
        if reply.verdict == "final":  # an empty message cannot be sent back
            return await self._close_with(
                "completed", self._asking.message(reply) if reply.text.strip() else None
            )
        if not self._spec["loop"]:
            return await self._close_with("tool_request", self._asking.message(reply), reply)
        message = self._asking.message(reply)
        if self._ledger.admits(len(reply.requested)):
            self._ledger.begin_batch(message, len(reply.requested))
            return None
        why = f"the batch of {len(reply.requested)} calls does not fit the run's limit of tool calls"
        batch = self._ledger.begin_batch(message, 0)
        batch.fill(f"LIMIT_EXCEEDED: {why}; none of them was run.")
        ended = self._end("limit_exceeded", issue="BUDGET_TOOL_CALLS", message=why)
        await self._close(batch)
        return ended

    async def _close_with(
        self, outcome: str, message: Message | None, reply: Reply | None = None
    ) -> RunResult:
        """End the run along with its last message, which gets its name."""
        if message is None:
            return self._end(outcome)
        name = self._run.state.get(NAMED) or self._spec.get(NAMED)
        if name is None or name in names_in(self._history):
            name = f"msg_{self._run.run_id.removeprefix('run_')}"
        ended = self._end(outcome, reply, message_id=name)
        await self._append([{**message, "id": name}])
        return ended

    async def _close(self, pending: Pending) -> None:
        asked, results = pending.messages()
        messages = [marked_calls(asked, self._calling.at_client(pending)), results]
        self._ledger.end_batch()
        await self._append(messages)

    def _end(
        self, outcome: str, reply: Reply | None = None, *, message_id: str | None = None, **error: Any
    ) -> RunResult:
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
            "retries": ledger.retries,
        }
        if message_id is not None:
            result["message_id"] = message_id
        if error:
            result["error"] = error
        return ledger.end(RunResult(outcome, result, failed=outcome in FAILED))


def _error(fault: TurnFault) -> dict[str, Any]:
    error: dict[str, Any] = {"issue": fault.issue, "message": fault.message}
    if fault.status is not None:
        error["status"] = fault.status
    if fault.call is not None:
        error["call"] = {"id": fault.call.id, "name": fault.call.name, "raw": fault.call.raw[:_RAW_INPUT]}
    return error


def _both(
    run: RunHandle, saved: Sequence[str] | None, asked: Sequence[str] | None
) -> tuple[OfferedTool, ...]:
    """The tools that a saved agent has, narrowed to what the request asks for."""
    if saved is None or asked is None:
        return run.offered(asked if saved is None else saved)
    names = {tool.name for tool in run.offered(saved)}
    return tuple(tool for tool in run.offered(asked) if tool.name in names)
