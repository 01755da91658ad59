"""What the host did, event by event: intents, dispatches, approvals, pauses, resumes, outcomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from packhost.trace.calls import input_of
from packhost.trace.findings import Findings, shown
from packhost.trace.model import Event, Trace
from packhost.trace.strict import BadInput, fingerprint

EVENTS: Mapping[str, str] = {
    "request": "A request to the provider: `headers`, `max_tokens`, `system`, `tools`, `messages`, `retry`.",
    "response": "Its reply: `stop_reason`, `requested` (`{id, name}` each), `usage`, `bytes`, `snapshots`.",
    "fault": "A reply that was refused: `issue` (a code of this list), `message`.",
    "api_error": "The API refused a request: `status`.",
    "retry": "A request is made once more; `true` as a member `retry` of `request` says the same.",
    "intent": "The intent of call `id` is on record.",
    "dispatch": "Call `id` is run: `name`, `input`, `idempotent`, `idempotency_key`, `approval`, `timeout`.",
    "result": "Call `id` came to an end: `is_error`, `code`, `exception`, `seconds`, `unknown`.",
    "refused": "Call `id` was not run: `code`; `batch` when its whole batch was refused.",
    "approval_asked": "A person is asked: `approval`, `id`, `name`, `input`.",
    "approval": "The person's answer: `approval`, `decision` (`approved` or another word).",
    "pause": "Nothing more starts.",
    "interrupt": "The host was gone.",
    "resume": "The run goes on: `epoch`, which only grows.",
    "abort": "The run was told to end.",
    "disconnect": "Whoever read the run is gone.",
    "outcome": "The run ended: `outcome`.",
}
"""The events of a trace; each may say `at`, in seconds."""
GRACE = 0.1
"""Seconds within which an abort takes hold."""
_RETRYABLE = frozenset({408, 409, 429})


def check_conduct(trace: Trace, findings: Findings) -> None:
    """Add the issues of the group `Execution and durability`, and those of outcomes."""
    if trace.events is not None:
        conduct = _Conduct(trace, findings)
        for event in trace.events:
            conduct.take(event)
    if len(trace.outcomes) > 1:
        said = ", ".join(shown(one) for one in trace.outcomes[:5])
        findings.add(
            "OUTCOME_NOT_UNIQUE", "/events", f"the run has the outcomes {said}", turn=len(trace.replies)
        )


@dataclass
class _Approval:
    name: Any = None
    input: Any = None
    given: bool = False
    used_by: str | None = None


class _Conduct:
    def __init__(self, trace: Trace, findings: Findings) -> None:
        self.trace = trace
        self.findings = findings
        self.turn = 0
        self.state = "running"
        self.epoch: float | None = None
        self.ending: str | None = None
        self.ended_at: float | None = None
        self.api_error: Event | None = None
        self.intents: set[str] = set()
        self.ids: dict[str, Any] = {call.id: call.name for call in trace.known.values()}
        self.running: dict[str, Event] = {}
        self.ran: dict[str, bool] = {}
        """Ids that were run, and whether their effects are known."""
        self.approvals: dict[str, _Approval] = {}
        self.inputs: dict[str, str] = {}

    def take(self, event: Event) -> None:
        """Act on one event."""
        handle = self._HANDLERS.get(event.type)
        if handle is not None:
            handle(self, event)
        elif event.type not in EVENTS:
            self.say("EVENT_UNKNOWN", event, f"an event of the type {shown(event.type)} is not known")

    def say(self, code: str, event: Event, detail: str, **more: Any) -> None:
        """Add an issue at an event."""
        self.findings.add(code, event.path, detail, turn=self.turn, id=event.text("id"), **more)

    def _work(self, event: Event) -> None:
        if self.ending is not None and self._too_late(event):
            self.say(self.ending, event, f"`{event.type}` after the run was ended")
            self.ending = None
        if self.api_error is not None:
            status = self.api_error.number("status")
            again = event.raw.get("retry") is True and (
                status is None or status in _RETRYABLE or status >= 500
            )
            if not again:
                self.say("API_ERROR_CONTINUED", event, f"`{event.type}` after status {status or 0:g}")
            self.api_error = None

    def _too_late(self, event: Event) -> bool:
        """What begins within the grace crossed the order to end on its way."""
        at = event.number("at")
        return at is None or self.ended_at is None or at - self.ended_at > GRACE

    def _request(self, event: Event) -> None:
        self._work(event)

    def _response(self, event: Event) -> None:
        self.turn += 1
        requested = event.raw.get("requested")
        for one in requested if isinstance(requested, list) else ():
            if isinstance(one, Mapping) and isinstance(one.get("id"), str):
                self.ids.setdefault(one["id"], one.get("name"))

    def _api_error(self, event: Event) -> None:
        self.api_error = event

    def _intent(self, event: Event) -> None:
        self.intents.add(event.text("id") or "")

    def _dispatch(self, event: Event) -> None:
        self._work(event)
        id = event.text("id") or ""
        if self.state != "running":
            self.say("DISPATCH_WHILE_PAUSED", event, "a call started while the run stood still")
        if id not in self.ids:
            self.say("CALL_ID_INVENTED", event, f"no call was given the id `{shown(id)}`")
        elif event.text("name") not in (None, self.ids[id]):
            detail = f"the call is named {shown(self.ids[id])}, run as {shown(event.raw['name'])}"
            self.say("CALL_NAME_CONFLICT", event, detail)
        self._again(event, id)
        if not self._idempotent(event) and id not in self.intents:
            self.say("INTENT_NOT_COMMITTED", event, "nothing on record says that the call was to start")
        self.intents.discard(id)
        self.running[id] = event
        self._approved(event, id)

    def _idempotent(self, event: Event) -> bool:
        name = event.text("name") or self.ids.get(event.text("id") or "")
        tool = self.trace.tools.get(name) if isinstance(name, str) else None
        return event.raw.get("idempotent") is True or (tool is not None and tool.idempotent)

    def _again(self, event: Event, id: str) -> None:
        known = self.ran.get(id, True) and id not in self.running
        before = id in self.ran or id in self.running
        safe = self._idempotent(event) or bool(event.text("idempotency_key"))
        if before and not safe and not known:
            self.say("EFFECTS_UNKNOWN_RERUN", event, "what the call did before is not known")
        elif before and not safe:
            self.say("RETRY_NON_IDEMPOTENT", event, "the call may not be repeated")

    def _approved(self, event: Event, id: str) -> None:
        name = event.text("approval")
        if name is None:
            return
        approval = self.approvals.get(name)
        if approval is None or not approval.given:
            self.say("APPROVAL_REPLAYED", event, f"the approval `{shown(name)}` was not given")
            return
        if approval.used_by is not None:
            self.say("APPROVAL_REPLAYED", event, f"the approval was used by `{shown(approval.used_by)}`")
            return
        approval.used_by = id
        run = event.text("name") or self.ids.get(id)
        renamed = approval.name is not None and run is not None and approval.name != run
        changed = approval.input is not None and fingerprint(approval.input) != self._input(event, id)
        if renamed or changed:
            self.say("APPROVAL_ARGS_CHANGED", event, "the person was shown another call")

    def _input(self, event: Event, id: str) -> str:
        """What the call was run with, as a fingerprint; a call's own is made once."""
        if "input" in event.raw:
            return fingerprint(event.raw["input"])
        if id not in self.inputs:
            call = self.trace.known.get(id)
            try:
                self.inputs[id] = fingerprint(input_of(call) if call is not None else None)
            except BadInput as bad:
                self.inputs[id] = bad.code
        return self.inputs[id]

    def _result(self, event: Event) -> None:
        id = event.text("id") or ""
        begun = self.running.pop(id, None)
        unknown = event.raw.get("unknown") is True or event.text("code") == "EFFECTS_UNKNOWN"
        self.ran[id] = not unknown
        if event.raw.get("exception") is True:
            self.say("TOOL_EXCEPTION", event, "the handler raised")
        allowed, took = begun.number("timeout") if begun is not None else None, event.number("seconds")
        late = allowed is not None and took is not None and took > allowed
        if late and event.raw.get("is_error") is not True:
            self.say("TOOL_TIMEOUT", event, f"the call took {took:g} of {allowed:g} seconds")

    def _asked(self, event: Event) -> None:
        approval = self.approvals.setdefault(event.text("approval") or "", _Approval())
        approval.name, approval.input = event.raw.get("name"), event.raw.get("input")

    def _answered(self, event: Event) -> None:
        approval = self.approvals.setdefault(event.text("approval") or "", _Approval())
        approval.given = event.text("decision") == "approved"

    def _pause(self, event: Event) -> None:
        self.state = "paused"

    def _interrupt(self, event: Event) -> None:
        self.state = "interrupted"
        for id in self.running:
            self.ran[id] = False
        self.running.clear()

    def _resume(self, event: Event) -> None:
        epoch = event.number("epoch")
        stale = epoch is not None and self.epoch is not None and epoch <= self.epoch
        if self.state == "ended" or stale:
            self.say("RESUME_STALE", event, "the run was resumed from a state that is not its last")
        elif self.state == "running":
            self.say("RESUME_CONCURRENT", event, "the run was resumed while it ran")
        self.epoch = epoch if self.epoch is None or (epoch is not None and epoch > self.epoch) else self.epoch
        self.state = "running"

    def _abort(self, event: Event) -> None:
        self.ending, self.ended_at = "CANCELLED", event.number("at")

    def _disconnect(self, event: Event) -> None:
        self.ending, self.ended_at = "CLIENT_DISCONNECT", event.number("at")

    def _outcome(self, event: Event) -> None:
        wanted = {"CANCELLED": "cancelled", "CLIENT_DISCONNECT": "client_disconnect"}.get(self.ending or "")
        if self.ending is not None and event.text("outcome") != wanted:
            self.say(self.ending, event, f"the run ended as {shown(event.text('outcome'))}, not `{wanted}`")
        self.ending = None
        self.api_error = None
        self.state = "ended"

    _HANDLERS: Mapping[str, Callable[[_Conduct, Event], None]] = {
        "request": _request,
        "response": _response,
        "api_error": _api_error,
        "intent": _intent,
        "dispatch": _dispatch,
        "result": _result,
        "approval_asked": _asked,
        "approval": _answered,
        "pause": _pause,
        "interrupt": _interrupt,
        "resume": _resume,
        "abort": _abort,
        "disconnect": _disconnect,
        "outcome": _outcome,
    }
