"""Calls that become tasks, over each transport that carries the stateless era."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar, Literal

import anyio
import pytest
from mcp import MCPError
from mcp import types as t
from mcp.client.extension import ClientExtension, NotificationBinding, ResultClaim
from pydantic import ConfigDict

from packhost.errors import Conflict
from packhost.server.board import Board
from packhost.server.taskwire import EXTENSION
from packhost.store.ops import tasks as kept
from packhost.store.sqlite import SqliteStore

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["stdio", "http"])
def transport(request: pytest.FixtureRequest) -> str:
    """Each transport that carries the era in which there are tasks."""
    return str(request.param)


DONE = ("completed", "failed", "cancelled")


class Row:
    """What deciding gives back."""

    status = "approved"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Any]:
    opened = SqliteStore(tmp_path / "store.db", "ws")
    yield opened
    await opened.close()


@pytest.fixture
def served(serve: Any, store: Any, transport: str) -> Any:
    """A server that knows tasks, kept in a real store."""

    @asynccontextmanager
    async def serving(owner: str = "host_1") -> AsyncIterator[Any]:
        def prepare(host: Any) -> None:
            async def decide(id: str, verdict: str, *, by: str, channel: str, end_user: bool = False) -> Row:
                if host.gate.approvals[id]["status"] != "pending":
                    raise Conflict("it is decided", status=host.gate.approvals[id]["status"])
                host.gate.decide(id, verdict, by)
                return Row()

            async def give(id: str, action: str, content: Any, *, by: str, channel: str) -> None:
                raise Conflict("it is answered", status="accepted")

            host.board = Board(store, owner, decide, give)

        async with serve(transport, "modern", prepare=prepare) as made:
            yield made

    return serving


class Anything(t.Result):
    """Whatever a result holds."""

    model_config = ConfigDict(extra="allow")


class Made(Anything):
    """A call that became a task."""

    result_type: Literal["task"] = "task"


class Request(t.Request[Any, str]):
    """A request of the extension."""

    name_param: ClassVar[str | None] = "taskId"


class Told(t.NotificationParams):
    """What a stream says of a task."""

    model_config = ConfigDict(extra="allow")


class Knows(ClientExtension):
    """Says that the client knows tasks, and takes their shapes."""

    identifier = EXTENSION

    def __init__(self) -> None:
        self.told: list[Told] = []

    def notifications(self) -> Sequence[NotificationBinding[Any]]:
        async def tell(params: Told) -> None:
            self.told.append(params)

        return (NotificationBinding(method="notifications/tasks", params_type=Told, handler=tell),)

    def claims(self) -> Sequence[ResultClaim[Any]]:
        async def resolve(*_: Any) -> Any:
            raise AssertionError("taken as it is")

        return (ResultClaim(result_type="task", model=Made, resolve=resolve),)


class Wire:
    """A client that speaks of tasks."""

    def __init__(self, client: Any, extension: Knows) -> None:
        self.session = client.session
        self.told = extension.told

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        found = await self.session.send_request(Request(method=method, params=params), Anything)
        return dict(found.model_dump(mode="json", by_alias=True, exclude_none=True))

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        found = await self.session.call_tool(tool, arguments, allow_claimed=True, allow_input_required=True)
        return dict(found.model_dump(mode="json", by_alias=True, exclude_none=True))

    async def task(self, tool: str, **arguments: Any) -> str:
        """The id of the task that a call becomes."""
        found = await self.call(tool, **arguments)
        assert found["resultType"] == "task", found
        return str(found["taskId"])

    async def until(self, id: str, *statuses: str) -> dict[str, Any]:
        """How the task stands once it is in one of these."""
        with anyio.fail_after(10):
            while (found := await self.ask("tasks/get", taskId=id))["status"] not in statuses:
                await anyio.sleep(0.02)
        return found

    async def asks(self, id: str) -> tuple[str, dict[str, Any]]:
        """The one question that a task asks."""
        (asked,) = (await self.until(id, "input_required"))["inputRequests"].items()
        return asked

    async def listen(self, ids: list[str]) -> None:
        """Listen to tasks."""
        params = {"notifications": {"taskIds": ids}}
        request = t.Request[Any, str](method="subscriptions/listen", params=params)
        await self.session.send_request(request, Anything)

    async def answer(self, id: str, key: str, action: str, **content: Any) -> None:
        given = {"action": action, **({"content": content} if content else {})}
        await self.ask("tasks/update", taskId=id, inputResponses={key: given})


Connected = Callable[..., Any]


@pytest.fixture
def connected() -> Connected:
    """Connects a client; `knows` tasks, and has a dialog, unless told otherwise."""

    @asynccontextmanager
    async def connect(
        served: Any, *, knows: bool = True, form: bool = True, name: str = "probe"
    ) -> AsyncIterator[Wire]:
        extension = Knows()
        options: dict[str, Any] = {"extensions": [extension]} if knows else {}
        options["client_info"] = t.Implementation(name=name, version="1")
        async with served.client("accept" if form else None, **options) as client:
            yield Wire(client, extension)

    return connect


async def test_a_turn_that_asks_is_a_task_and_goes_on_with_the_answer(
    served: Any, connected: Connected
) -> None:
    async with served() as made, connected(made) as wire:
        id = await wire.task("demo_turn", questions=2)
        key, asked = await wire.asks(id)
        assert asked["method"] == "elicitation/create"
        assert asked["params"]["message"] == "Run step0?"
        await wire.answer(id, key, "accept")
        with anyio.fail_after(10):
            while (await wire.asks(id))[0] == key:
                await anyio.sleep(0.02)
        other, _ = await wire.asks(id)
        await wire.answer(id, other, "decline")
        ended = await wire.until(id, *DONE)
        assert ended["status"] == "completed"
        assert ended["result"]["structuredContent"] == {"said": ["yes", "APPROVAL_DENIED"]}


async def test_a_call_that_ends_soon_is_answered_at_once(served: Any, connected: Connected) -> None:
    async with served() as made, connected(made) as wire:
        found = await wire.call("demo_add", numbers=[1, 2])
        assert found["structuredContent"] == {"sum": 3}
        assert found["resultType"] == "complete"


async def test_what_waits_for_a_person_is_a_task_and_the_answer_runs_it_once(
    served: Any, connected: Connected
) -> None:
    async with served() as made, connected(made) as wire:
        id = await wire.task("demo_turn", questions=1)
        key, _ = await wire.asks(id)
        await wire.answer(id, key, "accept")
        assert (await wire.until(id, *DONE))["result"]["structuredContent"] == {"said": ["yes"]}
        assert made.gate.ran == ["step0"]
        assert made.gate.approvals[key]["by"] == "tester"


async def test_closing_the_dialog_decides_nothing(served: Any, connected: Connected) -> None:
    async with served() as made, connected(made) as wire:
        id = await wire.task("demo_turn", questions=1)
        key, _ = await wire.asks(id)
        await wire.answer(id, key, "cancel")
        ended = await wire.until(id, *DONE)
        assert ended["status"] == "completed"
        assert ended["result"]["structuredContent"] == {"said": ["APPROVAL_REQUIRED"]}
        assert made.gate.approvals[key]["status"] == "pending"


async def test_a_decision_made_elsewhere_ends_the_task(served: Any, connected: Connected) -> None:
    async with served() as made, connected(made) as wire:
        id = await wire.task("demo_turn", questions=1)
        key, _ = await wire.asks(id)
        made.gate.decide(key, "approve", "somebody")
        assert (await wire.until(id, *DONE))["result"]["structuredContent"] == {"said": ["yes"]}
        await wire.answer(id, key, "decline")
        assert made.gate.approvals[key]["by"] == "somebody"


async def test_without_a_dialog_the_task_says_what_it_waits_for(served: Any, connected: Connected) -> None:
    async with served() as made, connected(made, form=False) as wire:
        id = await wire.task("demo_write")
        found = await wire.ask("tasks/get", taskId=id)
        assert found["status"] == "working"
        assert "packhost approvals approve apr_1" in found["statusMessage"]
        made.gate.decide("apr_1", "deny", "somebody")
        ended = await wire.until(id, *DONE)
        assert ended["result"]["_meta"]["packhost/refusal"]["code"] == "APPROVAL_DENIED"


async def test_what_a_call_wants_beforehand_is_asked_before_it_is_a_task(
    served: Any, connected: Connected
) -> None:
    async with served() as made, connected(made) as wire:
        found = await wire.call("demo_form")
        assert found["resultType"] == "input_required"
        assert found["inputRequests"]["approve"]["params"]["message"] == "Which seat?"


async def test_whoever_waits_for_a_call_is_asked_by_its_own_dialog_before_it_begins(
    served: Any, connected: Connected
) -> None:
    async with served() as made, connected(made) as wire:
        found = await wire.call("demo_write")
        assert found["resultType"] == "input_required"
        assert found["inputRequests"]["approve"]["params"]["message"] == "Run write?"
        accepted = {"approve": t.ElicitResult(action="accept", content={})}
        ended = await wire.session.call_tool(
            "demo_write", {}, input_responses=accepted, request_state=found["requestState"]
        )
        assert ended.content[0].text == "written"


async def test_what_no_dialog_can_answer_is_a_task_with_a_link(served: Any, connected: Connected) -> None:
    async with served() as made, connected(made) as wire:
        made.host.console = "http://127.0.0.1:8400"
        id = await wire.task("demo_write", operator=True)
        key, asked = await wire.asks(id)
        assert asked["params"]["mode"] == "url"
        assert asked["params"]["url"] == f"http://127.0.0.1:8400/console/approvals/{key}"
        await wire.answer(id, key, "accept")
        found = await wire.ask("tasks/get", taskId=id)
        assert (found["status"], made.gate.ran) == ("working", [])
        assert "to be decided at" in found["statusMessage"]
        made.gate.decide(key, "approve", "the console")
        assert (await wire.until(id, *DONE))["result"]["content"][0]["text"] == "written"


async def test_a_slow_call_becomes_a_task_when_its_time_is_over(
    served: Any, connected: Connected, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("packhost.server.tasks.PATIENCE", 0.05)
    async with served() as made, connected(made) as wire:
        id = await wire.task("demo_slow")
        assert (await wire.ask("tasks/get", taskId=id))["status"] == "working"
        made.gate.release.set()
        assert (await wire.until(id, *DONE))["result"]["content"][0]["text"] == "released"


async def test_what_the_host_itself_met_is_a_task_that_failed(
    served: Any, connected: Connected, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("packhost.server.tasks.PATIENCE", 0.05)
    async with served() as made, connected(made) as wire:

        async def breaks(*_: Any) -> None:
            await made.gate.release.wait()
            raise RuntimeError("boom")

        made.gate._slow = breaks
        id = await wire.task("demo_slow")
        made.gate.release.set()
        found = await wire.until(id, *DONE)
        assert (found["status"], found["error"]["code"]) == ("failed", -32603)
        assert found["error"]["data"]["packhost/refusal"]["code"] == "TOOL_FAILED"
        assert "boom" not in found["error"]["message"]
        assert "result" not in found
    async with served("host_2") as made, connected(made) as wire:
        assert (await wire.ask("tasks/get", taskId=id))["error"] == found["error"]


async def test_a_task_is_nobody_elses(served: Any, connected: Connected) -> None:
    async with served() as made, connected(made) as wire, connected(made, name="other") as other:
        id = await wire.task("demo_turn", questions=1)
        key, _ = await wire.asks(id)
        for method, more in (("get", {}), ("cancel", {}), ("update", {"inputResponses": {}})):
            with pytest.raises(MCPError) as refused:
                await other.ask(f"tasks/{method}", taskId=id, **more)
            assert refused.value.error.code == t.INVALID_PARAMS
        assert made.gate.approvals[key]["status"] == "pending"


async def test_a_client_that_knows_no_tasks_gets_none(served: Any, connected: Connected) -> None:
    async with served() as made, connected(made, knows=False) as wire:
        for method in ("get", "cancel", "update"):
            with pytest.raises(MCPError) as refused:
                await wire.ask(f"tasks/{method}", taskId="task_1")
            assert refused.value.error.code == t.MISSING_REQUIRED_CLIENT_CAPABILITY
            assert refused.value.error.data == {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
        assert (await wire.call("demo_turn", questions=0))["structuredContent"] == {"said": []}


async def test_a_tool_that_only_goes_as_a_task_says_so(served: Any, connected: Connected) -> None:
    async with served() as made, connected(made, knows=False) as wire:
        with pytest.raises(MCPError) as refused:
            await wire.call("demo_long")
        assert refused.value.error.code == t.MISSING_REQUIRED_CLIENT_CAPABILITY
        assert made.gate.requests == []


async def test_a_cancelled_task_ends_its_call_and_stays_cancelled(served: Any, connected: Connected) -> None:
    async with served() as made, connected(made) as wire:
        id = await wire.task("demo_turn", questions=1)
        await wire.asks(id)
        for _ in range(2):
            ack = await wire.ask("tasks/cancel", taskId=id)
            assert ack.keys() <= {"resultType", "_meta"}
            assert (await wire.until(id, *DONE))["status"] == "cancelled"
        with anyio.fail_after(5):
            await made.gate.cancelled.wait()
        with pytest.raises(MCPError):
            await wire.ask("tasks/cancel", taskId="task_none")


async def test_what_came_of_a_task_is_told_by_the_host_after(served: Any, connected: Connected) -> None:
    async with served("host_1") as made, connected(made) as wire:
        id = await wire.task("demo_turn", questions=1)
        key, _ = await wire.asks(id)
        await wire.answer(id, key, "accept")
        told = await wire.until(id, *DONE)
    async with served("host_2") as made, connected(made) as wire:
        again = await wire.ask("tasks/get", taskId=id)
        assert again["result"] == told["result"]
        assert made.gate.requests == []


async def test_a_host_that_comes_after_makes_the_call_again_under_its_own_key(
    served: Any, connected: Connected
) -> None:
    async with served("host_1") as made, connected(made) as wire:
        id = await wire.task("demo_turn", questions=1)
        await wire.asks(id)
        (first,) = made.gate.requests
    async with served("host_2") as made, connected(made) as wire:
        key, _ = await wire.asks(id)
        (second,) = made.gate.requests
        assert (second.idem_key, second.arguments, second.fresh) == (first.idem_key, {"questions": 1}, False)
        await wire.answer(id, key, "accept")
        assert (await wire.until(id, *DONE))["status"] == "completed"
        assert made.gate.ran == ["step0"]


async def test_an_answer_at_another_host_reaches_the_call(
    served: Any, connected: Connected, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Board, "lives", lambda *_: True)
    async with served("host_1") as first, served("host_2") as second:
        second.gate.approvals = first.gate.approvals
        async with connected(first) as here, connected(second) as there:
            id = await here.task("demo_turn", questions=1)
            key, _ = await there.asks(id)
            await there.answer(id, key, "accept")
            assert (await there.until(id, *DONE))["result"]["structuredContent"] == {"said": ["yes"]}
            other = await here.task("demo_turn", questions=1, number=2)
            await there.asks(other)
            await there.ask("tasks/cancel", taskId=other)
            assert (await there.until(other, *DONE))["status"] == "cancelled"
            third = await here.task("demo_turn", questions=1, number=3)
            key, _ = await there.asks(third)
            await there.answer(third, key, "cancel")
            ended = await there.until(third, *DONE)
            assert ended["result"]["structuredContent"] == {"said": ["APPROVAL_REQUIRED"]}


async def test_an_expired_task_is_no_more(
    served: Any, connected: Connected, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("packhost.server.tasks.TTL", 0.0)
    monkeypatch.setattr(kept, "KEPT_AFTER", 0.0)
    async with served() as made, connected(made) as wire:
        id = await wire.task("demo_turn", questions=1)
        key, _ = await wire.asks(id)
        await wire.answer(id, key, "accept")
        with pytest.raises(MCPError) as refused:
            await wire.until(id, "never")
        assert refused.value.error.code == t.INVALID_PARAMS


async def test_whoever_listens_to_a_task_is_told_how_it_stands(served: Any, connected: Connected) -> None:
    async with served() as made, connected(made) as wire:
        id = await wire.task("demo_turn", questions=1)
        key, _ = await wire.asks(id)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wire.listen, [id, "task_of_nobody"])
            with anyio.fail_after(10):
                while not wire.told:
                    await anyio.sleep(0.02)
                await wire.answer(id, key, "accept")
                while (last := wire.told[-1].model_extra or {})["status"] != "completed":
                    await anyio.sleep(0.02)
            tasks.cancel_scope.cancel()
        assert {(one.model_extra or {})["taskId"] for one in wire.told} == {id}
        assert last["result"]["structuredContent"] == {"said": ["yes"]}


@pytest.mark.parametrize("transport", ["http"])
async def test_another_name_in_the_header_is_refused(served: Any, connected: Connected) -> None:
    class Wrong(Request):
        name_param = "other"

    async with served() as made, connected(made) as wire:
        id = await wire.task("demo_turn", questions=1)
        request = Wrong(method="tasks/get", params={"taskId": id, "other": "task_2"})
        with pytest.raises(MCPError) as refused:
            await wire.session.send_request(request, Anything)
        assert refused.value.error.code == t.HEADER_MISMATCH
