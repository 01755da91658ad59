"""One turn's request to the provider: put, repeated where that spends nothing, and held to the contract."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import anyio

from packhost.api import Message, OfferedTool, PackhostError, RunHandle
from packhost_packs.agent_runtime.contract import check_contract
from packhost_packs.agent_runtime.conversation import as_seen_by, marked, open_calls
from packhost_packs.agent_runtime.faults import TurnFault
from packhost_packs.agent_runtime.ledger import Ledger
from packhost_packs.agent_runtime.profiles import Chosen
from packhost_packs.agent_runtime.providers.base import Provider, Reply, Snapshot, TurnRequest, unheard
from packhost_packs.agent_runtime.replaying import replayed
from packhost_packs.agent_runtime.retries import LONGEST_ASKED, delay, may_repeat


class Asking:
    """Puts a run's conversation to its model; `stream` passes the reply on as it arrives."""

    def __init__(
        self, run: RunHandle, ledger: Ledger, chosen: Chosen, provider: Provider, *, stream: bool = False
    ) -> None:
        self._run = run
        self._ledger = ledger
        self._chosen = chosen
        self._provider = provider
        self._emit = self._pass_on if stream else unheard
        self._profile = f"{chosen.name}/{chosen.profile.get('model', '')}"
        self._seen: list[Message] = []
        self._taken = 0
        self._used: set[str] = set()

    def message(self, reply: Reply) -> Message:
        """The assistant message that history keeps, bound to the model that said it."""
        return marked(reply.message(), self._profile)

    async def turn(
        self, history: Sequence[Message], tools: Sequence[OfferedTool], offered: Collection[str]
    ) -> Reply:
        """The next reply; `offered` are the names of all that the run may ever call.

        Raises `TurnFault`, or `RunStopped` before a repetition.
        """
        ledger, run = self._ledger, self._run
        turn = ledger.turns + 1
        await run.emit("turn.started", {"turn": turn, "model": self._chosen.name})
        await run.report_progress(f"turn {turn}: asking `{self._chosen.name}`")
        new, self._taken = history[self._taken :], len(history)
        self._seen += [as_seen_by(message, self._profile) for message in replayed(new, offered)]
        self._used.update(identity for message in new for identity in open_calls([message]))
        repeated = 0
        while True:
            try:
                reply = await self._once(tools)
                break
            except TurnFault as fault:
                await self._before_repeating(fault, repeated)
            repeated += 1
        data = {
            "turn": turn,
            "stop_reason": reply.stop_reason,
            "requested": [{"id": call["id"], "name": call["name"]} for call in reply.requested],
            "usage": reply.usage.as_json(),
        }
        if reply.native:  # a reply without a word is kept by no history: its shape is known from here
            data["protocol"] = reply.native.get("protocol")
        await run.emit("turn.completed", data)
        return reply

    async def _once(self, tools: Sequence[OfferedTool]) -> Reply:
        """One request and its reply; raises `TurnFault`."""
        ledger = self._ledger
        request = TurnRequest(
            model=str(self._chosen.profile.get("model", "")),
            system=self._run.spec.get("system"),
            messages=self._seen,
            tools=tools,
            max_tokens=max(1, min(self._chosen.max_tokens, ledger.tokens_left)),
            turn=ledger.turns,
        )
        deadline = anyio.current_time() + ledger.seconds_left
        try:
            reply = await self._provider.turn(request, deadline=deadline, emit=self._emit)
        except TurnFault as fault:
            if fault.issue == _TOO_MANY:
                raise _fewer_tools(fault, len(tools)) from None
            raise
        except PackhostError as error:
            sent = error.data.get("sent") is not False  # else a repetition may well do better
            raise TurnFault("provider_error", _ERROR, error.message, begun=sent) from None
        if reply.verdict in ("final", "tools"):
            check_contract(reply.requested, reply.blocks, self._used)
        return reply

    async def _before_repeating(self, fault: TurnFault, repeated: int) -> None:
        """Wait until the request may be sent again; raises the fault itself where it may not."""
        if not may_repeat(fault):
            raise fault
        ledger, wait = self._ledger, delay(fault, repeated)
        why = ""
        if wait is None:
            why = f"it asks to wait {fault.retry_after:g} s, and {LONGEST_ASKED:g} s are the most"
        elif ledger.retries_left < 1:
            why = f"no retry is left after {ledger.retries}"
        elif wait >= ledger.seconds_left:
            why = "the run has no time left to wait for it"
        if wait is None or why:
            message = f"{fault.message}; {why}"
            raise TurnFault(fault.outcome, fault.issue, message, status=fault.status, begun=False)
        ledger.count_retry()
        told = {"turn": ledger.turns + 1, "retry": ledger.retries, "after": round(wait, 3)}
        await self._run.emit("turn.retried", {**told, "status": fault.status, "message": fault.message})
        await self._run.report_progress(
            f"turn {ledger.turns + 1}: {fault.message}; retry {ledger.retries} in {wait:.1f} s"
        )
        ledger.clock()
        await self._run.sleep(wait)
        await self._run.checkpoint()

    async def _pass_on(self, snapshot: Snapshot) -> None:
        """Show the latest piece of text; thinking and half a call are nobody's to read."""
        if snapshot.kind == "text":
            await self._run.report_progress(snapshot.delta)


_ERROR = "PROVIDER_ERROR_EVENT"
_TOO_MANY = "TOOL_COUNT_REFUSED_BY_PROVIDER"


def _fewer_tools(fault: TurnFault, tools: int) -> TurnFault:
    message = (
        f"{fault.message}; the provider does not take {tools} tools: name fewer of them in `tools`, "
        "of the call or of its agent"
    )
    return TurnFault(fault.outcome, _TOO_MANY, message, status=fault.status)
