"""Calls that go on between two requests of a client that knows no questions within one.

Some tools call others, or ask, from within their handler. In the stateless era a question can only be
put by answering the request, so such a call runs in the host's own task group: a request attends it until
it is done or asks; the client asks its person and makes the same call again, which attends it anew.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import Any, Final

import anyio
from mcp import types

from packhost.errors import PackhostError
from packhost.gate.types import Answer, CallRequest, Deferred, Outcome, Prompt, Refusal
from packhost.kinds.eliciting import LogLevel
from packhost.names import new_id
from packhost.server.asking import BEAT, UNANSWERED, answer_of
from packhost.server.channel import Channel
from packhost.server.host import ServerHost
from packhost.server.reaching import Ways
from packhost.server.wire import internal, refusal_of

_log = logging.getLogger(__name__)

MAX_FLIGHTS: Final = 256
"""Calls in flight at once, those included that nobody attends any more."""
MAX_FLIGHTS_EACH: Final = 64
"""Of them, those of one client."""


Asked = tuple[str, types.ElicitResult]
"""A question's id, and the client's reply to it."""


class _Question:
    def __init__(self, prompt: Prompt) -> None:
        self.prompt = prompt
        self.since = time.monotonic()
        self.opened = False
        """Whether the person is at the console's page of it."""
        self.answered = anyio.Event()
        self.answer = UNANSWERED

    def settle(self, answer: Answer) -> None:
        if not self.answered.is_set():
            self.answer = answer
            self.answered.set()


class Flight:
    """One call in flight: it asks, and a request attends it."""

    def __init__(self, host: ServerHost, by: str, client: tuple[str, str] = ("", "")) -> None:
        self.client = client
        """Whose it is: principal and client."""
        self.id = new_id("flt")
        self._host = host
        self._by = by
        self._scope = anyio.CancelScope()
        self._channel: Channel | None = None
        self._questions: list[_Question] = []
        self._early: Asked | None = None
        self._changed = anyio.Event()
        self._collected = anyio.Event()
        self._outcome: Outcome | None = None

    async def ask(self, prompt: Prompt) -> Answer:
        """Leave the question for the request that attends; unanswered once it has expired."""
        if self._early is not None and self._early[0] == prompt.approval_id:
            result, self._early = self._early[1], None
            return answer_of(result, prompt, by=self._by)
        question = _Question(prompt)
        self._questions.append(question)
        self._wake()
        try:
            with anyio.move_on_after(max(0.0, prompt.expires_at - time.time())):
                await question.answered.wait()
            return question.answer
        finally:
            self._questions.remove(question)
            self._wake()

    async def report(self, progress: float, total: float | None, message: str | None) -> None:
        """Progress, to the request that attends just now."""
        if self._channel is not None:
            await self._channel.report(progress, total, message)

    async def log(self, level: LogLevel, data: Any, logger: str | None) -> None:
        """A line for the caller, to the request that attends just now."""
        if self._channel is not None:
            await self._channel.log(level, data, logger)

    def answer(self, approval_id: str, result: types.ElicitResult) -> None:
        """Hand over what the client brought back; too late an answer finds no question and counts no more."""
        for question in self._questions:
            if question.prompt.approval_id == approval_id:
                question.settle(answer_of(result, question.prompt, by=self._by))

    def open(self, approval_id: str) -> None:
        """The person has opened the page of a question, where they will decide it."""
        for question in self._questions:
            if question.prompt.approval_id == approval_id:
                question.opened, question.since = True, time.monotonic()

    def opened(self, approval_id: str) -> bool:
        """Whether the page of a question is opened."""
        return any(one.opened and one.prompt.approval_id == approval_id for one in self._questions)

    def answer_ahead(self, approval_id: str, result: types.ElicitResult) -> None:
        """Hand over the answer to a question that the call is about to ask again."""
        self._early = (approval_id, result)

    async def attend(self, channel: Channel, ways: Ways, *, last: bool) -> Outcome | Prompt:
        """Wait for the end or a question for the client; cancelling this cancels the call.

        `last`: the client will not come back, so questions are held until the host's hold is over.
        """
        self._channel = channel
        try:
            while self._outcome is None:
                waiting = [q for q in self._questions if not q.answered.is_set()]
                for question in waiting:
                    if not last and not question.opened and ways.request(question.prompt) is not None:
                        return question.prompt
                if not waiting:
                    await self._changed.wait()
                elif (prompt := await self._hold(channel, waiting, last=last)) is not None:
                    return prompt
        except anyio.get_cancelled_exc_class():
            self._scope.cancel()
            raise
        finally:
            if self._channel is channel:
                self._channel = None
        self._collected.set()
        return self._outcome

    async def run(self, request: CallRequest) -> None:
        """The call itself; afterwards its outcome is kept for a while for the client to fetch."""
        outcome: Outcome = Refusal("CANCELLED", "the call was cancelled")
        with self._scope:
            try:
                outcome = await self._host.gate.call(request, self)
            except PackhostError as error:
                outcome = refusal_of(error)
            except Exception:
                _log.exception("call in flight failed")
                outcome = internal()
        if isinstance(outcome, Deferred):
            outcome = internal()
        self._outcome = outcome
        self._wake()
        with anyio.move_on_after(self._host.approval_timeout):
            await self._collected.wait()

    async def _hold(self, channel: Channel, questions: list[_Question], *, last: bool) -> Prompt | None:
        """Wait a while; a question whose page is opened is given back where the client may come again."""
        changed = self._changed
        await channel.waiting(questions[0].prompt.wish)
        with anyio.move_on_after(min(BEAT, self._host.hold)):
            await changed.wait()
        for question in questions:
            if time.monotonic() - question.since < self._host.hold or question.answered.is_set():
                continue
            if question.opened and not last and question in self._questions:
                question.since = time.monotonic()
                return question.prompt
            question.settle(UNANSWERED)
        return None

    def _wake(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()


class Flights:
    """The calls in flight of one server."""

    def __init__(self, host: ServerHost) -> None:
        self._host = host
        self._flights: dict[str, Flight] = {}

    def start(self, request: CallRequest, by: str, *, early: Asked | None = None) -> Flight | None:
        """Start a call; `early` answers a question that it will ask again; `None`: too many are in flight."""
        caller = request.caller
        client = (caller.principal, caller.client)
        own = sum(flight.client == client for flight in self._flights.values())
        if len(self._flights) >= MAX_FLIGHTS or own >= MAX_FLIGHTS_EACH:
            return None
        flight = Flight(self._host, by, client)
        if early is not None:
            flight.answer_ahead(*early)
        self._flights[flight.id] = flight
        self._host.tasks.start_soon(
            self._fly, flight, replace(request, progress=flight.report, log=flight.log)
        )
        return flight

    def find(self, id: str) -> Flight | None:
        """The call of that id, while it goes on or waits to be fetched."""
        return self._flights.get(id)

    async def _fly(self, flight: Flight, request: CallRequest) -> None:
        try:
            await flight.run(request)
        finally:
            self._flights.pop(flight.id, None)
