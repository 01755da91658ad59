"""A call of a client: to the gate, with its way to a person; as a task where the client knows them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mcp import MCPError, UrlElicitationRequiredError, types
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession

from packhost.gate.inline import names_secrets
from packhost.gate.types import CallRequest, Completed, Deferred, Outcome, Prompt, Refusal
from packhost.kinds.base import Tool
from packhost.names import new_id
from packhost.rules.identities import secrets_refused
from packhost.server.admission import Admission
from packhost.server.asking import (
    ElicitAsker,
    Round,
    came_back,
    choose,
    put_question,
    round_of,
    told_afar,
)
from packhost.server.callers import identify, identity_of, is_modern, relayed_key
from packhost.server.catalog import Catalog
from packhost.server.channel import Channel
from packhost.server.demands import own_key, raised
from packhost.server.host import ServerHost
from packhost.server.inflight import Asked, Flights
from packhost.server.inputs import inputs_of, keyed
from packhost.server.reaching import Ways, ways_of
from packhost.server.tasks import Tasks, declared, demand, mode_of
from packhost.server.wire import completed, refused

_log = logging.getLogger(__name__)
Context = ServerRequestContext[Any, Any]
Came = tuple[types.ElicitResult | None, str | None]
Result = types.CallToolResult | types.InputRequiredResult | dict[str, Any]


class Calling:
    """Takes the calls of a server's clients."""

    def __init__(self, host: ServerHost, catalog: Catalog, admission: Admission) -> None:
        self._host = host
        self._catalog = catalog
        self._flights = Flights(host)
        self._followed: set[tuple[int, str]] = set()
        self.tasks = None if host.board is None else Tasks(host, host.board, catalog, admission)

    def ways(self, ctx: Context) -> Ways:
        """How the person behind a request is reached."""
        return ways_of(ctx, lambda: self._host.console)

    async def call(self, ctx: Context, params: types.CallToolRequestParams) -> Result:
        """One call. Raises `PackhostError`, and `MCPError` for what only the protocol can say."""
        ways, tool = self.ways(ctx), self._catalog.tool(params.name)
        caller = replace(raised(ctx, identify(ctx, self._host.principal)), attended=ways.any)
        if secrets_refused(identity_of(ctx), names_secrets(params.arguments)):
            return refused(_no_secrets())
        channel, round = Channel(ctx), round_of(params.request_state)
        if round.key is None and (key := own_key(ctx, caller) or relayed_key(ctx)) is not None:
            round = replace(round, key=key)
        result, opened = came_back(params, round)
        if round.subject is not None and not ways.takes(round.subject):
            result = None
        progress = channel.report if channel.wanted else None
        request = CallRequest(
            params.name,
            params.arguments or {},
            caller,
            progress,
            idem_key=keyed(round.key, inputs := inputs_of(params)),
            log=channel.log,
            inputs=inputs,
        )
        asked = (round.subject, result) if round.subject is not None and result is not None else None
        if self.tasks is not None:
            if mode_of(tool) == "required":
                demand(ctx)
            if declared(ctx):
                return await self.tasks.call(request, ways, round, asked, channel)
        if nested(tool) and is_modern(ctx) and ways.any:
            return await self._fly(request, round, asked, opened, channel, ways)
        if is_modern(ctx):
            return await self._rounds(ctx, request, round, (result, opened), channel, ways)
        return await self._at_once(ctx, request, channel, ways)

    def _answered(self, request: CallRequest, outcome: Outcome, channel: Channel) -> types.CallToolResult:
        if isinstance(outcome, Completed):
            return completed(outcome, self._catalog.tool(request.tool), channel.limit)
        assert isinstance(outcome, Refusal)
        return refused(outcome)

    # a client with a session: it is asked while its request stays open

    async def _at_once(
        self, ctx: Context, request: CallRequest, channel: Channel, ways: Ways
    ) -> types.CallToolResult:
        by, hold = request.caller.principal, self._host.hold
        follow = self._follower(ctx.session)
        asker = choose(ctx, channel, ways, Round(), (None, None), by=by, hold=hold, follow=follow)
        outcome = await self._host.gate.call(request, asker)
        opened = asker.opened if isinstance(asker, ElicitAsker) else None
        if opened is not None and isinstance(outcome, Refusal) and _waits_for(outcome, opened):
            # the client is told once it is decided, and makes the call again
            raise UrlElicitationRequiredError([opened], outcome.text)
        return self._answered(request, outcome, channel)

    def _follower(self, session: ServerSession) -> Callable[[Prompt], None]:
        def follow(prompt: Prompt) -> None:
            key = (id(session), prompt.approval_id)
            if self._host.board is not None and key not in self._followed:
                self._followed.add(key)
                self._host.tasks.start_soon(self._complete, session, prompt)

        return follow

    async def _complete(self, session: ServerSession, prompt: Prompt) -> None:
        """Tell the client that what it opened a page for is decided."""
        board = self._host.board
        try:
            left = max(0.0, prompt.expires_at - time.time())
            if board is not None and await board.decided(prompt.approval_id, left):
                await session.send_elicit_complete(prompt.approval_id)
        except (MCPError, OSError, RuntimeError) as error:
            _log.debug("a client could not be told that a question is decided: %s", error)
        finally:
            self._followed.discard((id(session), prompt.approval_id))

    # a client without one: it asks by itself, and makes the same call again

    async def _rounds(
        self, ctx: Context, request: CallRequest, round: Round, came: Came, channel: Channel, ways: Ways
    ) -> Result:
        by, hold = request.caller.principal, self._host.hold
        outcome = await self._host.gate.call(
            request, choose(ctx, channel, ways, round, came, by=by, hold=hold)
        )
        opened = isinstance(outcome, Deferred) and came[1] == outcome.prompt.approval_id
        return self._put(request, outcome, round, channel, ways, opened=opened)

    async def _fly(
        self,
        request: CallRequest,
        round: Round,
        asked: Asked | None,
        opened: str | None,
        channel: Channel,
        ways: Ways,
    ) -> Result:
        """Attend a call in flight: the one that asked, or a new one."""
        if request.idem_key is None:  # by it another host finds the call, should the client go there
            round = replace(round, key=new_id("flt"))
            request = replace(request, idem_key=round.key)
        flight = self._flights.find(round.flight) if round.flight is not None else None
        if flight is not None:
            if asked is not None:
                flight.answer(*asked)
            if opened is not None:
                flight.open(opened)
        elif round.nested:
            return self._put(request, await self._afar(request, round, asked, opened), round, channel, ways)
        else:
            # Nothing ran before its own approval, so a call that is gone is simply made again.
            flight = self._flights.start(request, request.caller.principal, early=asked)
        if flight is None:
            return refused(_too_many())
        outcome = await flight.attend(channel, ways, last=round.last)
        waits = isinstance(outcome, Prompt) and flight.opened(outcome.approval_id)
        return self._put(request, outcome, round, channel, ways, flight=flight.id, opened=waits)

    def _put(
        self,
        request: CallRequest,
        outcome: Outcome | Prompt,
        round: Round,
        channel: Channel,
        ways: Ways,
        *,
        flight: str | None = None,
        opened: bool = False,
    ) -> Result:
        if isinstance(outcome, Deferred):
            outcome = outcome.prompt
        if isinstance(outcome, Prompt):
            after = round.next(outcome.approval_id, flight=flight, nested=outcome.nested)
            return put_question(outcome, ways, after, opened=opened)
        return self._answered(request, outcome, channel)

    async def _afar(
        self, request: CallRequest, round: Round, asked: Asked | None, opened: str | None
    ) -> Outcome | Prompt:
        """Attend a call that another host may have in flight; its outcome once it has ended."""
        afar, by = self._host.afar, request.caller.principal
        if afar is None or not afar.knows(round.key):
            return self._gone(round)
        told = None if asked is None else told_afar(*asked)
        last = round.last or opened is not None
        found = await afar.attend(round.key, told, by, last=last, hold=self._host.hold)
        return found if found is not None else await self._host.gate.call(request, None)

    def _gone(self, round: Round) -> Refusal:
        run_id = self._host.run_of(round.subject) if round.subject is not None else None
        return Refusal(
            "NOT_FOUND",
            "the call that asked this is gone: the host was started anew or the call has ended meanwhile",
            hint=f'resume its run with agent-runtime_resume_workflow {{"run_id": "{run_id}"}}'
            if run_id
            else "look with packhost_status at what still waits, then make the call again",
            approval_id=round.subject,
            run_id=run_id,
        )


def nested(tool: Tool | None) -> bool:
    """Whether a tool may ask, or call others, from within its handler."""
    return tool is not None and (tool.spec.kind == "mcp" or tool.spec.config.get("nested") is True)


def _waits_for(outcome: Refusal, opened: types.ElicitRequestURLParams) -> bool:
    return outcome.code == "APPROVAL_REQUIRED" and outcome.approval_id == opened.elicitation_id


def _no_secrets() -> Refusal:
    return Refusal(
        "POLICY_DENIED",
        "the token does not have the scope `secrets:read`, and a runtime tool names a secret",
        "use a token that was made with `--scope secrets:read`",
    )


def _too_many() -> Refusal:
    return Refusal(
        "LIMIT_EXCEEDED",
        "too many calls are in flight on this host, or of this client",
        hint="wait until some have ended, or abort a run that is not needed",
        data={"retry_after": 5},
    )
