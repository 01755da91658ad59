"""The client for programs that wait."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

import httpx2

import packhost.client.exchange as exchange
from packhost.client.exchange import (
    PATIENCE,
    TRIES,
    ApiError,
    ConnectionLost,
    Exchange,
    Following,
    Page,
    refusal,
)
from packhost.client.values import Approval, Detached, Envelope, Event, Grant, Question, Run

T = TypeVar("T")


class Client:
    """The `/v1` API of one host, for the holder of a token. Use it as a context manager, or `close` it.

    Every method raises `ApiError` for a refusal and `ConnectionLost` where the host cannot be reached. What
    changes nothing, and starting a run, is sent again a few times before that.
    """

    def __init__(self, url: str, token: str, *, timeout: float = 30.0) -> None:
        self._timeout = timeout
        headers = {"Authorization": f"Bearer {token}"}
        self._http = httpx2.Client(base_url=url, headers=headers, timeout=timeout, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connections; idempotent."""
        self._http.close()

    def start(
        self,
        messages: Sequence[Mapping[str, Any]] | None = None,
        *,
        idempotency_key: str | None = None,
        wait: float | None = None,
        **more: Any,
    ) -> Envelope:
        """Start a run; `more` are further members of the request, such as `session_id` or `loop`.

        It goes on by itself. With `wait` the answer comes when it ends or pauses, after so many seconds at
        the latest. Without an `idempotency_key` one is made.
        """
        body = {"messages": None if messages is None else list(messages), **more}
        return self._send(exchange.start(body, idempotency_key, wait), wait)

    def result(self, run_id: str, *, wait: float | None = None) -> Envelope:
        """Where a run stands; with `wait` once it ends or pauses, after so many seconds at the latest."""
        return self._send(exchange.result(run_id, wait), wait)

    def follow(
        self,
        run_id: str,
        *,
        after: str | None = None,
        auto_reconnect: bool = True,
        lease: float | None = None,
        patience: float = PATIENCE,
    ) -> Generator[Event | Detached, None, None]:
        """A run's events from a cursor on, as they come, until the run has ended; each once.

        A detached stream is told of and opened again, and so is one that broke, for `patience` seconds. With
        `auto_reconnect` false the iteration ends after `Detached`, and a stream that breaks raises
        `ConnectionLost`. `lease` is how long one stream may last, in seconds.
        """
        state = Following(run_id, after, lease, auto_reconnect, patience)
        while True:
            broken: ConnectionLost | ApiError | None = None
            try:
                yield from self._stream(state)
            except (ConnectionLost, ApiError) as error:
                broken = error
            step = state.step(broken, time.monotonic())
            if step == "done":
                return
            if step == "ask":
                try:
                    state.over = self.result(run_id).ended
                except (ConnectionLost, ApiError) as error:
                    step = state.step(error, time.monotonic())
            if step == "later" or (step == "ask" and not state.over):
                time.sleep(state.wait)

    def events(self, run_id: str, *, after: str | None = None, limit: int = 200) -> Page[Event]:
        """What is on record of a run after a cursor; `next` is where to go on, also when nothing came yet."""
        return self._send(exchange.events(run_id, after, limit))

    def finish(self, run_id: str, *, after: str | None = None) -> Envelope:
        """Follow a run until it has ended; how it ended."""
        for _ in self.follow(run_id, after=after):
            pass
        return self.result(run_id)

    def run(self, run_id: str) -> dict[str, Any]:
        """A run with its request, calls, questions and result."""
        return self._send(exchange.look("runs", run_id))

    def runs(self, *, direct: bool = False) -> Iterator[Run]:
        """Runs, newest first; with `direct` also calls that were made directly."""
        return self._every(lambda cursor: exchange.runs(cursor, direct))

    def pause(self, run_id: str, reason: str = "") -> Envelope:
        """Ask a run to pause."""
        return self._send(exchange.steer(run_id, "pause", {"reason": reason}))

    def resume(
        self,
        run_id: str,
        *,
        tool_outputs: Mapping[str, Mapping[str, Any]] | None = None,
        checkpoint: str | None = None,
        assistant_message_id: str | None = None,
        wait: float | None = None,
    ) -> Envelope:
        """Let a paused or interrupted run go on; `tool_outputs` are what came of the calls in `awaits`.

        With `checkpoint` only from the very pause that is meant. `assistant_message_id` names the message
        that the run ends with.
        """
        body = {
            "tool_outputs": tool_outputs,
            "checkpoint": checkpoint,
            "assistant_message_id": assistant_message_id,
        }
        return self._send(exchange.steer(run_id, "resume", body, wait), wait)

    def abort(self, run_id: str, reason: str = "") -> Envelope:
        """End a run now."""
        return self._send(exchange.steer(run_id, "abort", {"reason": reason}))

    def set_autonomy(
        self, session_id: str, level: str, reason: str = "", *, expires_in: float | None = None
    ) -> dict[str, Any]:
        """Give a session more or less autonomy; the session."""
        return self._send(exchange.autonomy(session_id, level, reason, expires_in))

    def approvals(self, status: str | None = None) -> Iterator[Approval]:
        """Questions, newest first."""
        return self._every(lambda cursor: exchange.approvals(cursor, status))

    def approval(self, approval_id: str) -> Approval:
        """One approval, with who has answered so far."""
        return self._send(exchange.approval(approval_id))

    def decide(
        self,
        approval_id: str,
        decision: Literal["approve", "deny"],
        reason: str = "",
        *,
        always: Mapping[str, Any] | None = None,
        signed: Mapping[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Approval:
        """Answer a question; `always` allows like calls from then on, `signed` is an operator's signature.

        An end user answers what a run of theirs asks, and names its `session_id`.
        """
        more = {"always": always, "signed": signed, "session_id": session_id}
        return self._send(exchange.decide(approval_id, decision, reason, **more))

    def questions(self, status: str | None = None) -> Iterator[Question]:
        """What tools ask of people, newest first."""
        return self._every(lambda cursor: exchange.questions(cursor, status))

    def question(self, question_id: str) -> Question:
        """What one tool asks."""
        return self._send(exchange.question(question_id))

    def answer_question(
        self,
        question_id: str,
        action: Literal["accept", "decline", "cancel"],
        content: Mapping[str, Any] | None = None,
    ) -> Question:
        """Give a tool what it asks for: with `accept` a value for each field. It approves nothing."""
        return self._send(exchange.answer(question_id, action, content))

    def grants(self, *, everything: bool = False) -> Iterator[Grant]:
        """What is always allowed, newest first."""
        return self._every(lambda cursor: exchange.grants(cursor, everything))

    def revoke_grant(self, grant_id: str) -> Grant:
        """Take a grant back."""
        return self._send(exchange.revoke(grant_id))

    def tools(self) -> dict[str, Any]:
        """The tools on offer, and those withheld with the reason."""
        return self._send(exchange.look("tools"))

    def tool(self, name: str) -> dict[str, Any]:
        """One tool whole."""
        return self._send(exchange.look("tools", name))

    def packs(self) -> dict[str, Any]:
        """The packs and their tools."""
        return self._send(exchange.look("packs"))

    def explain(
        self, tool: str, arguments: Mapping[str, Any], *, session_id: str | None = None
    ) -> dict[str, Any]:
        """What would happen to a call; nothing runs."""
        return self._send(exchange.explain(tool, arguments, session_id))

    def status(self) -> dict[str, Any]:
        """How the host stands, and whom the token stands for."""
        return self._send(exchange.look("status"))

    def audit_head(self) -> dict[str, Any]:
        """The end of the audit chain."""
        return self._send(exchange.look("audit", "head"))

    def _send(self, asked: Exchange[T], wait: float | None = None) -> T:
        for left in range(TRIES - 1 if asked.repeatable else 0, -1, -1):
            try:
                answer = self._http.send(self._request(asked, wait))
            except httpx2.TransportError as lost:
                if not left:
                    raise ConnectionLost(f"the host cannot be reached: {lost}") from lost
                time.sleep(exchange.BACK_AFTER / (left + 1))
                continue
            if answer.status_code >= 300:
                error = refusal(answer.status_code, answer.content, answer.headers)
                if not left or error.status not in exchange.PASSING:
                    raise error
                time.sleep(min(error.retry_after or exchange.BACK_AFTER, exchange.LONGEST_BACK))
                continue
            return asked.read(answer.json())
        raise AssertionError("the last try answers or raises")

    def _request(self, asked: Exchange[Any], wait: float | None = None) -> httpx2.Request:
        return self._http.build_request(
            asked.method,
            asked.path,
            params=dict(asked.query),
            json=asked.body,
            headers=dict(asked.headers),
            timeout=self._timeout + (wait or 0),
        )

    def _stream(self, state: Following) -> Generator[Event | Detached, None, None]:
        try:
            answer = self._http.send(self._request(state.request()), stream=True)
        except httpx2.TransportError as error:
            raise ConnectionLost(f"the host cannot be reached: {error}") from error
        try:
            if answer.status_code >= 300:
                raise refusal(answer.status_code, answer.read(), answer.headers)
            for line in answer.iter_lines():
                found = state.feed(line)
                if found is not None:
                    yield found
        except httpx2.TransportError as error:
            raise ConnectionLost(f"the stream broke off: {error}") from error
        finally:
            answer.close()

    def _every(self, page: Callable[[str | None], Exchange[Page[T]]]) -> Iterator[T]:
        cursor: str | None = None
        while True:
            found = self._send(page(cursor))
            yield from found.entries
            if found.next is None:
                return
            cursor = found.next
