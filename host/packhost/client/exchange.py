"""Requests and what their answers mean, without any way to send them: both clients share them."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Literal, TypeVar
from urllib.parse import quote

from packhost.client.values import TERMINAL, Approval, Detached, Envelope, Event, Grant, Question, Run

T = TypeVar("T")
BACK_AFTER: Final = 1.0
"""Seconds before a stream that broke is opened again, unless the server says another time."""
PATIENCE: Final = 300.0
"""Seconds for which a run is tried to be followed while its host cannot be reached."""
LONGEST_BACK: Final = 10.0
"""Seconds at most that a refused request waits before it is sent again."""
PASSING: Final = frozenset({429, 502, 503, 504})
"""The statuses of refusals that pass by themselves."""
TRIES: Final = 4
"""How often a request that may safely be sent again is sent in all."""


class ApiError(Exception):
    """A request that was refused: `code` says why, `hint` what to do next, `problem` is all of it."""

    def __init__(self, status: int, problem: Mapping[str, Any], retry_after: float | None = None) -> None:
        super().__init__(f"{problem.get('code', status)}: {problem.get('detail', 'the request was refused')}")
        self.status = status
        self.code = str(problem.get("code", ""))
        self.hint = str(problem.get("hint", ""))
        self.problem = dict(problem)
        self.retry_after = retry_after


class ConnectionLost(Exception):
    """The server cannot be reached, or a stream broke off; the run, if there is one, goes on."""


@dataclass(frozen=True, slots=True)
class Exchange(Generic[T]):
    """One request, and how to read its answer. `repeatable` when it may be sent again after a broken line."""

    method: str
    path: str
    read: Callable[[Any], T]
    query: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    repeatable: bool = False


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some of a list, and where to go on."""

    entries: tuple[T, ...]
    next: str | None


def refusal(status: int, body: bytes, headers: Mapping[str, str]) -> ApiError:
    """What a bad answer says."""
    try:
        problem = json.loads(body)
    except ValueError:
        problem = {}
    after = headers.get("retry-after", "")
    return ApiError(
        status, problem if isinstance(problem, dict) else {}, float(after) if after.isdigit() else None
    )


def start(body: Mapping[str, Any], key: str | None, wait: float | None) -> Exchange[Envelope]:
    """Start a run; under its key it may be sent again."""
    headers = {"Idempotency-Key": key or secrets.token_hex(16), **_waiting(wait)}
    given = {name: value for name, value in body.items() if value is not None}
    return Exchange("POST", "/v1/runs", Envelope.read, body=given, headers=headers, repeatable=True)


def result(run_id: str, wait: float | None) -> Exchange[Envelope]:
    """Where a run stands."""
    path = f"/v1/runs/{_part(run_id)}/result"
    return Exchange("GET", path, Envelope.read, headers=_waiting(wait), repeatable=True)


def steer(run_id: str, deed: str, body: Mapping[str, Any], wait: float | None = None) -> Exchange[Envelope]:
    """Pause, resume or abort a run."""
    path = f"/v1/runs/{_part(run_id)}/{deed}"
    return Exchange("POST", path, Envelope.read, body=body, headers=_waiting(wait))


def runs(cursor: str | None, direct: bool) -> Exchange[Page[Run]]:
    """A page of runs."""
    return _page("/v1/runs", "runs", Run.read, cursor, {"direct": True} if direct else {})


def approvals(cursor: str | None, status: str | None) -> Exchange[Page[Approval]]:
    """A page of questions."""
    query = {} if status is None else {"status": status}
    return _page("/v1/approvals", "approvals", Approval.read, cursor, query)


def grants(cursor: str | None, everything: bool) -> Exchange[Page[Grant]]:
    """A page of grants."""
    return _page("/v1/grants", "grants", Grant.read, cursor, {"all": True} if everything else {})


def approval(id: str) -> Exchange[Approval]:
    """One approval."""
    return Exchange("GET", f"/v1/approvals/{_part(id)}", Approval.read, repeatable=True)


def decide(id: str, decision: str, reason: str, **more: Any) -> Exchange[Approval]:
    """Answer a question."""
    body: dict[str, Any] = {"decision": decision, "reason": reason, **more}
    return Exchange("POST", f"/v1/approvals/{_part(id)}/decide", Approval.read, body=body)


def questions(cursor: str | None, status: str | None) -> Exchange[Page[Question]]:
    """A page of what tools ask."""
    query = {} if status is None else {"status": status}
    return _page("/v1/questions", "questions", Question.read, cursor, query)


def question(id: str) -> Exchange[Question]:
    """What one tool asks."""
    return Exchange("GET", f"/v1/questions/{_part(id)}", Question.read, repeatable=True)


def answer(id: str, action: str, content: Mapping[str, Any] | None) -> Exchange[Question]:
    """Give a tool what it asks for."""
    body = {"action": action, "content": content}
    return Exchange("POST", f"/v1/questions/{_part(id)}/answer", Question.read, body=body)


def events(run_id: str, after: str | None, limit: int) -> Exchange[Page[Event]]:
    """A page of a run's events, from a cursor on."""
    query: dict[str, str | int | float | bool] = {"limit": limit}
    if after is not None:
        query["after"] = after

    def page(raw: Mapping[str, Any]) -> Page[Event]:
        return Page(tuple(map(Event.read, raw["events"])), raw["next"])

    path = f"/v1/runs/{_part(run_id)}/events"
    return Exchange("GET", path, page, query=query, headers={"Accept": "application/json"}, repeatable=True)


def revoke(id: str) -> Exchange[Grant]:
    """Take a grant back."""
    return Exchange("POST", f"/v1/grants/{_part(id)}/revoke", Grant.read)


def autonomy(session_id: str, level: str, reason: str, expires_in: float | None) -> Exchange[dict[str, Any]]:
    """Give a session more or less autonomy."""
    body = {"level": level, "reason": reason, "expires_in": expires_in}
    return Exchange("POST", f"/v1/sessions/{_part(session_id)}/autonomy", dict, body=body)


def look(*parts: str) -> Exchange[dict[str, Any]]:
    """Read a document as it is."""
    return Exchange("GET", "/v1/" + "/".join(map(_part, parts)), dict, repeatable=True)


def explain(tool: str, arguments: Mapping[str, Any], session_id: str | None) -> Exchange[dict[str, Any]]:
    """What would happen to a call."""
    body = {"tool": tool, "arguments": dict(arguments), "session_id": session_id}
    return Exchange("POST", "/v1/explain", dict, body=body, repeatable=True)


Step = Literal["done", "again", "later", "ask"]
"""What to do after a stream: nothing, open the next one now or after `wait`, or ask whether the run ended."""


class Following:
    """A run that is followed over as many streams as it takes; knows nothing of how lines come."""

    def __init__(
        self, run_id: str, after: str | None, lease: float | None, auto_reconnect: bool, patience: float
    ) -> None:
        self._run_id = run_id
        self._lease = lease
        self._auto = auto_reconnect
        self._patience = patience
        self._fields: dict[str, str] = {}
        self._detached = False
        self._broken_since: float | None = None
        self.after = after
        self.wait = BACK_AFTER
        self.ended = False
        self.over = False
        """Whether the run was known to have ended when the stream was opened."""

    def step(self, broken: ConnectionLost | ApiError | None, now: float) -> Step:
        """What to do after a stream that ended, or broke; raises what broke it where that is the end.

        `now` is in seconds, from any moment on.
        """
        if self.ended or (broken is None and not self._auto):
            return "done"
        if broken is None:
            self._broken_since = None
            if self._detached:
                return "again"
            return "done" if self.over else "ask"
        since = now if self._broken_since is None else self._broken_since
        self._broken_since = since
        passing = isinstance(broken, ConnectionLost) or broken.status in PASSING
        if not self._auto or not passing or now - since > self._patience:
            raise broken
        if isinstance(broken, ApiError):
            self.wait = max(self.wait, broken.retry_after or 0)
        return "later"

    def request(self) -> Exchange[None]:
        """The next stream, from where the last one ended."""
        self._fields, self._detached = {}, False
        headers = {"Accept": "text/event-stream"}
        if self.after is not None:
            headers["Last-Event-ID"] = self.after
        query = {} if self._lease is None else {"lease": self._lease}
        return Exchange(
            "GET", f"/v1/runs/{_part(self._run_id)}/events", lambda _: None, query=query, headers=headers
        )

    def feed(self, line: str) -> Event | Detached | None:
        """Take a line; what it completes."""
        if line:
            name, _, value = line.partition(":")
            self._fields[name] = value.removeprefix(" ")
            return None
        fields, self._fields = self._fields, {}
        if fields.get("retry", "").isdigit():
            self.wait = int(fields["retry"]) / 1_000
        if "data" not in fields:
            return None
        data = json.loads(fields["data"])
        if fields.get("event") == "await":
            self._detached = True
            return Detached(self._run_id, self.after)
        self._broken_since = None
        event = Event.read(data)
        self.after = event.cursor
        self.ended = event.type in TERMINAL
        return event


def _page(
    path: str,
    member: str,
    read: Callable[[Mapping[str, Any]], T],
    cursor: str | None,
    query: Mapping[str, str | bool],
) -> Exchange[Page[T]]:
    def page(raw: Mapping[str, Any]) -> Page[T]:
        entries: Sequence[Mapping[str, Any]] = raw[member]
        return Page(tuple(map(read, entries)), raw["next"])

    going_on = {} if cursor is None else {"cursor": cursor}
    return Exchange("GET", path, page, query={**query, **going_on}, repeatable=True)


def _waiting(wait: float | None) -> dict[str, str]:
    return {} if wait is None else {"Prefer": f"wait={max(0, round(wait))}"}


def _part(text: str) -> str:
    return quote(text, safe=":")
