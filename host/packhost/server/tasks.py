"""The extension `io.modelcontextprotocol/tasks`: a call that takes long or waits for a person is a task.

A client that declares the extension gets the task's id, and asks how it stands. The call goes on in the
host's own task group. It is on record before the client hears of it; a host that comes after makes the call
again under its own key, which does nothing twice. A task is nobody's but of the principal and the client that
made the call. What it asks is on record like every question: whichever channel answers first counts.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, Literal, cast

import anyio
from mcp import MCPError, types
from mcp.server.context import ServerRequestContext
from mcp.server.request_state import AESGCMRequestStateCodec, InvalidRequestState
from pydantic import Field, ValidationError

from packhost.errors import StoreUnavailable
from packhost.gate.types import Caller, CallRequest, Completed, Deferred, Outcome, Refusal
from packhost.kinds.base import Tool
from packhost.names import new_id
from packhost.server.admission import Admission
from packhost.server.asking import Round, put_question
from packhost.server.board import Board
from packhost.server.callers import headers_of, is_modern
from packhost.server.catalog import Catalog
from packhost.server.channel import Channel
from packhost.server.errand import Errand, put_on_record
from packhost.server.host import ServerHost
from packhost.server.inflight import Asked
from packhost.server.reaching import Ways
from packhost.server.taskwire import EXTENSION, TTL, detail_of, shown
from packhost.server.wire import completed, fault_of, refused
from packhost.store.ops.tasks import NewTask, Status, TaskRow

_log = logging.getLogger(__name__)
Context = ServerRequestContext[Any, Any]
TaskMode = Literal["required", "optional"]
PATIENCE: Final = 45.0
"""Seconds in which a call may end before it becomes a task: a little less than clients wait for an answer."""
SOON: Final = 0.3
"""The same for a tool that says of itself that it takes long: only what is refused at once comes sooner."""
MAX_TASKS: Final = 256
"""Calls of this host that may be tasks at once."""
MAX_TASKS_EACH: Final = 64
"""Of them, those of one client."""
KEPT: Final = 60.0
"""Seconds that the outcome of a task is held in memory beside its record."""


class TaskParams(types.RequestParams):
    """What names a task."""

    task_id: str


class UpdateParams(TaskParams):
    """Answers to what a task asks, by key."""

    input_responses: dict[str, Any] = Field(default_factory=dict)


def declared(ctx: Context) -> bool:
    """Whether the client of a request knows tasks."""
    capabilities = ctx.session.client_capabilities
    return is_modern(ctx) and EXTENSION in ((capabilities and capabilities.extensions) or {})


def mode_of(tool: Tool | None) -> TaskMode | None:
    """What a tool says of itself: that it only goes as a task, that it takes long, or nothing."""
    if tool is None:
        return None
    said = tool.spec.config.get("task")
    if said in ("required", "optional"):
        return cast(TaskMode, said)
    return "optional" if tool.spec.config.get("nested") is True else None


def demand(ctx: Context) -> None:
    """Raise the protocol's own error where a client does not declare tasks."""
    if not declared(ctx):
        raise MCPError(
            types.MISSING_REQUIRED_CLIENT_CAPABILITY,
            f"this needs a client that declares the extension {EXTENSION}",
            {"requiredCapabilities": {"extensions": {EXTENSION: {}}}},
        )


class Tasks:
    """The tasks of one host."""

    def __init__(self, host: ServerHost, board: Board, catalog: Catalog, admission: Admission) -> None:
        self._host = host
        self._board = board
        self._catalog = catalog
        self._admission = admission
        self._codec = AESGCMRequestStateCodec(list(host.state_keys))
        self._errands: dict[str, Errand] = {}
        self._listeners: dict[object, Any] = {}

    # a call

    async def call(
        self, request: CallRequest, ways: Ways, round: Round, early: Asked | None, channel: Channel
    ) -> types.CallToolResult | types.InputRequiredResult | dict[str, Any]:
        """Make a call; its result if that comes soon, else the task that it is from now on."""
        if request.idem_key is None:
            request = replace(request, idem_key=new_id("task"), fresh=True)
        else:
            row = self._board.of_key(request.idem_key)
            if row is not None and _owner(row) == _owner(request.caller):
                return shown(row)
        errand = self._start(request, ways, early)
        if errand is None:
            return refused(_too_many())
        errand.channel, errand.rounds = channel, not round.last
        patience = PATIENCE if mode_of(self._catalog.tool(request.tool)) is None else SOON
        try:
            with anyio.move_on_after(patience):
                await errand.settled()
        except anyio.get_cancelled_exc_class():
            errand.drop()
            raise
        finally:
            errand.channel = None
        if isinstance(errand.outcome, Deferred):
            prompt = errand.outcome.prompt
            return put_question(prompt, ways, round.next(prompt.approval_id))
        if errand.outcome is not None:
            return self._result(request, errand.outcome, channel.limit)
        return await self._keep(errand, request)

    def _start(
        self, request: CallRequest, ways: Ways, early: Asked | None = None, id: str | None = None
    ) -> Errand | None:
        caller = request.caller
        owner = _owner(caller)
        going = [errand for errand in self._errands.values() if errand.outcome is None]
        own = sum((errand.by, errand.client) == owner for errand in going)
        if id is None and (len(going) >= MAX_TASKS or own >= MAX_TASKS_EACH):
            return None
        errand = Errand(id or new_id("task"), *owner, ways, self._board)
        errand.early, errand.kept, errand.changed = early, id is not None, self._changed
        self._errands[errand.id] = errand
        request = replace(request, progress=errand.report, log=errand.log)
        self._host.tasks.start_soon(self._go, errand, request)
        return errand

    async def _keep(self, errand: Errand, request: CallRequest) -> types.CallToolResult | dict[str, Any]:
        errand.kept = True
        self._host.tasks.start_soon(self._heed, errand)
        listed = self._catalog.tool(request.tool)
        tool = request.tool if listed is None else listed.id.canonical  # names towards clients may change
        sealed = self._codec.seal(json.dumps([tool, dict(request.arguments)]).encode())
        new = NewTask(
            id=errand.id,
            principal=errand.by,
            client=errand.client,
            session_id=request.caller.session_id,
            tool=tool,
            idem_key=request.idem_key or "",
            request=sealed,
            owner=self._board.owner,
            ttl=TTL,
            asked=errand.asked(),
        )
        errand.told = new.asked.keys()
        try:
            row = await self._board.keep(new)
        except StoreUnavailable as error:
            errand.drop()
            return refused(
                Refusal(
                    "EFFECTS_UNKNOWN",
                    f"`{request.tool}` was begun, and could not be written down as a task: {error.message}",
                    "look at what it did before you call it again",
                )
            )
        return shown(row, errand)

    async def _go(self, errand: Errand, request: CallRequest) -> None:
        try:
            await errand.run(self._host.gate, request, self._admission)
            if errand.kept and errand.outcome is not None:
                await self._end(errand, request, errand.outcome)
                await anyio.sleep(KEPT)
        finally:
            if errand.heeding is not None:
                errand.heeding.cancel()
            self._errands.pop(errand.id, None)

    async def _end(self, errand: Errand, request: CallRequest, outcome: Outcome) -> None:
        cancelled = errand.status == "cancelled"
        fault = fault_of(outcome) if isinstance(outcome, Refusal) and not cancelled else None
        result = None if cancelled else fault or _dumped(self._result(request, outcome))
        status: Status = "cancelled" if cancelled else "completed" if fault is None else "failed"
        try:
            await self._board.finish(errand.id, status, result)
        except StoreUnavailable as error:
            _log.warning("what came of task %s could not be written down: %s", errand.id, error)
        errand.changed(errand)

    async def _heed(self, errand: Errand) -> None:
        """Do what the client has told another host for this task."""
        errand.heeding = anyio.CancelScope()
        with errand.heeding, self._board.watch(errand.id) as watch:
            while errand.outcome is None:
                await watch.changed()
                row = self._board.find(errand.id)
                told = {} if row is None else row.wish
                errand.dismiss(tuple(told.get("dismissed", ())))
                if told.get("cancel"):
                    await errand.cancel()

    def _result(
        self, request: CallRequest, outcome: Outcome, limit: int | None = None
    ) -> types.CallToolResult:
        if isinstance(outcome, Completed):
            return completed(outcome, self._catalog.tool(request.tool), limit)
        if isinstance(outcome, Deferred):
            outcome = Refusal("APPROVAL_REQUIRED", outcome.prompt.wish, "then make the identical call again")
        return refused(outcome)

    def _changed(self, errand: Errand) -> None:
        if errand.kept and errand.outcome is None:
            asked = errand.asked()
            if asked.keys() != errand.told:  # how far it is, others learn from this host alone
                errand.told = asked.keys()
                self._board.show(errand.id, asked)
        for told in list(self._listeners.values()):
            told(errand.id)

    # a task

    async def get(self, ctx: Context, params: TaskParams, caller: Caller, ways: Ways) -> dict[str, Any]:
        """How a task stands."""
        row = self._own(ctx, params.task_id, caller)
        errand = await self._mine(row, caller, ways)
        if errand is None:
            row = self._own(ctx, params.task_id, caller)
        return {"resultType": "complete", **self._detail(row, errand)}

    def _detail(self, row: TaskRow, errand: Errand | None) -> dict[str, Any]:
        if errand is None or errand.outcome is None or errand.status == "cancelled":
            return detail_of(row, errand)
        # its end is being written down just now
        fault = fault_of(errand.outcome) if isinstance(errand.outcome, Refusal) else None
        if fault is not None:
            return detail_of(row, errand, error=fault)
        return detail_of(row, errand, _dumped(self._result(_bare(row), errand.outcome)))

    async def update(self, ctx: Context, params: UpdateParams, caller: Caller, ways: Ways) -> dict[str, Any]:
        """Take answers to what a task asks; those to what it does not ask count for nothing."""
        row = self._own(ctx, params.task_id, caller)
        errand = await self._mine(row, caller, ways)
        for key, given in params.input_responses.items():
            try:
                result = types.ElicitResult.model_validate(given)
            except ValidationError:
                continue
            if errand is not None:
                await errand.answer(key, result)
            elif key in row.asked and (_linked(row.asked[key]) or ways.takes(key)):
                await self._answer_afar(row, key, result, caller.principal, ways)
        return {}

    async def cancel(self, ctx: Context, params: TaskParams, caller: Caller, ways: Ways) -> dict[str, Any]:
        """End a task; of one that has ended nothing changes."""
        row = self._own(ctx, params.task_id, caller)
        errand = self._errands.get(row.id)
        if errand is not None:
            await errand.cancel()
        elif row.status == "working" and self._board.lives(row.owner):
            await self._board.wish(row.id, cancel=True)
        elif row.status == "working":
            await self._board.end_for(row, "cancelled")
        return {}

    def detail(self, id: str, principal: str, client: str) -> dict[str, Any] | None:
        """How a task stands, for its own client alone."""
        row = self._board.find(id)
        if row is None or _owner(row) != (principal, client):
            return None
        return self._detail(row, self._errands.get(id))

    def listen(self, told: Any) -> Any:
        """Be told the id of each task that changes; call what comes back to end that."""
        token = object()
        self._listeners[token] = told
        return lambda: self._listeners.pop(token, None)

    def _own(self, ctx: Context, id: str, caller: Caller) -> TaskRow:
        headers = headers_of(ctx)
        if headers is not None and headers.get("mcp-name") != id:
            raise MCPError(types.HEADER_MISMATCH, "the header Mcp-Name is not the task's id")
        row = self._board.find(id)
        if row is None or _owner(row) != _owner(caller):
            raise MCPError(types.INVALID_PARAMS, "there is no such task, or no more")
        return row

    async def _mine(self, row: TaskRow, caller: Caller, ways: Ways) -> Errand | None:
        """The task where it goes on here; one of a host that is gone is taken over."""
        errand = self._errands.get(row.id)
        if errand is not None:
            errand.ways = ways
            return errand
        if row.status != "working" or (row.owner != self._board.owner and self._board.lives(row.owner)):
            return None
        if not await self._board.take_over(row):
            return self._errands.get(row.id)
        try:
            tool, arguments = json.loads(self._codec.unseal(row.request))
        except InvalidRequestState:
            await self._board.finish(row.id, "failed", None)
            return None
        caller = replace(caller, session_id=row.session_id)
        found = self._start(CallRequest(tool, arguments, caller, idem_key=row.idem_key), ways, id=row.id)
        if found is not None:
            self._host.tasks.start_soon(self._heed, found)
        return found

    async def _answer_afar(
        self, row: TaskRow, key: str, result: types.ElicitResult, by: str, ways: Ways
    ) -> None:
        """Put an answer on record for the host that has the call; it finds it there."""
        if await put_on_record(self._board, key, row.asked[key], result, by, ways):
            await self._board.wish(row.id, dismissed=(key,))


def _owner(of: TaskRow | Caller) -> tuple[str, str]:
    return of.principal, of.client


def _linked(asked: Mapping[str, Any]) -> bool:
    """Whether a question sent the person to a page, so that an answer decides nothing."""
    params = asked.get("params")
    return isinstance(params, Mapping) and params.get("mode") == "url"


def _bare(row: TaskRow) -> CallRequest:
    return CallRequest(row.tool, {}, Caller(row.principal, row.client, row.session_id))


def _dumped(result: types.CallToolResult) -> dict[str, Any]:
    dumped: dict[str, Any] = result.model_dump(mode="json", by_alias=True, exclude_none=True)
    return {"resultType": "complete", **dumped}


def _too_many() -> Refusal:
    return Refusal(
        "LIMIT_EXCEEDED",
        "too many tasks are going on at this host, or of this client",
        hint="wait until some have ended, or cancel one that is not needed",
        data={"retry_after": 5},
    )
