"""The life of a run: queued, running, paused, interrupted, then completed, failed or aborted.

A run lives in the host's task group. A foreground run ends when the call that waits for it is
cancelled, since nobody would read it any more; one in the background outlives its caller. A run that
a person paused goes on only by a person's word. One that waits for a time is paused and held by
nobody; the host that serves at that time starts it again in the background.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import anyio
import anyio.abc

from packhost.errors import Conflict, NotFound, PackhostError
from packhost.executions import ops
from packhost.executions.active import Active
from packhost.executions.handle import Handle
from packhost.executions.request import Request, redacted, request_of, view_of
from packhost.gate import Gate
from packhost.gate.configuration import Configuration
from packhost.gate.display import as_text
from packhost.kinds.context import CallContext, RunDriver, RunResult, RunStopped, RunView
from packhost.names import new_id
from packhost.store.base import Store, Tx
from packhost.store.ops import executions
from packhost.store.rows import DIRECT, EndStatus, ExecutionRow, NewExecution
from packhost.workspace.redaction import redact_json_text

log = logging.getLogger("packhost.runs")
LEASE = 60.0
"""Seconds for which a claim holds; renewed every third of it."""
_STOP_WAIT = 2.0
_TRY_AGAIN = 30.0
"""Seconds at most between two looks for runs that are due, since clocks jump and packs come back."""
_HOST = "host:"
_UNSTARTED = ("queued", "running")


class Runs:
    """Implements `RunService`, and what a person may do with any run of the workspace.

    `owner` is the host's name in the store, the same that the gate writes; `tasks` is the task group
    in which runs live.
    """

    def __init__(
        self,
        store: Store,
        gate: Gate,
        *,
        owner: str,
        drivers: Mapping[str, RunDriver],
        tasks: anyio.abc.TaskGroup,
        configuration: Callable[[], Configuration],
        lease: float = LEASE,
    ) -> None:
        self._store = store
        self._gate = gate
        self._owner = owner
        self._drivers = drivers
        self._tasks = tasks
        self._configuration = configuration
        self._lease = lease
        self._active: dict[str, Active] = {}
        self._alarm = anyio.Event()

    async def start_up(self) -> None:
        """Keep the leases of this host's runs, for as long as its task group lives."""
        self._tasks.start_soon(self._keep_leases)

    async def shut_down(self) -> None:
        """Stop every run where it is, within two seconds; the next host finds them interrupted."""
        running = list(self._active.values())
        for active in running:
            active.scope.cancel()
        with anyio.move_on_after(_STOP_WAIT):
            for active in running:
                await active.done.wait()

    async def drain(self) -> None:
        """Return once no run goes on in this host."""
        while self._active:
            for active in list(self._active.values()):
                log.warning("run %s goes on here until it ends; Ctrl-C interrupts it", active.run_id)
                await active.done.wait()

    async def start(
        self,
        driver: str,
        spec: Mapping[str, Any],
        *,
        context: CallContext,
        session_id: str | None,
        background: bool = False,
    ) -> str:
        """Write a new run down, start it, return its id.

        Raises `NotFound` for an unknown driver or another's session, `InvalidInput` for a session's
        bad name, `Conflict` when the session has a run that has not ended.
        """
        self._driver(driver)
        session = context.session_id
        if session_id is not None and session_id != session:
            session = await self._gate.sessions.enter(session_id, context.principal, context.client, session)
        narrowing = getattr(getattr(context, "caller", None), "narrowing", ())
        new = NewExecution(
            id=new_id("run"),
            kind=driver,
            session_id=session,
            principal=context.principal,
            client=context.client,
            parent=context.run_id,
            agent=spec.get("agent"),
            spec_json=redact_json_text(
                Request(spec, background, narrowing).as_text(), self._configuration().redact
            ),
        )
        with anyio.CancelScope(shield=True):
            epoch = await self._store.write(ops.begin, new, self._owner, self._lease)
            self._launch(new.id, epoch, context.call_id, background)
        return new.id

    async def wait(self, run_id: str, *, context: CallContext) -> RunView:
        """Wait until the run ends or pauses; see `RunService.wait`."""
        self._mine(run_id, context)
        active = self._active.get(run_id)
        ours = active is not None and active.starter == context.call_id and not active.background
        if active is None or not ours:
            return await self._ended(run_id)
        active.asker = getattr(context, "asker", None)
        active.report = context.report_progress
        try:
            return await self._ended(run_id)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True), suppress(PackhostError):
                gone = "the call that waited for it is gone"
                await self._abort(run_id, f"client:{context.client}", gone, "client_disconnect")
            raise
        finally:
            active.asker = active.report = None

    async def get(self, run_id: str, *, context: CallContext) -> RunView:
        """A run of the caller's; `NotFound` for any other."""
        return view_of(self._mine(run_id, context))

    async def pause(self, run_id: str, reason: str, *, context: CallContext) -> RunView:
        """Ask a run to pause at its next safe point. Raises `Conflict` when it has ended."""
        self._mine(run_id, context)
        await self._store.write(ops.pause, run_id, f"client:{context.client}", reason)
        return self._view(run_id)

    async def resume(self, run_id: str, *, context: CallContext) -> RunView:
        """Start a paused or interrupted run again, or take back a pause that it has not reached.

        One resumption wins. Raises `Conflict`: `CONTINUATION_IN_PROGRESS` while it runs,
        `RESUME_STATE_CHANGED` when it has ended; `PackhostError` with `APPROVAL_REQUIRED` when a person
        paused it.
        """
        row = self._mine(run_id, context)
        if not row.ended and (row.paused_by or "").startswith(ops.PERSON):
            raise PackhostError(
                f"a person paused run `{run_id}`",
                code="APPROVAL_REQUIRED",
                hint=f"only a person lets it go on: `packhost runs resume {run_id}`",
            )
        return await self._resume(row, context.call_id)

    async def abort(self, run_id: str, reason: str, *, context: CallContext) -> RunView:
        """End a run now; returns once it has ended. Raises `Conflict` when it had ended before."""
        self._mine(run_id, context)
        return await self._abort(run_id, f"client:{context.client}", reason)

    async def pause_by_person(self, run_id: str, by: str, reason: str = "") -> RunView:
        """A person's own act: the run pauses and only a person lets it go on."""
        await self._store.write(ops.pause_for_person, run_id, f"{ops.PERSON}{by}", reason)
        return self._view(run_id)

    async def resume_by_person(self, run_id: str, by: str) -> RunView:
        """A person's own act: the run goes on in the background, whoever paused it."""
        return await self._resume(self._store.read(executions.get, run_id), f"{ops.PERSON}{by}")

    async def abort_by_person(self, run_id: str, by: str, reason: str = "") -> RunView:
        """A person's own act: the run ends now."""
        return await self._abort(run_id, f"{ops.PERSON}{by}", reason)

    def _driver(self, kind: str) -> RunDriver:
        driver = self._drivers.get(kind)
        if driver is None:
            raise NotFound(f"no pack here drives runs of the kind `{kind}`", hint="enable the pack that does")
        return driver

    def _mine(self, run_id: str, context: CallContext) -> ExecutionRow:
        row = self._store.read(executions.get, run_id)
        if row.principal != context.principal:
            raise NotFound(f"there is no run `{run_id}`", hint="use the `run_id` that a call returned")
        return row

    def _view(self, run_id: str) -> RunView:
        return view_of(self._store.read(executions.get, run_id))

    async def _ended(self, run_id: str) -> RunView:
        with self._store.watch(f"run:{run_id}") as watch:
            while self._store.read(ops.status, run_id) in _UNSTARTED:
                active = self._active.get(run_id)  # its own end says it without a look at every event
                await (watch.changed() if active is None else active.done.wait())
        return self._view(run_id)

    async def _resume(self, row: ExecutionRow, starter: str) -> RunView:
        if row.kind == DIRECT:
            raise self._store.read(executions.conflict, row.id)
        self._driver(row.kind)
        if row.status == "running" and await self._store.write(ops.withdraw_pause, row.id, starter):
            return self._view(row.id)
        background = request_of(row).background or starter.startswith((ops.PERSON, _HOST))
        with anyio.CancelScope(shield=True):
            epoch = await self._store.write(executions.claim, row.id, self._owner, self._lease, row.epoch)
            self._launch(row.id, epoch, starter, background)
        return self._view(row.id)

    async def _abort(self, run_id: str, by: str, reason: str, outcome: str = "cancelled") -> RunView:
        await self._store.write(ops.abort, run_id, by, reason)
        active = self._active.get(run_id)
        if active is not None:
            active.abort(reason, outcome)
            with anyio.move_on_after(_STOP_WAIT):
                await active.done.wait()
        if self._store.read(ops.status, run_id) == "paused":  # it paused at the very moment
            await self._store.write(ops.abort, run_id, by, reason)
        return self._view(run_id)

    def _launch(self, run_id: str, epoch: int, starter: str, background: bool) -> None:
        active = Active(run_id, epoch, starter, background)
        self._active[run_id] = active
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
            self._active.pop(active.run_id, None)
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
                result = await self._driver(row.kind).drive(handle)
            except RunStopped as stop:
                if stop.how != "aborted" and not active.aborting:
                    await self._let_go(handle, active, stop)
                    return
            except PackhostError as error:
                result = _broken(error)
            except Exception as error:  # a driver may raise anything; it must not take the host down
                log.exception("run %s broke", row.id)
                said = " ".join(str(error).split())[:500] or type(error).__name__
                result = _broken(PackhostError(f"the run broke: {said}", code="TOOL_FAILED"))
        if result is not None or active.aborting:  # else the host stops, and the run is left as it is
            await self._finish(active, result)

    async def _let_go(self, handle: Handle, active: Active, stop: RunStopped) -> None:
        """Mark the run paused, with the time at which it goes on when it only waits for one."""
        waiting_on = ops.time_text(stop.wake_at) if stop.how == "waiting" else None
        await self._store.write(
            _mark_paused, active.run_id, self._owner, active.epoch, handle.state_json, waiting_on
        )
        self._alarm.set()

    async def wake_due(self) -> None:
        """Start each run that waits for a time when it is due, for as long as this is not cancelled.

        For a host that serves: one that is there for a single command starts nothing by itself.
        """
        while True:
            self._alarm = anyio.Event()  # rung by a run that begins to wait
            try:
                pause = await self._start_due()
            except PackhostError as error:
                log.warning("runs that are due cannot be looked for: %s", error.message)
                pause = _TRY_AGAIN
            with anyio.move_on_after(pause):
                await self._alarm.wait()

    async def _start_due(self) -> float:
        """Start what is due; seconds after which to look again, also for what could not start."""
        now, pause = self._store.now(), _TRY_AGAIN
        for run_id, at in self._store.read(ops.waiting_for_time):
            if at > now:
                return min(pause, at - now)
            try:
                await self._resume(self._store.read(executions.get, run_id), f"{_HOST}{self._owner}")
            except Conflict:
                continue  # somebody was faster
            except PackhostError as error:
                log.warning("run %s is due and cannot go on: %s", run_id, error.message)
        return pause

    async def _finish(self, active: Active, result: RunResult | None) -> None:
        status: EndStatus = "aborted"
        outcome, text, reason = active.outcome, None, active.reason or None
        if result is not None:
            status = "failed" if result.failed else "completed"
            outcome, text = result.outcome, as_text(redacted(result.result, self._configuration().redact))
        with anyio.CancelScope(shield=True):
            await self._store.write(
                executions.finish, active.run_id, self._owner, active.epoch, status, outcome, text, reason
            )

    async def _keep_leases(self) -> None:
        while True:
            await anyio.sleep(self._lease / 3)
            if self._active:
                try:
                    await self._store.write(executions.renew, self._owner, self._lease)
                except PackhostError as error:
                    log.warning("the leases of runs could not be renewed: %s", error.message)


def _mark_paused(tx: Tx, id: str, owner: str, epoch: int, state: str, waiting_on: str | None) -> None:
    executions.mark_paused(tx, id, owner, epoch, state_json=state, waiting_on=waiting_on)


def _broken(error: PackhostError) -> RunResult:
    """A run that could not begin or broke: its caller gets the error itself."""
    described = {"code": error.code, "message": error.message, "hint": error.hint}
    if "path" in error.data:
        described["path"] = str(error.data["path"])
    return RunResult("error", {"error": described}, failed=True)
