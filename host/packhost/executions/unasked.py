"""What a host that serves does unasked: start what is due, and take up what another had to let go."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import anyio

from packhost.errors import Conflict, PackhostError, StoreUnavailable
from packhost.executions import ops
from packhost.executions.engine import Engine
from packhost.executions.membership import Membership
from packhost.store.base import Store
from packhost.store.ops import executions, replicas

log = logging.getLogger("packhost.runs")
SOON = 1.0
"""Seconds until the next look where the store could not be used, or this host must register again."""
TRY_AGAIN = 30.0
"""Seconds at most between two looks for runs that are due, since clocks jump and packs come back."""
MOST = 64
"""So many runs go on here at most of which some were taken up by themselves."""


class Unasked:
    """Resumes runs by themselves; `resume` does one and raises `PackhostError` as `Runs` does."""

    def __init__(
        self, store: Store, engine: Engine, membership: Membership, resume: Callable[[str], Awaitable[object]]
    ) -> None:
        self._store = store
        self._engine = engine
        self._membership = membership
        self._resume = resume

    async def wake_due(self) -> None:
        """Start each run that waits for a time when it is due, for as long as this is not cancelled.

        For a host that serves: one that is there for a single command starts nothing by itself.
        """
        with self._store.watch(executions.WAITING) as watch:
            while not self._membership.draining:
                try:
                    pause = await self._start_due()
                except PackhostError as error:
                    log.warning("runs that are due cannot be looked for: %s", error.message)
                    pause = SOON
                with anyio.move_on_after(pause):
                    await watch.changed()

    async def take_up(self) -> None:
        """Resume what may go on by itself, in the background, for as long as this is not cancelled.

        For a host that serves, as `wake_due`.
        """
        with self._store.watch(executions.INTERRUPTED) as watch:
            while not self._membership.draining:
                pause = TRY_AGAIN
                try:
                    await self._take_up_all()
                except PackhostError as error:
                    log.warning("interrupted runs cannot be looked for: %s", error.message)
                    pause = SOON
                with anyio.move_on_after(pause):
                    await watch.changed()

    async def _take_up_all(self) -> None:
        """One after another, so that hosts that do so at the same time share them."""
        passed: set[str] = set()
        while len(self._engine.active) < MOST:
            found = self._store.read(replicas.resumable, self._engine.kinds)
            new = [one for one in found if one[0] not in passed]
            if not new:
                return
            run_id, epoch = new[0]
            passed.add(run_id)
            if self._store.read(replicas.futile, run_id):
                await self._store.write(replicas.hold_back, run_id, epoch, self._membership.id)
                log.error("run %s is interrupted again and again: it waits to be resumed", run_id)
                continue
            try:
                await self._resume(run_id)
            except Conflict:
                continue  # somebody was faster
            except StoreUnavailable:
                raise
            except PackhostError as error:
                log.warning("run %s was interrupted and cannot go on: %s", run_id, error.message)

    async def _start_due(self) -> float:
        """Start what is due; seconds after which to look again, also for what could not start."""
        now, last = self._store.now(), ("", "")
        while waiting := self._store.read(ops.waiting_for_time, last):
            for last in waiting:
                at, run_id = ops.time_of(last[0]), last[1]
                if at > now:
                    return min(TRY_AGAIN, at - now)
                await self._start(run_id)
        return TRY_AGAIN

    async def _start(self, run_id: str) -> None:
        try:
            await self._resume(run_id)
        except Conflict:
            return  # somebody was faster
        except StoreUnavailable:
            raise
        except PackhostError as error:
            log.warning("run %s is due and cannot go on: %s", run_id, error.message)
