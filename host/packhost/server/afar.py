"""A call that another host of the workspace has in flight: its questions and its end, by way of the store.

In the stateless era a client may bring an answer to any host. Where it comes to one that does not have the
call, the answer goes on record, where the other host finds it, and the record says what comes next.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import anyio

from packhost.errors import Conflict, InvalidInput
from packhost.gate.outcomes import prompt_of, required, withheld
from packhost.gate.questions import PREFIX, needed
from packhost.gate.questions import prompt_of as form_of
from packhost.gate.types import Prompt, Refusal
from packhost.store.base import Reading, Store, Watch
from packhost.store.ops import approvals, calls, questions
from packhost.store.ops.questions import QuestionRow
from packhost.store.rows import ApprovalRow, CallRow

Decide = Callable[..., Awaitable[ApprovalRow]]
"""Records a person's answer, as `Gate.decide` does."""
Give = Callable[..., Awaitable[QuestionRow]]
"""Records what a person gives, as `Questions.answer` does."""
Reply = tuple[str, str, Mapping[str, Any] | None]
"""A question's id, accept, decline or cancel, and what was filled in."""
_VERDICTS: Final = {"accept": "approve", "decline": "deny"}


class Afar:
    """Attends calls by their key."""

    def __init__(self, store: Store, decide: Decide, give: Give) -> None:
        self._store = store
        self._decide = decide
        self._give = give

    def knows(self, key: str | None) -> bool:
        """Whether the call of that key is on record."""
        return key is not None and self._store.read(calls.by_key, key) is not None

    async def attend(
        self, key: str | None, answer: Reply | None, by: str, *, last: bool, hold: float
    ) -> Prompt | Refusal | None:
        """Hand over an answer, then wait.

        Comes back with the next question; with a refusal where nobody answered; with `None` once the
        call has ended or is not on record, so that making it again under its key tells what came of it.
        Where the client will not come back, a question is held `hold` seconds.
        """
        row = self._store.read(calls.by_key, key or "")
        if row is None or row.status != "started":
            return None
        if answer is not None and (refusal := await self._answered(*answer, by)) is not None:
            return refusal
        with self._store.watch(f"run:{row.execution_id}") as run, self._store.watch("approvals") as asked:
            while self._store.read(calls.by_id, row.id).status == "started":
                question = self._store.read(_next_question, row)
                if question is not None and not last and not _withheld(question):
                    return form_of(question) if isinstance(question, QuestionRow) else prompt_of(question)
                with anyio.move_on_after(hold if question is not None else None) as held:
                    await _either(run, asked)
                if held.cancelled_caught and question is not None:
                    return needed(question) if isinstance(question, QuestionRow) else required(question)
        return None

    async def _answered(
        self, id: str, action: str, content: Mapping[str, Any] | None, by: str
    ) -> Refusal | None:
        if id.startswith(f"{PREFIX}_"):
            # what does not fit is asked for again; what was answered elsewhere stands
            with suppress(Conflict, InvalidInput):
                await self._give(id, action, content, by=by, channel="client")
            return None
        verdict = _VERDICTS.get(action)
        if verdict is None:
            row = self._store.read(approvals.get, id)
            return required(row, "nobody answered") if row.status == "pending" else None
        with suppress(Conflict):  # decided elsewhere first
            await self._decide(id, verdict, by=by, channel="client")
        return None


def _withheld(asked: ApprovalRow | QuestionRow) -> bool:
    return isinstance(asked, ApprovalRow) and withheld(asked)


def _next_question(tx: Reading, row: CallRow) -> ApprovalRow | QuestionRow | None:
    """What the call, or a run that it started, waits for first."""
    of = {row.execution_id, *calls.runs_of(tx, row.execution_id)}
    asked: list[ApprovalRow | QuestionRow] = [*reversed(approvals.listing(tx, "pending", 1_000))]
    asked += reversed(questions.listing(tx, "pending", 1_000))
    return next((one for one in asked if one.run_id in of), None)


async def _either(first: Watch, second: Watch) -> None:
    async with anyio.create_task_group() as tasks:

        async def wait(watch: Watch) -> None:
            await watch.changed()
            tasks.cancel_scope.cancel()

        tasks.start_soon(wait, first)
        tasks.start_soon(wait, second)
