"""The runs that go on in this process: driven from a claim to their end, let go of, or taken away."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Concatenate, ParamSpec

import anyio
import anyio.abc

from packhost.errors import Conflict, NotFound, PackhostError, StoreUnavailable
from packhost.executions import ops
from packhost.executions.active import Active
from packhost.executions.answers import pause
from packhost.executions.handle import Handle
from packhost.executions.membership import Membership
from packhost.executions.request import redacted, request_of
from packhost.gate import Gate
from packhost.gate.configuration import Configuration
from packhost.gate.display import as_text
from packhost.kinds.context import RunDriver, RunResult, RunStopped
from packhost.store.base import Store, Tx
from packhost.store.ops import executions
from packhost.store.rows import EndStatus
from packhost.workspace.redaction import brief

P = ParamSpec("P")

log = logging.getLogger("packhost.runs")
TRY_AGAIN = 0.1
STOP_WAIT = 2.0
"""Seconds that a run gets to end once it is cut off."""


class Engine:
    """Drives runs in the task group `tasks`; `active` holds them by their id."""

    def __init__(
        self,
        store: Store,
        gate: Gate,
        *,
        membership: Membership,
        drivers: Mapping[str, RunDriver],
        tasks: anyio.abc.TaskGroup,
        configuration: Callable[[], Configuration],
    ) -> None:
        self.active: dict[str, Active] = {}
        self._store = store
        self._gate = gate
        self._membership = membership
        self._owner = membership.id
        self._drivers = drivers
        self._tasks = tasks
        self._configuration = configuration

    def driver(self, kind: str) -> RunDriver:
        """What drives runs of a kind; raises `NotFound`."""
        driver = self._drivers.get(kind)
        if driver is None:
            raise NotFound(f"no pack here drives runs of the kind `{kind}`", hint="enable the pack that does")
        return driver

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of runs that can be driven here."""
        return tuple(self._drivers)

    async def shut_down(self) -> None:
        """Stop every run where it is, within two seconds; the next host finds them interrupted."""
        running = list(self.active.values())
        for active in running:
            active.scope.cancel()
        with anyio.move_on_after(STOP_WAIT):
            for active in running:
                await active.done.wait()

    async def hand_over(self, within: float) -> None:
        """Start nothing new, and let go of what goes on so that another host takes it at once.

        A run in the background is let go at its next safe point, one that a caller waits for ends here if
        it can; what has not got there `within` seconds is cut off.
        """
        await self._membership.drain()
        leaving = [one for one in self.active.values() if one.background or one.waits_for_people]
        for active in leaving:
            active.leave()
        with suppress(StoreUnavailable):
            await self._store.write(ops.wake, [active.run_id for active in leaving])
        with anyio.move_on_after(within):
            while self.active:
                await next(iter(self.active.values())).done.wait()
        for active in self.active.values():
            active.leaving = True
        await self.shut_down()

    def holding(self) -> Collection[str]:
        """The runs that go on here."""
        return list(self.active)

    def keep(self, among: Collection[str], held: Collection[str]) -> None:
        """Stop those of `among` that are no longer `held`."""
        for run_id in set(among) - set(held):
            active = self.active.get(run_id)
            if active is not None:
                active.lose()

    def stop_all(self) -> None:
        """Stop every run where it is: another host may have it by now."""
        for active in self.active.values():
            active.lose()

    async def drain(self) -> None:
        """Return once no run goes on in this host."""
        while self.active:
            for active in list(self.active.values()):
                log.warning("run %s goes on here until it ends; Ctrl-C interrupts it", active.run_id)
                await active.done.wait()

    def launch(self, run_id: str, epoch: int, starter: str, background: bool, principal: str) -> None:
        """Drive a run that was just claimed, in this epoch."""
        active = Active(run_id, epoch, starter, background, self._membership.check, principal=principal)
        self.active[run_id] = active
        self._tasks.start_soon(self._run, active)

    async def _run(self, active: Active) -> None:
        try:
            await self._drive(active)
        except Conflict as conflict:
            log.warning("run %s was taken away: %s", active.run_id, conflict.message)
        except PackhostError as error:
            log.error("the end of run %s is not on record: %s", active.run_id, error.message)
        except Exception:  # whatever it is, it must not take the host and its other runs down
            log.exception("run %s was lost", active.run_id)
        finally:
            if self.active.get(active.run_id) is active:  # else it goes on here again, in a later epoch
                del self.active[active.run_id]
            active.done.set()

    async def _drive(self, active: Active) -> None:
        row = self._store.read(executions.get, active.run_id)
        handle = Handle(
            row,
            request_of(row),
            active,
            store=self._store,
            gate=self._gate,
            owner=self._owner,
            configuration=self._configuration,
        )
        result: RunResult | None = None
        with active.scope:
            try:
                result = await self.driver(row.kind).drive(handle)
            except RunStopped as stop:
                if stop.how != "aborted" and not active.aborting:
                    await self._let_go(handle, active, stop)
                    return
            except StoreUnavailable as error:
                log.warning("run %s is let go of until the store is back: %s", row.id, error.message)
                active.leaving = True
            except PackhostError as error:
                result = _broken(error)
            except Exception as error:  # a driver may raise anything; it must not take the host down
                log.exception("run %s broke", row.id)
                said = brief(str(error), self._configuration().redact) or type(error).__name__
                result = _broken(PackhostError(f"the run broke: {said}", code="TOOL_FAILED"))
        if active.lost:
            log.warning("run %s was stopped here, since another host may have it", active.run_id)
        elif result is not None or active.aborting:  # else the host stops, and the run is left as it is
            await self._finish(active, result)
        elif active.leaving:
            await self._written(executions.hand_over, active.run_id, self._owner, active.epoch)

    async def _let_go(self, handle: Handle, active: Active, stop: RunStopped) -> None:
        """Mark the run paused, with the time at which it goes on if it waits for one, or hand it over."""
        held = (active.run_id, self._owner, active.epoch)
        if active.leaving and stop.how == "paused":
            await self._store.write(executions.hand_over, *held, handle.state_json)
            return
        waiting_on = ops.time_text(stop.wake_at) if stop.how == "waiting" else None
        await self._store.write(pause, *held, handle.state_json, waiting_on)

    async def follow_wishes(self) -> None:
        """End runs of this host that somebody, wherever, wants to end; a pause is seen at safe points."""
        with self._store.watch(executions.STEERING) as watch:
            while True:
                try:
                    wanted = self._store.read(ops.to_abort, self._owner) if self.active else ()
                except PackhostError as error:
                    log.warning("what is wanted of runs cannot be read: %s", error.message)
                    await anyio.sleep(1.0)
                    continue
                for run_id, reason in wanted:
                    active = self.active.get(run_id)
                    if active is not None:
                        active.abort(reason, active.outcome)
                await watch.changed()

    async def _finish(self, active: Active, result: RunResult | None) -> None:
        status: EndStatus = "aborted"
        outcome, text, reason = active.outcome, None, active.reason or None
        if result is not None:
            status = "failed" if result.failed else "completed"
            outcome, text = result.outcome, as_text(redacted(result.result, self._configuration().redact))
        await self._written(
            executions.finish, active.run_id, self._owner, active.epoch, status, outcome, text, reason
        )

    async def _written(
        self, op: Callable[Concatenate[Tx, P], object], *args: P.args, **kwargs: P.kwargs
    ) -> None:
        """Write what became of a run, as soon as the store takes it: nobody else would."""
        pause = TRY_AGAIN
        while True:
            try:
                with anyio.CancelScope(shield=True):
                    await self._store.write(op, *args, **kwargs)
                return
            except StoreUnavailable as error:
                log.warning("what became of a run cannot be written down yet: %s", error.message)
            await anyio.sleep(pause)
            pause = min(2 * pause, STOP_WAIT)


def _broken(error: PackhostError) -> RunResult:
    """A run that could not begin or broke: its caller gets the error itself."""
    described = {"code": error.code, "message": error.message, "hint": error.hint}
    if "path" in error.data:
        described["path"] = str(error.data["path"])
    return RunResult("error", {"error": described}, failed=True)
