"""A run that goes on in this process: who waits for it, and how it asks a person."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import anyio

from packhost.errors import Conflict
from packhost.gate.types import Answer, Asker, Prompt
from packhost.store.base import Store
from packhost.store.ops import executions

Report = Callable[[float, float | None, str | None], Awaitable[None]]


@dataclass(slots=True)
class Active:
    """A run in this process.

    `starter` is the call that started or resumed it; `asker` and `report` are that call's, as long as
    it waits. `waited` counts the seconds in which a person was asked.
    """

    run_id: str
    epoch: int
    starter: str
    background: bool
    asker: Asker | None = None
    report: Report | None = None
    aborting: bool = False
    reason: str = ""
    waited: float = 0.0
    told: int = 0
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    done: anyio.Event = field(default_factory=anyio.Event)

    async def tell(self, message: str | None) -> None:
        """Tell whoever waits what goes on; the count of what was told is the progress, which only grows."""
        if self.report is not None and message:
            self.told += 1
            await self.report(self.told, None, message)

    async def tell_of_call(self, progress: float, total: float | None, message: str | None) -> None:
        """Pass on what a tool of the run says; its figures are its own and are left out."""
        await self.tell(message)

    def abort(self, reason: str) -> None:
        """End the run at its next await, wherever it is."""
        self.aborting, self.reason = True, reason
        self.scope.cancel()


class RunAsker:
    """Asks for a run: through the call that waits for it, else by leaving the record open.

    While it asks, the run's row says what it waits on, and the time does not count as the run's.
    """

    def __init__(self, active: Active, store: Store, owner: str) -> None:
        self._active = active
        self._store = store
        self._owner = owner
        self._marked = False

    async def ask(self, prompt: Prompt) -> Answer:
        """Ask; without a waiting call nothing is asked here, until a decision elsewhere cancels this."""
        began = anyio.current_time()
        try:
            await self._mark(f"approval:{prompt.approval_id}")
            if self._active.asker is not None:
                answer = await self._active.asker.ask(prompt)
                if answer.verdict != "deferred":
                    return answer
            await anyio.sleep_forever()
        finally:
            self._active.waited += anyio.current_time() - began
        raise AssertionError("sleep_forever returned")

    async def close(self) -> None:
        """The call goes on or is over: the run waits no longer."""
        if self._marked:
            await self._mark(None)

    async def _mark(self, waiting_on: str | None) -> None:
        active = self._active
        try:
            await self._store.write(
                executions.set_waiting, active.run_id, self._owner, active.epoch, waiting_on
            )
            self._marked = waiting_on is not None
        except Conflict:
            self._marked = False  # the run is no longer ours: whoever has it says what it waits on
