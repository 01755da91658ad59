"""Each call has exactly one result, in the message right after it, before anything else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from packhost.trace.findings import Findings, shown
from packhost.trace.lookalike import looks_like_a_call
from packhost.trace.model import Call, Group, Reply, Result, Trace

PENDING = frozenset({"tool_request", "paused", "interrupted", "cancelled", "client_disconnect"})
"""Outcomes after which the last reply's calls may stand unanswered."""
LIMIT = "LIMIT_EXCEEDED"
"""How the text of a result begins when its batch was refused for a limit."""


@dataclass
class _Batch:
    """The calls of one reply, and how far they are answered."""

    reply: Reply
    parted: bool = False
    """Whether a message came after which a result is no longer at once."""
    begun: bool = False
    """Whether a result of it came in time."""
    order: list[str] = field(default_factory=list)


def check_correlation(trace: Trace, findings: Findings) -> None:
    """Add the issues of the group `Correlation`, and missing results of refused and broken batches."""
    _Pairing(trace, findings).run()


class _Pairing:
    def __init__(self, trace: Trace, findings: Findings) -> None:
        self.trace = trace
        self.findings = findings
        self.batch: _Batch | None = None
        self.owed: Counter[str] = Counter()
        """Results that may still come, by id; twins of one id may have one each."""
        self.answered: set[tuple[int, str]] = set()
        """Turns and ids with a result."""
        self.asked: dict[str, Call] = {}
        self.servers: set[str] = set()
        self.nameless = False
        """Whether some call has no id that a result could name."""

    def run(self) -> None:
        """Walk the messages once, then look for what is still owed."""
        for step in self.trace.steps:
            if isinstance(step, Reply):
                self._close()
                self._open(step)
                for result in step.stray:
                    self._take(result)
            else:
                self._group(step)
        self._close()
        self._missing()

    def _open(self, reply: Reply) -> None:
        self.batch = _Batch(reply)
        self.servers |= reply.server_ids
        for call in reply.calls:
            if isinstance(call.id, str) and call.id:
                self.owed[call.id] += 1
                self.asked[call.id] = call
            else:
                self.nameless = True

    def _group(self, group: Group) -> None:
        batch = self.batch
        for result in group.results:
            self._take(result)
        if batch is not None and (group.plain or self.trace.protocol == "messages"):
            batch.parted = True

    def _take(self, result: Result) -> None:
        turn = self.batch.reply.turn if self.batch else 0
        if not result.proper:
            self._say("RESULT_WRONG_ROLE", result, "a result stands in a message of the wrong role", turn)
        id = result.id
        if isinstance(id, str) and id in self.servers:
            self._say("RESULT_FOR_SERVER_TOOL", result, f"`{shown(id)}` is a call of the provider's", turn)
        elif not isinstance(id, str) or id not in self.asked:
            self._stranger(result, turn)
        elif not self.owed[id]:
            self._say("RESULT_DUPLICATE", result, f"the call `{shown(id)}` already has a result", turn)
        else:
            self.owed[id] -= 1
            self.answered.add((self.asked[id].turn, id))
            self._place(result, self.asked[id], turn)

    def _place(self, result: Result, call: Call, turn: int) -> None:
        batch = self.batch
        if batch is None or call.turn != batch.reply.turn:
            self._say(
                "RESULT_LATE", result, f"the call `{shown(call.id)}` was asked in turn {call.turn}", turn
            )
            return
        if batch.parted:
            code = "RESULT_SPLIT" if batch.begun else "RESULT_LATE"
            self._say(
                code, result, f"the result of `{shown(call.id)}` does not follow its reply at once", turn
            )
        elif result.proper and not result.leading:
            self._say("RESULT_NOT_LEADING", result, "other content stands before the result", turn)
        batch.begun = batch.begun or not batch.parted
        batch.order.append(call.id)

    def _stranger(self, result: Result, turn: int) -> None:
        reply = self.batch.reply if self.batch else None
        if self.nameless and isinstance(result.id, str):
            self._say("CALL_ID_INVENTED", result, f"no call was given the id `{shown(result.id)}`", turn)
            return
        if reply is not None and not reply.calls and looks_like_a_call(reply.texts, self.trace.tools):
            self._say("TEXT_SHAPED_REQUEST", result, "the call that it answers is only text", turn)
        self._say("RESULT_UNMATCHED", result, f"no call has the id {shown(result.id)}", turn)

    def _close(self) -> None:
        batch = self.batch
        if batch is None or len(batch.order) < 2:
            return
        places = {call.id: place for place, call in enumerate(batch.reply.calls) if isinstance(call.id, str)}
        order = [places[id] for id in batch.order if id in places]
        if order != sorted(order):
            fixed = isinstance(batch.reply.raw.get("requested_tools"), list)
            self.findings.add(
                "RESULT_REORDERED",
                batch.reply.path,
                "the results have another order than the calls",
                turn=batch.reply.turn,
                severity="error" if fixed else None,
            )

    def _missing(self) -> None:
        for reply in self.trace.replies:
            unanswered = [call for call in _named(reply) if (reply.turn, call.id) not in self.answered]
            if unanswered and not self._may_stand_open(reply):
                self._name_missing(reply, unanswered)

    def _may_stand_open(self, reply: Reply) -> bool:
        if reply is not self.trace.steps[-1]:
            return False
        return self.trace.outcome in PENDING or reply.stop in ("incomplete", "refused")

    def _name_missing(self, reply: Reply, unanswered: Sequence[Call]) -> None:
        answers = self.trace.answers
        limited = self.trace.outcome == "limit_exceeded" and reply is self.trace.replies[-1]
        failed = False
        for call in reply.calls:
            answer = answers.get(call.id) if isinstance(call.id, str) else None
            failed = failed or (isinstance(call.id, str) and call.id in self.trace.raised)
            if answer is not None:
                failed = failed or (answer.is_error and not answer.text.startswith(LIMIT))
                limited = limited or (answer.is_error and answer.text.startswith(LIMIT))
        named = f"the call `{{}}` of turn {reply.turn} has no result"
        for call in unanswered:
            self._miss("RESULT_MISSING", call, named.format(shown(call.id)))
            if failed:
                self._miss("NOT_EXECUTED_RESULT_MISSING", call, "an earlier call of its batch failed")
            if limited:
                self._miss("LIMIT_RESULT_MISSING", call, "its batch was refused for a limit")

    def _miss(self, code: str, call: Call, detail: str) -> None:
        self.findings.add(code, call.path, detail, turn=call.turn, block=call.block, id=call.id)

    def _say(self, code: str, result: Result, detail: str, turn: int) -> None:
        self.findings.add(code, result.path, detail, turn=turn, block=result.block, id=result.id)


def _named(reply: Reply) -> Iterable[Call]:
    """The calls that a result could name, one of each id."""
    return {call.id: call for call in reply.calls if isinstance(call.id, str) and call.id}.values()
