"""The only path to a call: admit, cover, decide, approve, intent, run, record.

A nested call comes back in here by `CallContext`; nothing reaches a handler in another way.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import anyio

from packhost.errors import Conflict, NotFound, PackhostError, StoreUnavailable
from packhost.gate.approve import Approvals
from packhost.gate.configuration import Configuration
from packhost.gate.context import GateContext, may_call
from packhost.gate.display import as_text
from packhost.gate.eliciting import Eliciting
from packhost.gate.evaluate import Evaluation, Stopped, evaluate
from packhost.gate.explain import trace_of
from packhost.gate.flights import Flights
from packhost.gate.granting import Granting
from packhost.gate.operators import Operators
from packhost.gate.outcomes import Approved, raised, uncommitted
from packhost.gate.output import check_output, recorded
from packhost.gate.questions import Questions, begin
from packhost.gate.recall import Recall, args_digest
from packhost.gate.sessions import Sessions
from packhost.gate.throttle import Throttle
from packhost.gate.types import (
    Asker,
    Caller,
    CallRequest,
    Completed,
    Deferred,
    Given,
    Listing,
    Outcome,
    Refusal,
    Trace,
)
from packhost.kinds.context import HostServices
from packhost.names import new_id
from packhost.store.base import Store
from packhost.store.ops import calls
from packhost.store.rows import DIRECT, ApprovalRow, NewCall, NewExecution, RefusedCall
from packhost.workspace.redaction import brief, redact_json_text

log = logging.getLogger("packhost.gate")
DIRECT_EPOCH = 1
_UNSURE = "whether it had effects is unknown: look before you call it again"


class Gate:
    """Takes every call through the eight steps, in order."""

    def __init__(
        self,
        *,
        store: Store,
        key: bytes,
        root_descriptor: int,
        owner: str,
        configuration: Callable[[], Configuration],
        services: Callable[[], HostServices],
        operators: Operators | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """`configuration` gives the generation that holds now and is asked once a call; without `operators`
        nothing that needs one is ever approved; `check` raises `StoreUnavailable` where nothing may start.
        """
        self._store = store
        self._key = key
        self._root = root_descriptor
        self._owner = owner
        self._configuration = configuration
        self._services = services
        self._check = check
        self._flights = Flights()
        self._throttle = Throttle(configuration)
        self._past = Recall(store, self._flights, key, owner)
        self.sessions = Sessions(store, lambda: configuration().autonomy)
        self.operators = operators or Operators(store, None)
        self.granting = Granting(store, key, configuration, self._evaluated)
        self.questions = Questions(store, key, lambda: configuration().terms)
        self._eliciting = Eliciting(store, lambda: configuration().terms, self.questions)
        self.approvals = Approvals(
            store, key, lambda: configuration().terms, self.operators, self.granting, self.sessions.level
        )

    def _evaluated(self, request: CallRequest) -> Evaluation | Stopped:
        level = self.sessions.level(request.caller.session_id)
        return evaluate(request, self._configuration(), level, self._root)

    def listed(self, caller: Caller) -> Listing:
        """The tools on offer to a caller, and those withheld with the layer that took each away."""
        catalog, within = self._configuration().catalog, caller.narrowing
        listed = tuple(entry.tool for entry in catalog.listed(within))
        return Listing(listed, tuple(catalog.withheld(within)))

    def explain(self, request: CallRequest) -> Trace:
        """Every step that a call would pass; nothing runs and nothing is recorded."""
        level, found = self.sessions.level(request.caller.session_id), self._evaluated(request)
        return trace_of(request, found, level, self.granting.covering(found, request.caller.principal))

    async def decide(self, approval_id: str, *given: Any, **more: Any) -> ApprovalRow:
        """Record a person's answer to a question, from whatever channel; see `Approvals.decide`."""
        return await self.approvals.decide(approval_id, *given, **more)

    async def call(self, request: CallRequest, asker: Asker | None = None) -> Outcome:
        """One call, from its name to its recorded outcome. Cancellable; what was acknowledged is kept."""
        with self._throttle.call(request) as refusal:
            return refusal or await self._call(request, asker, None)

    async def _call(self, request: CallRequest, asker: Asker | None, parent: GateContext | None) -> Outcome:
        caller = request.caller
        if request.idem_key is not None and not request.fresh:
            past = await self._past.outcome(request, self._configuration())
            if past is not None:
                return past
        if caller.run_id is None:
            await self.sessions.greet(caller.session_id, caller.principal, caller.client)
        while True:
            configuration, level = self._configuration(), self.sessions.level(caller.session_id)
            found = evaluate(request, configuration, level, self._root)
            if isinstance(found, Evaluation) and (refusal := may_call(parent, found.entry.tool.id.canonical)):
                found = Stopped("cover", refusal, found.entry)
            if isinstance(found, Stopped):
                return self._refused(request, found.refusal, found)
            if found.asks:
                given = await self._collect(found, request, asker, parent)
                if not isinstance(given, Given):
                    return given if isinstance(given, Deferred) else self._refused(request, given, found)
                request = replace(request, given=given)
                continue
            context = self._context(found, request, asker, configuration, parent)
            if found.decision.verdict != "ask":
                return await self._intend(found, request, Approved(), context, configuration)
            answer = await self._ask(found, request, asker, parent, context)
            if not isinstance(answer, Approved):
                return answer if isinstance(answer, Deferred) else self._refused(request, answer, found)
            # while a person was asked, the session may have been lowered or the workspace narrowed
            same = self._configuration() is configuration
            if same and self.sessions.level(caller.session_id) == level:
                return await self._intend(found, request, answer, context, configuration)

    async def _collect(
        self, found: Evaluation, request: CallRequest, asker: Asker | None, parent: GateContext | None
    ) -> Given | Refusal | Deferred:
        return await self.questions.obtain(found, request, asker, parent)

    async def _ask(
        self,
        found: Evaluation,
        request: CallRequest,
        asker: Asker | None,
        parent: GateContext | None,
        context: GateContext,
    ) -> Approved | Refusal | Deferred:
        async def preview() -> str:
            return await found.entry.kind.preview(found.entry.tool, found.arguments, context)

        deadline = parent.deadline if parent else None
        return await self.approvals.obtain(found, request.caller, asker, preview, deadline)

    def _context(
        self,
        found: Evaluation,
        request: CallRequest,
        asker: Asker | None,
        configuration: Configuration,
        parent: GateContext | None,
    ) -> GateContext:
        caller, tool = request.caller, found.entry.tool
        run_id = caller.run_id or new_id("run")
        # what a nested call is bound to: the run of this one
        inner = caller if caller.run_id else replace(caller, run_id=run_id, epoch=DIRECT_EPOCH)
        return GateContext(
            subject=tool,
            call_id=new_id("call"),
            run_id=run_id,
            caller=inner,
            asker=asker,
            progress=request.progress,
            logged=request.log,
            files=found.files,
            layers=found.layers,
            config=configuration.sections.get(tool.id.pack, {}),
            host=self._services() if tool.pack.shipped or tool.spec.kind != "python" else None,
            calling=request.calling,
            nested=self._call,
            resolve_secret=configuration.resolve_secret,
            redact=configuration.redact,
            redacting=configuration.redacting,
            direct=caller.run_id is None,
            eliciting=self._eliciting.ask,
            parent=parent,
            tool_use_id=request.tool_use_id,
            inputs=request.inputs,
        )

    def _refused(self, request: CallRequest, refusal: Refusal, found: Evaluation | Stopped) -> Refusal:
        """Record a refusal, best effort: nothing happened that a lost record could hide."""
        entry, caller, redact = found.entry, request.caller, self._configuration().redact
        refusal = replace(refusal, message=redact(refusal.message), hint=redact(refusal.hint))
        rule = str(refusal.rule) if refusal.rule else None
        refused = RefusedCall(
            tool=entry.tool.id.canonical if entry else redact(request.tool)[:200],
            code=refusal.code,
            message=refusal.message,
            session_id=caller.session_id,
            principal=caller.principal,
            client=caller.client,
            actor=caller.actor,
            tool_version=entry.tool.version if entry else None,
            args_json=found.display_json,
            execution_id=caller.run_id,
            approval_id=refusal.approval_id,
            detail_json=as_text({"layer": refusal.layer, "rule": rule}),
        )
        self._store.post(calls.record_refusal, refused)
        return refusal

    async def _intend(
        self,
        found: Evaluation,
        request: CallRequest,
        approved: Approved,
        context: GateContext,
        configuration: Configuration,
    ) -> Outcome:
        """Write the intent down before the effect, then run."""
        new = self._new_call(found, request, approved, context)
        reads = found.entry.tool.spec.permission == "read"
        mandatory = request.caller.intent == "mandatory" or approved != Approved() or bool(request.given)
        durable = mandatory or not (reads and new.idempotent)
        if not durable:
            try:
                self._check()
                waiting = self._store.post(calls.begin, new)
            except StoreUnavailable as error:
                return uncommitted(found.entry.tool.id, error)
            if waiting is not None:
                await waiting
            return await self._run(found, context, configuration, durable=False)
        flight = self._flights.open(context.call_id)
        try:
            self._check()
            await self._store.write(begin, new, request.fence, request.given)
        except anyio.get_cancelled_exc_class():
            # the intent was committed before the cancellation came through: say that nothing started
            self._store.post(self._ended, context, "error", "CANCELLED", None)
            self._flights.close(flight, Refusal("CANCELLED", "the call was cancelled before it started"))
            raise
        except Conflict as conflict:
            self._flights.drop(flight)
            return await self._lost(found, request, conflict)
        except StoreUnavailable as error:
            self._flights.drop(flight)
            return uncommitted(found.entry.tool.id, error)
        if approved.approval_id is not None:
            self.approvals.used(approved.approval_id)
        outcome: Outcome = Refusal("CANCELLED", "the call was cancelled", call_id=context.call_id)
        try:
            outcome = await self._run(found, context, configuration, durable=True)
        finally:
            self._flights.close(flight, outcome)
        return outcome

    async def _lost(self, found: Evaluation, request: CallRequest, conflict: Conflict) -> Outcome:
        """Another call used the approval up, or the run moved on: share the outcome, or say so."""
        winner = conflict.data.get("consumed_by", conflict.data.get("call_id"))
        shared = await self._flights.join(winner) if isinstance(winner, str) else None
        if shared is not None:
            return shared
        return self._refused(request, Refusal(conflict.code, conflict.message, conflict.hint), found)

    def _new_call(
        self, found: Evaluation, request: CallRequest, approved: Approved, context: GateContext
    ) -> NewCall:
        caller, tool = request.caller, found.entry.tool
        direct = caller.run_id is None
        return NewCall(
            id=context.call_id,
            execution_id=context.run_id,
            owner=self._owner,
            epoch=DIRECT_EPOCH if direct else caller.epoch,
            tool=tool.id.canonical,
            tool_version=tool.version,
            args_json=found.display_json,
            args_digest=args_digest(self._key, found.arguments_json),
            idempotent=tool.spec.idempotent,
            actor=caller.actor,
            step=1 if direct else None,
            idem_key=request.idem_key,
            tool_use_id=request.tool_use_id,
            approval_id=approved.approval_id,
            binding=approved.binding,
            answers_json=approved.answers_json,
            inputs_json=redact_json_text(as_text(request.inputs), found.redact) if request.inputs else None,
            grant_id=approved.grant_id,
            enforcement=found.entry.kind.enforcement(tool),
            execution=(
                NewExecution(context.run_id, DIRECT, caller.session_id, caller.principal, caller.client)
                if direct
                else None
            ),
        )

    async def _run(
        self, found: Evaluation, context: GateContext, configuration: Configuration, *, durable: bool
    ) -> Outcome:
        """Run the handler under its deadline, check what it returned, record how it ended."""
        entry = found.entry
        level = entry.kind.enforcement(entry.tool)
        unsure = "unknown" if not entry.tool.spec.idempotent else "error"
        try:
            value = await self._timed(found, context)
            output = check_output(entry, value, configuration.limits.max_result_bytes, configuration.redact)
        except anyio.get_cancelled_exc_class():
            self._store.post(self._ended, context, unsure, "CANCELLED", None)
            raise
        except PackhostError as error:
            status = unsure if error.code in ("TOOL_TIMEOUT", "EFFECTS_UNKNOWN") else "error"
            return await self._failed(context, error, status, level, durable, configuration)
        except Exception as error:  # a handler may raise anything; it must not take the host down
            log.exception("%s raised", entry.tool.id)
            failure = raised(entry.tool.id, brief(str(error), configuration.redact) or type(error).__name__)
            refusal = await self._failed(context, failure, "error", level, durable, configuration)
            return replace(refusal, fault=True)
        lost = await self._record(context, "ok", None, recorded(output.kept or output.text), durable)
        ids = (context.call_id, context.run_id)
        return lost or Completed(output.value, output.text, *ids, level, output.blocks)

    async def _timed(self, found: Evaluation, context: GateContext) -> Any:
        tool = found.entry.tool
        with context.deadline.scope as scope:
            context.deadline.start(tool.spec.timeout)
            return await found.entry.kind.run(tool, found.arguments, context)
        if scope.cancelled_caught:
            raise PackhostError(
                f"`{tool.id}` did not end within {tool.spec.timeout:g} s",
                code="TOOL_TIMEOUT",
                hint=_UNSURE if not tool.spec.idempotent else "ask for less, or raise its `timeout`",
            )
        raise PackhostError(f"`{tool.id}` was cancelled", code="CANCELLED")

    async def _failed(
        self,
        context: GateContext,
        error: PackhostError,
        status: str,
        level: Any,
        durable: bool,
        configuration: Configuration,
    ) -> Refusal:
        message, hint = configuration.redact(error.message), configuration.redact(error.hint)
        shown = as_text({"code": error.code, "message": message})
        lost = await self._record(context, status, error.code, shown, durable)
        return lost or Refusal(
            error.code,
            message,
            hint,
            layer=error.data.get("layer"),
            patterns=tuple(error.data.get("patterns", ())),
            approval_id=error.data.get("refusal", {}).get("approval_id"),
            call_id=context.call_id,
            run_id=context.run_id,
            enforcement=level,
            data={name: error.data[name] for name in ("path", "retry_after", "inputs") if name in error.data},
        )

    async def _record(
        self, context: GateContext, status: str, code: str | None, result: str, durable: bool
    ) -> Refusal | None:
        """Write the outcome down; for a call with effects before it is answered."""
        if not durable:
            if (waiting := self._store.post(self._ended, context, status, code, result)) is not None:
                await waiting
            return None
        try:
            await self._store.write(self._ended, context, status, code, result)
        except StoreUnavailable as error:
            return Refusal(
                "EFFECTS_UNKNOWN",
                f"`{context.tool}` ran, but its outcome could not be written down: {error.message}",
                "do not call it again before you have looked at what it did",
                call_id=context.call_id,
                run_id=context.run_id,
            )
        return None

    @staticmethod
    def _ended(tx: Any, context: GateContext, status: Any, code: str | None, result: str | None) -> None:
        with suppress(NotFound):  # it was never begun
            calls.end(tx, context.call_id, status, code, result, finish_execution=context.direct)
