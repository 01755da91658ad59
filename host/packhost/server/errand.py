"""One call that may become a task: it goes on in the host, and says what it waits for."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import anyio
from mcp import types

from packhost.errors import Conflict, InvalidInput, NotFound, PackhostError
from packhost.gate.questions import PREFIX
from packhost.gate.types import Answer, CallRequest, Outcome, Prompt, Refusal
from packhost.kinds.eliciting import LogLevel
from packhost.server.admission import Admission
from packhost.server.asking import UNANSWERED, answer_of, meaning
from packhost.server.board import Board
from packhost.server.channel import Channel
from packhost.server.host import Calls
from packhost.server.reaching import Ways
from packhost.server.wire import internal, refusal_of

_log = logging.getLogger(__name__)
_VERDICTS: Final[Mapping[str, Literal["approve", "deny"]]] = {"accept": "approve", "decline": "deny"}


@dataclass(slots=True)
class Asked:
    """A question of a call; `shown` while its client is to put it."""

    prompt: Prompt
    key: str
    page: str | None
    """The console's page that it is put by; the answer is given there."""
    request: dict[str, Any] | None
    shown: bool = True
    answered: anyio.Event = field(default_factory=anyio.Event)
    answer: Answer = UNANSWERED

    def settle(self, answer: Answer) -> None:
        """Give the answer to the call."""
        self.shown = False
        if not self.answered.is_set():
            self.answer = answer
            self.answered.set()


class Errand:
    """A call under way, and what its person is asked."""

    def __init__(self, id: str, by: str, client: str, ways: Ways, board: Board) -> None:
        self.id = id
        self.by = by
        self.client = client
        self.ways = ways
        """How the person is reached; those of the request that came last."""
        self.kept = False
        """Whether it is a task by now."""
        self.early: tuple[str, types.ElicitResult] | None = None
        """An answer to a question that the call asks again."""
        self.rounds = False
        """Whether the client may put what is asked before the call begins and make the call again.

        Whoever waits for a tool's result waits for the person's answer too, and a task would let them go on.
        """
        self.message: str | None = None
        self.outcome: Outcome | None = None
        self.channel: Channel | None = None
        """The request that waits for it, before it is a task."""
        self.status: Literal["working", "cancelled"] = "working"
        self.updated = time.time()
        self.told: Collection[str] = ()
        """The keys of the questions that other hosts know of."""
        self.changed: Callable[[Errand], None] = lambda _: None
        """Told of whatever a client may see."""
        self.heeding: anyio.CancelScope | None = None
        """Ends the look at what other hosts are told for it."""
        self._board = board
        self._scope = anyio.CancelScope()
        self._questions: dict[str, Asked] = {}
        self._used: dict[str, int] = {}
        self._news: anyio.Event | None = None
        self._admission: Admission | None = None

    # what the call does

    async def run(self, calls: Calls, request: CallRequest, admission: Admission) -> None:
        """Make the call; it counts as under way except while it waits for a person."""
        outcome: Outcome = Refusal("CANCELLED", "the call was cancelled")
        self._admission = admission
        admission.begin()
        try:
            with self._scope:
                outcome = await self._outcome(calls, request)
        finally:
            admission.end()
        self.outcome = outcome
        self._tell()

    async def _outcome(self, calls: Calls, request: CallRequest) -> Outcome:
        try:
            return await calls.call(request, self)
        except PackhostError as error:
            return refusal_of(error)
        except Exception:
            _log.exception("a task's call failed")
            return internal()

    async def ask(self, prompt: Prompt) -> Answer:
        """Have the client put the question and wait for its answer, or for one that is given elsewhere."""
        if self.early is not None and self.early[0] == prompt.approval_id:
            result, self.early = self.early[1], None
            return answer_of(result, prompt, by=self.by)
        if self.rounds and not prompt.nested and not self.kept and self.ways.dialog(prompt):
            return Answer("deferred", channel="client")
        asked = self._asked(prompt)
        if not self._questions and self._admission is not None:
            self._admission.end()  # a host that stops waits for no person
        self._questions[asked.key] = asked
        self.message = prompt.wish
        self._tell()
        try:
            with anyio.move_on_after(max(0.0, prompt.expires_at - time.time())):
                await asked.answered.wait()
            return asked.answer
        finally:
            del self._questions[asked.key]
            if not self._questions and self._admission is not None:
                self._admission.begin()
            self.message = None
            self._tell()

    def _asked(self, prompt: Prompt) -> Asked:
        id = prompt.approval_id
        number = self._used[id] = self._used.get(id, 0) + 1
        request = self.ways.request(prompt)
        wire = None if request is None else request.model_dump(mode="json", by_alias=True, exclude_none=True)
        key = id if number == 1 else f"{id}.{number}"
        return Asked(prompt, key, self.ways.page(prompt), wire, shown=wire is not None)

    async def report(self, progress: float, total: float | None, message: str | None) -> None:
        """How far the call is, for whoever looks."""
        of = "" if total is None else f" of {total:g}"
        self.message = message or f"{progress:g}{of}"
        if self.channel is not None:
            await self.channel.report(progress, total, message)
        self._tell()

    async def log(self, level: LogLevel, data: Any, logger: str | None) -> None:
        """A line that the tool says, for the request that waits; of a task no client is told any."""
        if self.channel is not None:
            await self.channel.log(level, data, logger)

    # what its clients do

    def asked(self) -> dict[str, Any]:
        """The questions that the client is to put, by key."""
        return {asked.key: asked.request for asked in self._questions.values() if asked.shown}

    @property
    def waits(self) -> bool:
        """Whether anything is asked."""
        return bool(self._questions)

    async def settled(self) -> None:
        """Return once the call has ended or asks something."""
        while self.outcome is None and not self._questions:
            if self._news is None:
                self._news = anyio.Event()
            await self._news.wait()

    async def answer(self, key: str, result: types.ElicitResult) -> None:
        """Take the answer to a question: on record first. One that is asked no more counts for nothing."""
        asked = self._questions.get(key)
        if asked is None or not asked.shown:
            return
        if asked.page is None and not self.ways.takes(asked.prompt.approval_id):
            return
        asked.shown = False
        if asked.page is not None:
            self._opened(asked, result)
        elif asked.prompt.form is not None:
            await self._give(asked, result)
        else:
            await self._decide(asked, meaning(result))
        self._tell()

    def _opened(self, asked: Asked, result: types.ElicitResult) -> None:
        if result.action == "accept":
            self.message = f"waits for {asked.prompt.tool} to be decided at {asked.page}"
        else:
            asked.settle(Answer("unanswered", reason="the page was not opened"))

    async def _decide(self, asked: Asked, action: str) -> None:
        verdict = _VERDICTS.get(action)
        if verdict is None:
            asked.settle(UNANSWERED)
            return
        id = asked.prompt.approval_id
        try:
            row = await self._board.decide(
                id, verdict, by=self.by, channel="client", end_user=self.ways.end_user
            )
        except Conflict as conflict:
            if conflict.data.get("status") == "pending":
                asked.settle(Answer("unanswered", reason=conflict.message))
        except NotFound:
            asked.settle(Answer(verdict, by=self.by, channel="client"))
        except PackhostError as error:
            asked.settle(Answer("unanswered", reason=error.message))
        else:
            if row.status == "pending":
                self.message = f"waits for another person to approve {asked.prompt.tool}"

    async def _give(self, asked: Asked, result: types.ElicitResult) -> None:
        id, content = asked.prompt.approval_id, result.content if result.action == "accept" else None
        if asked.prompt.url is not None:
            content = None
        try:
            await self._board.give(id, result.action, content, by=self.by, channel="client")
        except Conflict:
            return  # answered elsewhere first
        except (InvalidInput, NotFound):
            # whoever asks says what does not fit, and asks anew under another key
            asked.settle(answer_of(result, asked.prompt, by=self.by))

    def dismiss(self, keys: tuple[str, ...]) -> None:
        """Nobody answered these."""
        for key in keys:
            if (asked := self._questions.get(key)) is not None and asked.shown:
                asked.settle(UNANSWERED)
        self._tell()

    async def cancel(self) -> None:
        """End the call, and what it asks."""
        if self.outcome is not None:
            return
        self.status = "cancelled"
        self._scope.cancel()
        for asked in list(self._questions.values()):
            if asked.prompt.form is None:
                await self._board.withdraw(asked.prompt.approval_id, self.by)

    def drop(self) -> None:
        """End the call of a client that has gone before it became a task."""
        self._scope.cancel()

    def _tell(self) -> None:
        self.updated = time.time()
        if self._news is not None:
            self._news.set()
            self._news = None
        self.changed(self)


async def put_on_record(
    board: Board, key: str, asked: Mapping[str, Any], result: types.ElicitResult, by: str, ways: Ways
) -> bool:
    """Record the answer to a question of a call that another host has; whether it is dismissed instead."""
    id, params = key.partition(".")[0], asked.get("params", {})
    fields = params.get("requestedSchema", {}).get("properties")
    own = id.startswith(f"{PREFIX}_")
    if params.get("mode") == "url" and not own:
        return result.action != "accept"  # they are on their way to the console
    try:
        if own:
            content = result.content if result.action == "accept" and fields else None
            await board.give(id, result.action, content, by=by, channel="client")
        elif (verdict := _VERDICTS.get(meaning(result))) is not None:
            await board.decide(id, verdict, by=by, channel="client", end_user=ways.end_user)
        else:
            return True
    except PackhostError as error:
        _log.debug("an answer to %s counts for nothing: %s", id, error)
    return False
