"""The client: what it asks, what it makes of answers, and how it follows a run through thick and thin."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import pytest

from packhost.client import ApiError, AsyncClient, Client, ConnectionLost, Detached, Event, exchange
from packhost.client.aio import AsyncClient as Aio
from packhost.client.sync import Client as Sync
from packhost.http import events
from packhost.http.api import ENDPOINTS
from packhost.http.problems import Problem

pytestmark = pytest.mark.anyio
PATIENCE = 30
LOOP = {"messages": [{"role": "user", "content": "go"}], "loop": True}
Asked = Callable[..., Any]


def public(kind: type) -> set[str]:
    return {name for name in vars(kind) if not name.startswith("_")}


def test_both_clients_offer_the_same() -> None:
    assert public(Aio) == public(Sync)


class Either:
    """One of the two clients, asked in the same way."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def ask(self, name: str, *given: Any, **more: Any) -> Any:
        method = getattr(self._client, name)
        if isinstance(self._client, AsyncClient):
            found = method(*given, **more)
            return [one async for one in found] if hasattr(found, "__aiter__") else await found
        return await anyio.to_thread.run_sync(lambda: self._asked(method, given, more))

    @staticmethod
    def _asked(method: Any, given: Any, more: Any) -> Any:
        found = method(*given, **more)
        return list(found) if hasattr(found, "__next__") else found


@pytest.fixture(params=["sync", "async"])
def client_of(request: pytest.FixtureRequest) -> Any:
    """Opens a client of either kind."""

    @contextlib.asynccontextmanager
    async def open_one(served: Any, role: str = "caller", principal: str = "ci") -> AsyncIterator[Either]:
        token = await served.token(role, principal)
        if request.param == "async":
            async with AsyncClient(served.url, token) as client:
                yield Either(client)
        else:
            with Client(served.url, token) as client:
                yield Either(client)

    return open_one


async def test_a_run_is_started_asked_about_and_decided(served, client_of) -> None:
    async with client_of(served) as client, client_of(served, "operator", "ann") as operator:
        begun = await client.ask("start", LOOP["messages"], loop=True, wait=20)
        assert (begun.status, begun.success, begun.paused.await_reason) == (
            "paused",
            True,
            "approval_required",
        )
        (asked,) = await operator.ask("approvals", "pending")
        assert asked.id == begun.paused.approval_id
        assert (await operator.ask("decide", asked.id, "approve", "fine")).decided_by == "ann"
        done = await client.ask("finish", begun.run_id)
        assert (done.ended, done.status, done.result) == (True, "completed", "Done.")
        assert [run.id for run in await client.ask("runs")] == [begun.run_id]
        assert (await client.ask("run", begun.run_id))["status"] == "completed"
        with pytest.raises(ApiError) as caught:
            await operator.ask("resume", begun.run_id)
        assert (caught.value.status, caught.value.code) == (404, "NOT_FOUND")
        assert caught.value.hint


async def test_calls_of_the_callers_own_are_made_and_answered(served, client_of) -> None:
    tool = {"name": "look", "description": "Looks.", "parameters_schema": {"type": "object"}, "origin": "sdk"}
    async with client_of(served) as client:
        more = {"loop": True, "model_profile": "asks", "client_tools": [tool], "wait": 20}
        begun = await client.ask("start", LOOP["messages"], **more)
        outputs = {one["tool_call_id"]: {"result": one["parameters"]} for one in begun.paused.awaits}
        sent = {"tool_outputs": outputs, "checkpoint": begun.paused.checkpoint, "wait": 20}
        assert (await client.ask("resume", begun.run_id, **sent)).result == "Seen."


async def test_what_there_is_can_be_asked(served, client_of) -> None:
    async with client_of(served, "operator", "ann") as client:
        assert (await client.ask("status"))["identity"]["role"] == "operator"
        assert (await client.ask("tool", "workspace:read_file"))["permission"] == "read"
        assert (await client.ask("explain", "workspace:read_file", {"path": "a"}))["verdict"] == "allow"
        assert len((await client.ask("tools"))["tools"]) > 5
        assert len((await client.ask("packs"))["packs"]) == 2
        assert (await client.ask("audit_head"))["count"] > 0
        assert await client.ask("grants") == []
        begun = await client.ask("start", LOOP["messages"], loop=True, wait=20)
        assert (await client.ask("set_autonomy", begun.session_id, "observe"))["level"] == "observe"
        assert (await client.ask("pause", begun.run_id, "lunch")).status == "paused"
        assert (await client.ask("abort", begun.run_id)).status == "aborted"


async def test_every_page_of_a_list_is_read(records, client_of) -> None:
    made = [await records.run() for _ in range(120)]
    async with records.serve() as served, client_of(served) as client:
        assert [run.id for run in await client.ask("runs")] == sorted(made, reverse=True)


def short_leases(monkeypatch: pytest.MonkeyPatch, lease: float) -> None:
    real = events.EventStream.__init__

    def short(self: Any, call: Any, run_id: str, after: int, *_: Any, **__: Any) -> None:
        real(self, call, run_id, after, lease)

    monkeypatch.setattr(events.EventStream, "__init__", short)


async def write_slowly(records: Any, run: str, count: int) -> None:
    for n in range(count):
        await records.emit(run, n=n)
        await anyio.sleep(0.02)
    await records.end(run)


def numbers(found: list[Any]) -> list[int]:
    return [one.data["n"] for one in found if isinstance(one, Event) and one.type == "test.event"]


async def test_a_detached_run_is_followed_to_its_end(records, client_of, monkeypatch) -> None:
    short_leases(monkeypatch, 0.1)
    run = await records.run()
    async with records.serve() as served, client_of(served) as client:
        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(write_slowly, records, run, 30)
                found = await client.ask("follow", run)
    assert numbers(found) == list(range(30))
    assert [one for one in found if isinstance(one, Detached)]
    assert found[-1].terminal


async def test_one_who_wants_no_reconnection_is_left_at_the_detached_frame(
    records, client_of, monkeypatch
) -> None:
    short_leases(monkeypatch, 0.1)
    run = await records.run()
    async with records.serve() as served, client_of(served) as client:
        with anyio.fail_after(PATIENCE):
            found = await client.ask("follow", run, auto_reconnect=False)
            last = found[-1]
            assert isinstance(last, Detached)
            await records.end(run)
            rest = await client.ask("follow", run, after=last.after, auto_reconnect=False)
            assert [one.type for one in rest] == ["run.completed"]


class Cutting:
    """Breaks each stream off after a few pieces, in the middle of the line, as a bad network does."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self.cut = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        pieces = 0

        async def cutting(message: Any) -> None:
            nonlocal pieces
            pieces += message["type"] == "http.response.body"
            if scope["path"].endswith("/events") and pieces == 5:
                self.cut += 1
                await send({**message, "body": message["body"][: len(message["body"]) // 2]})
                raise ConnectionResetError("cut")
            await send(message)

        with contextlib.suppress(BaseExceptionGroup):
            await self._app(scope, receive, cutting)


async def test_a_stream_that_breaks_in_the_middle_is_taken_up_and_nothing_is_lost_or_told_twice(
    records, client_of, monkeypatch
) -> None:
    monkeypatch.setattr(events, "RETRY", 20)
    run = await records.run()
    wrapped: list[Cutting] = []

    def wrap(app: Any) -> Cutting:
        wrapped.append(Cutting(app))
        return wrapped[-1]

    async with records.serve(wrap=wrap) as served, client_of(served) as client:
        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(write_slowly, records, run, 30)
                found = await client.ask("follow", run)
    assert numbers(found) == list(range(30))
    assert wrapped[0].cut > 1


async def test_a_stream_that_breaks_is_an_error_for_one_who_wants_no_reconnection(records, client_of) -> None:
    run = await records.run()
    async with records.serve(wrap=Cutting) as served, client_of(served) as client:
        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(write_slowly, records, run, 10)
                with pytest.raises(ConnectionLost):
                    await client.ask("follow", run, auto_reconnect=False)


async def test_following_a_run_from_its_last_event_ends_at_once(records, client_of) -> None:
    run = await records.run()
    await records.end(run)
    async with records.serve() as served, client_of(served) as client:
        with anyio.fail_after(PATIENCE):
            *_, last = await client.ask("follow", run)
            assert await client.ask("follow", run, after=last.cursor) == []


async def test_a_refusal_is_no_reason_to_come_back(records, client_of) -> None:
    async with records.serve() as served, client_of(served) as client:
        with pytest.raises(ApiError) as caught:
            await client.ask("follow", "run_none")
    assert caught.value.status == 404


async def test_a_host_that_is_gone_is_told_after_a_few_tries(client_of, records, monkeypatch) -> None:
    monkeypatch.setattr(exchange, "BACK_AFTER", 0.01)
    async with records.serve() as served:
        opened = client_of(served)
        client = await opened.__aenter__()
    with pytest.raises(ConnectionLost, match="cannot be reached"):
        await client.ask("start", LOOP["messages"])
    with pytest.raises(ConnectionLost):
        await client.ask("follow", "run_1", patience=0)
    await opened.__aexit__(None, None, None)


ASKED: dict[str, tuple[Any, ...]] = {
    "start": ([],),
    "result": ("r",),
    "follow": ("r",),
    "events": ("r",),
    "finish": ("r",),
    "run": ("r",),
    "runs": (),
    "pause": ("r",),
    "resume": ("r",),
    "abort": ("r",),
    "set_autonomy": ("s", "guarded"),
    "approvals": (),
    "approval": ("a",),
    "decide": ("a", "approve"),
    "questions": (),
    "question": ("q",),
    "answer_question": ("q", "decline"),
    "grants": (),
    "revoke_grant": ("g",),
    "tools": (),
    "tool": ("t",),
    "packs": (),
    "explain": ("t", {}),
    "status": (),
    "audit_head": (),
}
"""Each method of the clients, and what it is called with."""


async def test_every_endpoint_has_a_method_in_both_clients(client_of, records) -> None:
    asked: set[tuple[str, str]] = set()

    def refusing(app: Any) -> Any:
        async def wrapped(scope: Any, receive: Any, send: Any) -> None:
            asked.add((scope["method"], scope["path"]))
            await Problem(404, "NOT_FOUND", "nothing is here").response(scope["path"])(scope, receive, send)

        return wrapped

    assert {*ASKED, "close"} == public(Aio)
    async with records.serve(wrap=refusing) as served, client_of(served) as client:
        for name, given in ASKED.items():
            with pytest.raises(ApiError):
                await client.ask(name, *given)
    for endpoint in ENDPOINTS:
        path = re.compile("/v1" + re.sub(r"\{\w+\}", "[^/]+", endpoint.path))
        assert any(method == endpoint.method and path.fullmatch(one) for method, one in asked), endpoint.path
