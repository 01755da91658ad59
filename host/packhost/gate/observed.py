"""A gate that is watched: the very same steps, with whoever looks on told of each.

A host that nobody watches has a plain `Gate`, which knows nothing of this. What an observer does must neither
fail nor wait: it is told, and asked nothing that a call depends on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

from packhost.gate.configuration import Configuration
from packhost.gate.context import GateContext
from packhost.gate.evaluate import Evaluation, Stopped
from packhost.gate.gate import Gate
from packhost.gate.outcomes import Approved
from packhost.gate.types import Asker, CallRequest, Deferred, Given, Outcome, Refusal
from packhost.kinds.egress import TRACING
from packhost.store.rows import ApprovalRow


class Sight(Protocol):
    """One call, as somebody looks on."""

    def found(self, found: Evaluation | Stopped) -> None:
        """Its tool is known, and what the rules say of it."""

    def asking(self) -> None:
        """A person is being asked from now on."""

    def answered(self) -> None:
        """Nobody is being asked any more."""

    def starting(self, context: GateContext, approved: Approved) -> None:
        """It may run: its identifiers, and what allowed it."""

    def ended(self, outcome: Outcome) -> None:
        """How it ended."""

    def outgoing(self) -> Mapping[str, str]:
        """Headers for the requests that it makes."""


class Observer(Protocol):
    """Whoever looks on."""

    def call(self, request: CallRequest, nested: bool) -> AbstractContextManager[Sight]:
        """A call begins; what is entered is left when it is over, however it ends."""

    def decided(self, row: ApprovalRow) -> None:
        """A person has answered a question."""


_sight: ContextVar[Sight] = ContextVar("packhost-sight")


class ObservedGate(Gate):
    """Takes every call through the gate's steps and tells an observer."""

    def __init__(self, *, observer: Observer, **parts: Any) -> None:
        super().__init__(**parts)
        self._observer = observer

    async def decide(self, approval_id: str, *given: Any, **more: Any) -> ApprovalRow:
        """As `Gate.decide`."""
        row = await super().decide(approval_id, *given, **more)
        self._observer.decided(row)
        return row

    async def _call(self, request: CallRequest, asker: Asker | None, parent: GateContext | None) -> Outcome:
        with self._observer.call(request, parent is not None) as sight:
            token, tracing = _sight.set(sight), TRACING.set(sight.outgoing)
            try:
                outcome = await super()._call(request, asker, parent)
            finally:
                TRACING.reset(tracing)
                _sight.reset(token)
            sight.ended(outcome)
            return outcome

    async def _collect(
        self, found: Evaluation, request: CallRequest, asker: Asker | None, parent: GateContext | None
    ) -> Given | Refusal | Deferred:
        sight = _sight.get()
        sight.found(found)
        sight.asking()
        try:
            return await super()._collect(found, request, asker, parent)
        finally:
            sight.answered()

    async def _ask(
        self,
        found: Evaluation,
        request: CallRequest,
        asker: Asker | None,
        parent: GateContext | None,
        context: GateContext,
    ) -> Approved | Refusal | Deferred:
        sight = _sight.get()
        sight.found(found)
        sight.asking()
        try:
            return await super()._ask(found, request, asker, parent, context)
        finally:
            sight.answered()

    async def _intend(
        self,
        found: Evaluation,
        request: CallRequest,
        approved: Approved,
        context: GateContext,
        configuration: Configuration,
    ) -> Outcome:
        sight = _sight.get()
        sight.found(found)
        sight.starting(context, approved)
        return await super()._intend(found, request, approved, context, configuration)

    def _refused(self, request: CallRequest, refusal: Refusal, found: Evaluation | Stopped) -> Refusal:
        _sight.get().found(found)
        return super()._refused(request, refusal, found)


def together(observers: Sequence[Observer]) -> Observer:
    """Several observers as one."""
    return observers[0] if len(observers) == 1 else _Several(observers)


class _Several:
    """Observers as one; implements `Observer`."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = observers

    @contextmanager
    def call(self, request: CallRequest, nested: bool) -> Iterator[Sight]:
        """A call begins, for each."""
        with ExitStack() as stack:
            entered: list[AbstractContextManager[Sight]] = [
                one.call(request, nested) for one in self._observers
            ]
            yield _Sights([stack.enter_context(one) for one in entered])

    def decided(self, row: ApprovalRow) -> None:
        """Tell each."""
        for one in self._observers:
            one.decided(row)


@dataclass(slots=True)
class _Sights:
    sights: list[Sight]

    def found(self, found: Evaluation | Stopped) -> None:
        for one in self.sights:
            one.found(found)

    def asking(self) -> None:
        for one in self.sights:
            one.asking()

    def answered(self) -> None:
        for one in self.sights:
            one.answered()

    def starting(self, context: GateContext, approved: Approved) -> None:
        for one in self.sights:
            one.starting(context, approved)

    def ended(self, outcome: Outcome) -> None:
        for one in self.sights:
            one.ended(outcome)

    def outgoing(self) -> Mapping[str, str]:
        return {name: value for one in self.sights for name, value in one.outgoing().items()}
