"""What the host did in a run, from its record, as the events of a trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from packhost.api import RecordedApproval, RecordedEvent, RunRecord
from packhost_packs.agent_runtime.searching import SEARCH

_RAISED = frozenset({"TOOL_FAILED", "TOOL_TIMEOUT", "OUTPUT_INVALID", "OUTPUT_TOO_LARGE"})
Deed = dict[str, Any]


def events_of(record: RunRecord) -> Iterator[Deed]:
    """The events of the run, or of the branch that the record is of.

    Times are left out of a run that was interrupted: what its clock lost is on no record.
    """
    timed = all(event.type != "run.interrupted" for event in record.events)
    deeds = _Deeds(record)
    for event in record.events:
        for deed in deeds.of(event):
            yield {**deed, **({"at": event.at} if timed else {})}
    yield from deeds.batch_refused()


class _Deeds:
    def __init__(self, record: RunRecord) -> None:
        self._record = record
        self._prefix = f"{record.branch}/" if record.branch else ""
        self._names: dict[str, str] = {}
        """The names that the model gave its calls, by id."""
        self._ids: dict[str, str] = {}
        """Ids of calls by the record's own."""
        self._approvals = {approval.id: approval for approval in record.approvals}
        self._asked: set[str] = set()
        self._awaited: set[str] = set()
        self._begun = False
        self._going = False
        self._over = False
        """Whether the branch has ended, whatever becomes of its run."""

    def of(self, event: RecordedEvent) -> Iterator[Deed]:
        """What an event of the record comes to."""
        make = _MAKERS.get(event.type)
        if make is not None and event.data.get("branch", self._record.branch) == self._record.branch:
            yield from make(self, event)

    def batch_refused(self) -> Iterator[Deed]:
        """The calls of a batch that did not fit the run's limit: none was run."""
        error = ((self._record.result or {}).get("error")) or {}
        if error.get("issue") == "BUDGET_TOOL_CALLS" and self._record.messages:
            for block in self._record.messages[-1].message["content"]:
                if block["type"] == "tool_result":
                    yield _deed("refused", id=block["tool_use_id"], code="LIMIT_EXCEEDED", batch=True)

    def running(self, event: RecordedEvent) -> Iterator[Deed]:
        if self._begun:
            if self._going:
                yield _deed("interrupt")  # the host before it had lost its lease
            yield _deed("resume", epoch=event.data["epoch"])
        self._begun = self._going = True

    def stopped(self, event: RecordedEvent) -> Iterator[Deed]:
        self._going = False
        yield _deed("pause" if event.type == "run.paused" else "interrupt")

    def abort(self, event: RecordedEvent) -> Iterator[Deed]:
        yield _deed("disconnect" if self._record.outcome == "client_disconnect" else "abort")

    def ended(self, event: RecordedEvent) -> Iterator[Deed]:
        outcome = event.data["outcome"]
        lost = event.type == "run.aborted" and outcome != "client_disconnect"
        if not self._over:
            yield _deed("outcome", outcome="cancelled" if lost else outcome)

    def node_ended(self, event: RecordedEvent) -> Iterator[Deed]:
        if event.data["node"] == self._record.branch:
            self._over = True
            yield _deed("outcome", outcome=event.data["outcome"])

    def asking(self, event: RecordedEvent) -> Iterator[Deed]:
        yield _deed("request")

    def asking_again(self, event: RecordedEvent) -> Iterator[Deed]:
        yield _deed("api_error", status=event.data.get("status"))
        yield _deed("request", retry=True)

    def replied(self, event: RecordedEvent) -> Iterator[Deed]:
        self._names.update({call["id"]: call["name"] for call in event.data["requested"]})
        yield _deed("response", **{k: event.data[k] for k in ("stop_reason", "requested", "usage")})

    def fault(self, event: RecordedEvent) -> Iterator[Deed]:
        yield _deed("fault", issue=event.data["issue"], message=event.data["message"])

    def call_started(self, event: RecordedEvent) -> Iterator[Deed]:
        data = event.data
        id = data.get("tool_use_id")
        if not isinstance(id, str) or not id.startswith(self._prefix):
            return
        id = id.removeprefix(self._prefix)
        self._ids[event.call_id or ""] = id
        used = data.get("approval_id")
        if used in self._approvals and used not in self._asked:  # it was asked for by an earlier run
            yield from self._question(self._approvals[used])
            yield _deed("approval", approval=used, decision="approved")
        yield _deed("intent", id=id)
        named = self._names.get(id)
        names = (data["tool"], _wire(data["tool"]))
        more = {"idempotent": True} if data["idempotent"] else {}
        more |= {"approval": used} if used is not None else {}
        yield _deed(
            "dispatch", id=id, name=named if named in names else names[1], input=data["arguments"], **more
        )

    def call_ended(self, event: RecordedEvent) -> Iterator[Deed]:
        id = self._ids.get(event.call_id or "")
        if id is None:
            return
        code = event.data.get("code")
        more = {"code": code} if code else {}
        more |= {"exception": True} if code in _RAISED else {}
        more |= {"unknown": True} if event.type == "call.unknown" else {}
        yield _deed("result", id=id, is_error=event.type != "call.ok", **more)

    def searched(self, event: RecordedEvent) -> Iterator[Deed]:
        data = event.data
        yield _deed("intent", id=data["id"])
        yield _deed("dispatch", id=data["id"], name=SEARCH, input=data["input"], idempotent=True)
        yield _deed("result", id=data["id"], is_error=not data["ok"])

    def awaited(self, event: RecordedEvent) -> Iterator[Deed]:
        id = self._inside(event)
        if id not in self._awaited:  # told again until it is answered
            self._awaited.add(id)
            yield _deed("intent", id=id)
            called = event.data["tool_name"]
            yield _deed("dispatch", id=id, name=called, input=event.data["parameters"], by="caller")

    def answered(self, event: RecordedEvent) -> Iterator[Deed]:
        yield _deed("result", id=self._inside(event), is_error=event.data["is_error"])

    def _inside(self, event: RecordedEvent) -> str:
        return str(event.data["tool_call_id"]).removeprefix(self._prefix)

    def repeated(self, event: RecordedEvent) -> Iterator[Deed]:
        yield _deed("refused", id=event.data["id"], code="LIMIT_EXCEEDED")

    def question(self, event: RecordedEvent) -> Iterator[Deed]:
        data = event.data
        yield from self._question(RecordedApproval(data["id"], data["tool"], data["arguments"], "pending"))

    def _question(self, approval: RecordedApproval) -> Iterator[Deed]:
        self._asked.add(approval.id)
        by_canonical = approval.tool in self._names.values()
        name = approval.tool if by_canonical else _wire(approval.tool)
        yield _deed("approval_asked", approval=approval.id, name=name, input=approval.arguments)

    def answer(self, event: RecordedEvent) -> Iterator[Deed]:
        yield _deed("approval", approval=event.data["id"], decision=event.type.partition(".")[2])


def _wire(canonical: str) -> str:
    return canonical.removeprefix("inline:").replace(":", "_", 1)


def _deed(type: str, **members: Any) -> Deed:
    return {"type": type, **members}


_MAKERS: Mapping[str, Callable[[_Deeds, RecordedEvent], Iterator[Deed]]] = {
    "run.running": _Deeds.running,
    "run.paused": _Deeds.stopped,
    "run.interrupted": _Deeds.stopped,
    "run.abort_requested": _Deeds.abort,
    "run.completed": _Deeds.ended,
    "run.failed": _Deeds.ended,
    "run.aborted": _Deeds.ended,
    "node.ended": _Deeds.node_ended,
    "turn.started": _Deeds.asking,
    "turn.retried": _Deeds.asking_again,
    "turn.completed": _Deeds.replied,
    "turn.failed": _Deeds.fault,
    "call.started": _Deeds.call_started,
    "call.ok": _Deeds.call_ended,
    "call.error": _Deeds.call_ended,
    "call.unknown": _Deeds.call_ended,
    "call.repeated": _Deeds.repeated,
    "call.awaited": _Deeds.awaited,
    "call.answered": _Deeds.answered,
    "tools.searched": _Deeds.searched,
    "approval.requested": _Deeds.question,
    "approval.approved": _Deeds.answer,
    "approval.denied": _Deeds.answer,
    "approval.expired": _Deeds.answer,
    "approval.cancelled": _Deeds.answer,
}
