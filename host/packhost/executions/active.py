"""A run that goes on in this process: who waits for it, and how it asks a person."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

import anyio

from packhost.errors import Conflict
from packhost.gate.types import Answer, Asker, Prompt
from packhost.store.base import Store
from packhost.store.ops import executions

Report = Callable[[float, float | None, str | None], Awaitable[None]]


@dataclass(slots=True)
class Waits:
    """Seconds in which at least one person was waited for; questions asked at once count once."""

    asking: int = 0
    _began: float = 0.0
    _total: float = 0.0

    @property
    def seconds(self) -> float:
        """Until now."""
        return self._total + (anyio.current_time() - self._began if self.asking else 0.0)

    def begin(self) -> None:
        """A question is put."""
        if self.asking == 0:
            self._began = anyio.current_time()
        self.asking += 1

    def end(self) -> None:
        """It is answered, or over."""
        self.asking -= 1
        if self.asking == 0:
            self._total += anyio.current_time() - self._began


def _nothing() -> None:
    """What a host that has its store alone has to check."""


@dataclass(slots=True)
class Active:
    """A run in this process.

    `starter` is the call that started or resumed it; `asker` and `report` are that call's, as long as it
    waits, and `attended` says whether its client can ask a person. `asked` holds what the run's calls
    wait for, first to last, `calling` counts the calls under way. `outcome` is the word that the run ends
    with when it is ended from outside. `leaving`: the host stops, and another takes the run from its next
    safe point on. `principal` is whose it is. `lost`: another may have it already. `check` raises
    `StoreUnavailable` where the host may start nothing for it now.
    """

    run_id: str
    epoch: int
    starter: str
    background: bool
    check: Callable[[], None] = _nothing
    principal: str = ""
    asker: Asker | None = None
    attended: bool = False
    report: Report | None = None
    aborting: bool = False
    leaving: bool = False
    lost: bool = False
    calling: int = 0
    reason: str = ""
    outcome: str = "cancelled"
    told: int = 0
    asked: dict[str, None] = field(default_factory=dict)
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

    def abort(self, reason: str, outcome: str) -> None:
        """End the run at its next await, wherever it is; the first of several outcomes stands."""
        if not self.aborting:
            self.aborting, self.reason, self.outcome = True, reason, outcome
        self.scope.cancel()

    def lose(self) -> None:
        """Stop the run where it is and write nothing more of it."""
        self.lost = True
        self.scope.cancel()

    def leave(self) -> None:
        """Have the run let go at its next safe point; at once where it does nothing but wait for people."""
        self.leaving = True
        if self.waits_for_people:
            self.scope.cancel()

    @property
    def waits_for_people(self) -> bool:
        """Whether every call under way waits for somebody to decide it."""
        return bool(self.calling) and self.calling == len(self.asked)


class RunAsker:
    """Asks for one call of a run: through the call that waits for the run, else by leaving the record open.

    While it asks, the run's row says what it waits on, and the time does not count as the run's.
    """

    def __init__(self, active: Active, waits: Waits, store: Store, owner: str) -> None:
        self._active = active
        self._waits = waits
        self._store = store
        self._owner = owner
        self._mine: str | None = None

    async def ask(self, prompt: Prompt) -> Answer:
        """Ask; without a waiting call nothing is asked here, until a decision elsewhere cancels this."""
        self._waits.begin()
        try:
            self.forget()
            self._mine = prompt.waiting
            self._active.asked[self._mine] = None
            await self._mark()
            if self._active.asker is not None and not prompt.withheld:
                answer = await self._active.asker.ask(prompt)
                if answer.verdict != "deferred":
                    return answer
            await anyio.sleep_forever()
        finally:
            self._waits.end()
        raise AssertionError("sleep_forever returned")

    async def close(self) -> None:
        """The call goes on or is over: the run waits for it no longer, and its row says so."""
        if self._mine is not None:
            self.forget()
            await self._mark()

    def forget(self) -> None:
        """The call was cut off: nothing is written."""
        self._active.asked.pop(self._mine or "", None)

    async def _mark(self) -> None:
        """Say what the run waits for, the first of several questions. When the run is no longer ours,
        whoever has it says so instead."""
        active = self._active
        with suppress(Conflict):
            await self._store.write(
                executions.set_waiting,
                active.run_id,
                self._owner,
                active.epoch,
                next(iter(active.asked), None),
            )
