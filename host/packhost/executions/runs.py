"""The life of a run: queued, running, paused, interrupted, then completed, failed or aborted.

A run lives in the host's task group. A foreground run ends when the call that waits for it is
cancelled, since nobody would read it any more; one in the background outlives its caller, and its host:
another one that serves, or the next, takes it up. A run that a person paused goes on only by a person's
word. One that waits for a time is paused and held by nobody; one of the hosts that serve at that time
starts it again in the background. docs/replicas.md says how several hosts share a store.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import anyio
import anyio.abc

from packhost.errors import NotFound, PackhostError
from packhost.executions import ops
from packhost.executions.answers import Resumption
from packhost.executions.answers import resume as resume_run
from packhost.executions.engine import STOP_WAIT, Engine
from packhost.executions.membership import Membership, replica
from packhost.executions.request import Request, answers_of, request_of, view_of
from packhost.executions.unasked import Unasked
from packhost.gate import Gate
from packhost.gate.configuration import Configuration
from packhost.gate.hidden import below
from packhost.kinds.context import Amend, CallContext, RunDriver, RunView
from packhost.names import new_id
from packhost.store.base import Store
from packhost.store.ops import executions
from packhost.store.rows import DIRECT, ExecutionRow, NewExecution
from packhost.workspace.redaction import redact_json_text

_UNSTARTED = ("queued", "running")


class Runs:
    """Implements `RunService`, and what a person may do with any run of the workspace.

    `owner` is the host's name in the store, the same that the gate writes; `tasks` is the task group
    in which runs live; `membership` is the host's among those that share the store, left out where it
    has the store alone.
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
        lease: float | None = None,
        membership: Membership | None = None,
    ) -> None:
        self._store = store
        self._gate = gate
        self._owner = owner
        self._drivers = drivers
        self._tasks = tasks
        self._configuration = configuration
        self._membership = membership or Membership(store, replica(owner), shared=False, lease=lease)
        self._lease = self._membership.lease
        self._engine = Engine(
            store,
            gate,
            membership=self._membership,
            drivers=drivers,
            tasks=tasks,
            configuration=configuration,
        )
        self._unasked = Unasked(store, self._engine, self._membership, self._resume_unasked)

    async def start_up(self) -> None:
        """Register this host and keep its leases, for as long as its task group lives.

        Raises `ConfigInvalid` when it cannot be one of those that share the store.
        """
        await self._membership.join()
        self._tasks.start_soon(self._membership.keep, self._engine)
        self._tasks.start_soon(self._engine.follow_wishes)

    @property
    def going(self) -> int:
        """How many runs go on in this host."""
        return len(self._engine.active)

    async def shut_down(self) -> None:
        """Stop every run where it is, within two seconds; the next host finds them interrupted."""
        await self._engine.shut_down()

    async def hand_over(self, within: float) -> None:
        """Start nothing new, and let go of what goes on; see `Engine.hand_over`."""
        await self._engine.hand_over(within)

    async def drain(self) -> None:
        """Return once no run goes on in this host."""
        await self._engine.drain()

    async def wake_due(self) -> None:
        """Start each run that waits for a time when it is due, for as long as this is not cancelled.

        For a host that serves: one that is there for a single command starts nothing by itself.
        """
        await self._unasked.wake_due()

    async def take_up(self) -> None:
        """Resume what another host had to let go and may go on by itself; for a host that serves."""
        await self._unasked.take_up()

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
        bad name, `Conflict` when the session has a run that has not ended, `PackhostError` with
        `LIMIT_EXCEEDED` when runs are too deep below each other or too many of the principal's go on.
        """
        self._membership.admit()
        self._engine.driver(driver)
        self._check_number(context.principal)
        self._store.read(ops.check_depth, context.run_id)
        session = context.session_id
        if session_id is not None and session_id != session:
            session = await self._gate.sessions.enter(session_id, context.principal, context.client, session)
        caller = getattr(context, "caller", None)
        narrowing = getattr(caller, "narrowing", ())
        if getattr(caller, "intent", None) == "mandatory":
            spec = {**spec, "intent": "mandatory"}
        if variables := getattr(caller, "variables", None):
            spec = {**spec, "variables": below(spec.get("variables") or {}, variables)}
        new = NewExecution(
            id=new_id("run"),
            kind=driver,
            session_id=session,
            principal=context.principal,
            client=context.client,
            parent=context.run_id,
            agent=spec.get("agent"),
            spec_json=redact_json_text(
                Request(
                    spec,
                    background,
                    narrowing,
                    getattr(caller, "secrets", True),
                    getattr(caller, "end_user", False),
                    getattr(caller, "tenant", None),
                ).as_text(),
                self._configuration().redact,
            ),
        )
        with anyio.CancelScope(shield=True):
            epoch = await self._store.write(ops.begin, new, self._owner, self._lease, background)
            self._engine.launch(new.id, epoch, context.call_id, background, new.principal)
        return new.id

    async def wait(self, run_id: str, *, context: CallContext) -> RunView:
        """Wait until the run ends or pauses; see `RunService.wait`."""
        self._mine(run_id, context)
        active = self._engine.active.get(run_id)
        ours = active is not None and active.starter == context.call_id and not active.background
        if active is None or not ours:
            return await self._ended(run_id)
        active.asker = getattr(context, "asker", None)
        active.attended = getattr(getattr(context, "caller", None), "attended", True)
        active.report = context.report_progress
        try:
            return await self._ended(run_id)
        except anyio.get_cancelled_exc_class():
            if active.scope.cancel_called and not active.aborting:
                raise  # the host stops both: what this call waited for can go on with the next one
            with anyio.CancelScope(shield=True), suppress(PackhostError):
                gone = "the call that waited for it is gone"
                await self._abort(run_id, f"client:{context.client}", gone, "client_disconnect")
            raise
        finally:
            active.asker = active.report = None
            active.attended = False

    async def get(self, run_id: str, *, context: CallContext) -> RunView:
        """A run of the caller's; `NotFound` for any other."""
        return view_of(self._mine(run_id, context))

    async def pause(self, run_id: str, reason: str, *, context: CallContext) -> RunView:
        """Ask a run to pause at its next safe point. Raises `Conflict` when it has ended."""
        self._mine(run_id, context)
        await self._store.write(ops.pause, run_id, f"client:{context.client}", reason)
        return self._view(run_id)

    async def resume(
        self,
        run_id: str,
        *,
        context: CallContext,
        outputs: Mapping[str, Mapping[str, Any]] | None = None,
        checkpoint: str | None = None,
        amend: Amend | None = None,
    ) -> RunView:
        """Let a run go on, with what came of the calls that it waits for; see `RunService.resume`.

        Raises also `PackhostError` with `APPROVAL_REQUIRED` when a person paused it.
        """
        row = self._mine(run_id, context)
        ops.check_person(row, context.call_id)
        answers = answers_of(outputs or {}, self._configuration())
        return await self._resume(row, context.call_id, checkpoint=checkpoint, answers=answers, amend=amend)

    async def abort(self, run_id: str, reason: str, *, context: CallContext) -> RunView:
        """End a run now; returns once it has ended. Raises `Conflict` when it had ended before."""
        self._mine(run_id, context)
        return await self._abort(run_id, f"client:{context.client}", reason)

    async def pause_by_person(
        self, run_id: str, by: str, reason: str = "", *, yields: bool = False
    ) -> RunView:
        """A person's own act: the run pauses and only a person lets it go on; see `resume_by_person`."""
        await self._store.write(ops.pause_for_person, run_id, f"{ops.PERSON}{by}", reason, yields)
        return self._view(run_id)

    async def resume_by_person(self, run_id: str, by: str, *, yields: bool = False) -> RunView:
        """A person's own act: the run goes on in the background, whoever paused it.

        Whoever `yields`, an end user, lets go on no run that another person paused.
        """
        row = self._store.read(executions.get, run_id)
        return await self._resume(row, f"{ops.PERSON}{by}", yields=yields)

    async def abort_by_person(self, run_id: str, by: str, reason: str = "") -> RunView:
        """A person's own act: the run ends now."""
        return await self._abort(run_id, f"{ops.PERSON}{by}", reason)

    def _check_number(self, principal: str) -> None:
        most = self._configuration().limits.runs_at_once
        if sum(active.principal == principal for active in self._engine.active.values()) >= most:
            raise PackhostError(
                f"{most} runs of `{principal}` go on already",
                code="LIMIT_EXCEEDED",
                hint="wait until some have ended, or end them",
                retry_after=5,
            )

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
                active = self._engine.active.get(run_id)  # its own end says it without a look at every event
                await (watch.changed() if active is None else active.done.wait())
        return self._view(run_id)

    async def _resume_unasked(self, run_id: str) -> None:
        await self._resume(self._store.read(executions.get, run_id), f"{ops.HOST}{self._owner}")

    async def _resume(
        self,
        row: ExecutionRow,
        starter: str,
        *,
        checkpoint: str | None = None,
        answers: Mapping[str, Mapping[str, Any]] | None = None,
        amend: Amend | None = None,
        yields: bool = False,
    ) -> RunView:
        if row.kind == DIRECT:
            raise self._store.read(executions.conflict, row.id)
        self._membership.admit()
        self._engine.driver(row.kind)
        background = request_of(row).background or starter.startswith((ops.PERSON, ops.HOST))
        wanted = Resumption(starter, row.epoch, background, checkpoint, answers or {}, amend, yields)
        running = row.status == "running" and not wanted.bound
        if running and await self._store.write(ops.withdraw_pause, row.id, starter, yields):
            return self._view(row.id)
        with anyio.CancelScope(shield=True):
            epoch = await self._store.write(resume_run, row.id, self._owner, self._lease, wanted)
            if epoch is not None:
                self._engine.launch(row.id, epoch, starter, background, row.principal)
        return self._view(row.id)

    async def _abort(self, run_id: str, by: str, reason: str, outcome: str = "cancelled") -> RunView:
        active = self._engine.active.get(run_id)
        if active is not None and not active.aborting:
            active.outcome = outcome
        await self._store.write(ops.abort, run_id, by, reason)
        if active is not None:
            active.abort(reason, outcome)
        with anyio.move_on_after(STOP_WAIT):
            await self._ended(run_id)
        if self._store.read(ops.status, run_id) == "paused":  # it paused at the very moment
            await self._store.write(ops.abort, run_id, by, reason)
        return self._view(run_id)
