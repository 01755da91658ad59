"""A run's events: a page of them, or a stream that replays and then follows.

The stream registers its waiter before it reads, reads a page at a time, and sends one before it reads the
next: a commit between the two wakes it, none comes twice, and a reader that does not read costs one page.
What a model says piece by piece is not in the journal and not in the stream.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, Final

import anyio
from anyio.lowlevel import checkpoint
from pydantic import Field
from starlette.types import Message, Receive, Scope, Send

from packhost.http.auth import still
from packhost.http.cursors import EventCursors
from packhost.http.kit import Call, Model, Reply
from packhost.http.problems import Problem
from packhost.rules.identities import Identity
from packhost.store.base import Reading
from packhost.store.ops import events, executions
from packhost.workspace.redaction import redact_json_text

log = logging.getLogger("packhost.http")
SHORTEST_LEASE: Final = 10.0
LONGEST_LEASE: Final = 1_800.0
LEASE: Final = 600.0
"""Seconds for which a stream follows unless it is asked for another time."""
ALIVE_EVERY: Final = 15.0
"""Seconds of silence after which a comment says that the stream is alive."""
RETRY: Final = 1_000
"""Milliseconds after which a client whose stream broke comes back."""
PAGE: Final = 1_024
SIZE: Final = 524_288
"""Characters of data after which a page ends."""
ENDED: Final = frozenset({"completed", "failed", "aborted"})
MEDIA_TYPE: Final = "text/event-stream"

Row = tuple[Any, ...]


class EventsQuery(Model):
    """Where to begin, how much of it, and for how long to follow."""

    after: str | None = Field(None, description="The cursor of the last event that was read.")
    limit: int = Field(200, ge=1, le=1_000, description="Events of a page; a stream has no limit.")
    lease: float = Field(
        LEASE,
        ge=SHORTEST_LEASE,
        le=LONGEST_LEASE,
        description="Seconds after which the stream detaches, while the run goes on.",
    )


class EventsHeaders(Model):
    """What may come as headers."""

    last_event_id: str | None = Field(
        None, alias="Last-Event-ID", description="As `after`, which it outranks: a client sends it by itself."
    )


class Event(Model):
    """One event of a run, as it is on record."""

    cursor: str
    run_id: str
    seq: int = Field(description="Its number in the workspace's chain: it grows, with gaps.")
    type: str
    ts: float = Field(description="Seconds since the epoch.")
    actor: str
    call_id: str | None
    data: dict[str, Any] | None = Field(description="`null` when it was redacted.")


class Events(Model):
    """A page of a run's events; `next` is where to go on, also when nothing has come yet."""

    events: list[Event]
    next: str | None
    status: str = Field(description="The run's status when the page was read.")


async def run_events(call: Call) -> Reply | EventStream:
    """`GET /v1/runs/{id}/events`: a page as JSON, or a stream where that is asked for."""
    run_id = call.path["id"]
    visible(call, run_id)
    cursors = call.shared.cursors.of_run(run_id)
    given = call.request.headers.get("last-event-id") or call.query.after
    after = cursors.read(given)
    if wants_stream(call.request.headers.get("accept", "")):
        _kept(call.parts.store.read(events.standing, run_id)[1], after)
        return EventStream(call, run_id, after, call.query.lease)
    rows, status, pruned = call.parts.store.read(_look, run_id, after, call.query.limit)
    _kept(pruned, after)
    marks = [cursors.seal(row[0]) for row in rows]
    shown = [json.loads(text) for text in _texts(call, run_id, rows, marks)]
    last = marks[-1] if marks else given
    return Reply({"events": shown, "next": last, "status": status})


def wants_stream(accept: str) -> bool:
    """Whether a client asks for a stream: it names one, or it does not say."""
    named = [part.partition(";")[0].strip().lower() for part in accept.split(",")]
    return MEDIA_TYPE in named or "application/json" not in named


def visible(call: Call, run_id: str) -> Any:
    """The row of a run that the caller may see.

    :raises Problem: 404 for one that is unknown or another's.
    """
    return call.owned(executions.get, run_id, "run", "list runs with `GET /v1/runs`")


def _kept(pruned: int, after: int) -> None:
    """Hold a cursor to what is still on record; without one, what is left is shown."""
    if 0 < after < pruned:
        raise Problem(
            410,
            "CURSOR_PRUNED",
            "events after this cursor were pruned from the record",
            hint="read the run itself, then follow it without a cursor",
        )


def _look(tx: Reading, run_id: str, after: int, count: int) -> tuple[tuple[Row, ...], str, int]:
    """What comes after an event, the run's status, and what was pruned of it, all in one moment."""
    return events.of_run(tx, run_id, after, count, SIZE), *events.standing(tx, run_id)


def _look_with(tx: Reading, who: Identity, *what: Any) -> tuple[tuple[Row, ...], str, int] | None:
    """As `_look`; `None` when the token that asked counts no more."""
    return _look(tx, *what) if still(tx, who) else None


class EventStream:
    """Server-sent events of one run from a cursor on; ends with the run, its lease or its token."""

    def __init__(
        self, call: Call, run_id: str, after: int, lease: float = LEASE, headers: Sequence[Any] = ()
    ) -> None:
        self._call = call
        self._run_id = run_id
        self._after = after
        self._lease = lease
        self._headers = list(headers)
        self._cursors = call.shared.cursors.of_run(run_id)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._call.shared.limits.stream(self._call.identity.principal):
            start: Message = {
                "type": "http.response.start",
                "status": 200,
                "headers": [
                    (b"content-type", b"text/event-stream; charset=utf-8"),
                    (b"cache-control", b"no-store"),
                    (b"x-accel-buffering", b"no"),
                    *self._headers,
                ],
            }
            await send(start)
            await send(_piece(b"retry: %d\n\n" % RETRY))
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_until_left, receive, tasks.cancel_scope)
                await self._follow(send)
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                tasks.cancel_scope.cancel()

    async def _follow(self, send: Send) -> None:
        store = self._call.parts.store
        ends = time.monotonic() + self._lease
        with store.watch(f"run:{self._run_id}") as watch:
            while True:
                found = store.read(_look_with, self._call.identity, self._run_id, self._after, PAGE)
                if found is None or 0 < self._after < found[2]:
                    return  # whoever comes back with the cursor is told
                rows, status, _ = found
                if rows:
                    await send(_piece(self._frames(rows)))
                    self._after = rows[-1][0]
                    del rows
                    await checkpoint()
                    continue
                if status in ENDED:
                    return
                left = ends - time.monotonic()
                if left <= 0:
                    await send(_piece(self._detached()))
                    return
                woken = False
                with anyio.move_on_after(min(left, ALIVE_EVERY)):
                    await watch.changed()
                    woken = True
                if not woken and ends - time.monotonic() > 0:
                    await send(_piece(b": alive\n\n"))

    def _frames(self, rows: tuple[Row, ...]) -> bytes:
        return _frames(self._call, self._run_id, rows, self._cursors)

    def _detached(self) -> bytes:
        data = {
            "executionId": self._run_id,
            "awaitReason": "detached",
            "awaitedAt": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "after": self._cursors.seal(self._after) if self._after else None,
        }
        return b"event: await\ndata: %s\n\n" % json.dumps(data, separators=(",", ":")).encode()


async def _until_left(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        await checkpoint()
    scope.cancel()


def _piece(body: bytes) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": True}


@lru_cache(maxsize=256)
def _name(text: str) -> str:
    """JSON text of a word that comes again and again."""
    return quoted(text)


def _texts(call: Call, run_id: str, rows: tuple[Row, ...], marks: list[str]) -> list[str]:
    """Each event as JSON text, without any secret that is known now; `marks` are their cursors."""
    run = quoted(run_id)
    texts = [_text(mark, run, *row) for mark, row in zip(marks, rows, strict=True)]
    redact = call.parts.configuration().redact
    joined = "\n".join(texts)
    if redact(joined) != joined:
        texts = [redact_json_text(text, redact) for text in texts]
    return texts


def _text(
    mark: str, run: str, id: int, type: str, actor: str, call_id: str | None, ts: float, data: str | None
) -> str:
    caller = "null" if call_id is None else quoted(call_id)
    return (
        f'{{"cursor":"{mark}","run_id":{run},"seq":{id},"type":{_name(type)},"ts":{ts!r},'
        f'"actor":{_name(actor)},"call_id":{caller},"data":{data or "null"}}}'
    )


def _frames(call: Call, run_id: str, rows: tuple[Row, ...], cursors: EventCursors) -> bytes:
    make = cursors.maker()
    marks = [make(row[0]) for row in rows]
    texts = _texts(call, run_id, rows, marks)
    return "".join(
        [
            f"id: {mark}\nevent: {row[1]}\ndata: {text}\n\n"
            for mark, row, text in zip(marks, rows, texts, strict=True)
        ]
    ).encode()
