"""The MCP server of a host: lists the governed tools and takes every call to the gate."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final

import anyio
from mcp import types
from mcp.server import NotificationOptions, Server
from mcp.server.caching import CacheableMethod, CacheHint
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.models import InitializationOptions
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ToolsListChanged,
)

from packhost.errors import PackhostError
from packhost.gate.inline import names_secrets
from packhost.gate.types import CallRequest, Completed, Deferred, Outcome, Prompt, Refusal
from packhost.kinds.providing import Changed
from packhost.names import new_id
from packhost.rules.identities import secrets_refused
from packhost.server.admission import Admission
from packhost.server.asking import Round, choose, put, response, round_of, told_afar
from packhost.server.beside import Beside
from packhost.server.callers import (
    Link,
    can_ask,
    can_link,
    client_name,
    identify,
    identity_of,
    is_modern,
    principal_of,
    relayed_key,
)
from packhost.server.catalog import EXPLAIN, STATUS, Catalog
from packhost.server.channel import Channel
from packhost.server.demands import own_key, raised
from packhost.server.host import ServerHost
from packhost.server.inflight import Asked, Flights
from packhost.server.own import explain, instructions, status
from packhost.server.prompts import Prompts
from packhost.server.resources import Resources, Subscriptions
from packhost.server.wire import completed, internal, refusal_of, refused

_log = logging.getLogger(__name__)
_NAME = "packhost"
_NOTIFY_TIMEOUT = 5.0
"""Seconds that one client may take to be told that the list has changed."""

_LISTS: Final[tuple[CacheableMethod, ...]] = (
    "tools/list",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "prompts/list",
)
_EVENTS: Final[dict[str, tuple[Any, str]]] = {
    "resource": (ResourceUpdated, "send_resource_updated"),
    "resources": (ResourcesListChanged, "send_resource_list_changed"),
    "prompts": (PromptsListChanged, "send_prompt_list_changed"),
}

Context = ServerRequestContext[Any, Any]
Result = types.CallToolResult | types.InputRequiredResult


class GovernedServer(Server[Link]):
    """The server of one host, for any number of connections over any transport, at once."""

    def __init__(self, host: ServerHost) -> None:
        self.admission = Admission()
        self._host = host
        self._catalog = Catalog(host)
        self._flights = Flights(host)
        self._bus = InMemorySubscriptionBus()
        self._listen = ListenHandler(self._bus)
        self._open: dict[int, Link] = {}
        self._wire_lists: dict[tuple[str, int], HandlerResult] = {}
        beside = Beside(host, self.admission)
        resources, prompts = Resources(beside), Prompts(beside)
        self._subscriptions = Subscriptions(resources, beside, self._open)
        self._provided = False
        super().__init__(
            _NAME,
            version=host.version,
            lifespan=self._serve_link,
            get_tool_input_schema=self._catalog.schema,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=resources.list,
            on_list_resource_templates=resources.templates,
            on_read_resource=resources.read,
            on_subscribe_resource=self._subscriptions.subscribe,
            on_unsubscribe_resource=self._subscriptions.unsubscribe,
            on_list_prompts=prompts.list,
            on_get_prompt=prompts.get,
            on_completion=prompts.complete,
            on_subscriptions_listen=self._subscriptions.listening(self._listen),
            cache_hints=dict.fromkeys(_LISTS, CacheHint(ttl_ms=0, scope="private")),
        )
        security = RequestStateSecurity(
            keys=list(host.state_keys), ttl=host.approval_timeout + 60, bind_principal=self._bound_to
        )
        self._tracing = list(self.middleware)  # the SDK's own, of no use where nobody traces
        self.middleware[:] = [RequestStateBoundary(security, default_audience=_NAME), self._cached_list]
        self.add_request_handler("logging/setLevel", types.SetLevelRequestParams, self._set_level)
        self.add_notification_handler(
            "notifications/initialized", types.NotificationParams, self._initialized
        )

    def trace(self) -> None:
        """Make a span of each request, within the trace that its `_meta` names."""
        self.middleware[:0] = self._tracing

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """As the SDK makes them, with `listChanged` said: its HTTP manager asks for no options."""
        return super().create_initialization_options(
            notification_options
            or NotificationOptions(tools_changed=True, resources_changed=True, prompts_changed=True),
            experimental_capabilities,
            extensions,
        )

    @property
    def instructions(self) -> str:
        """What a client that connects now is told."""
        return instructions(self._host.consent())

    @instructions.setter
    def instructions(self, value: str | None) -> None:
        """Taken from the host at each connection; what the SDK sets at construction is left alone."""

    async def tools_changed(self) -> None:
        """Tell every client that the list of tools may have changed, and what packs have beside them."""
        await self._bus.publish(ToolsListChanged())
        await self._tell_all("send_tool_list_changed")
        before, self._provided = self._provided, bool(self._host.provisions)
        if before or self._provided:
            await self._subscriptions.settle(anew=True)
            await self.announced(Changed("resources"))
            await self.announced(Changed("prompts"))

    async def announced(self, change: Changed) -> None:
        """Tell every client of a change beside the tools; of a resource those that hear of it."""
        event, send = _EVENTS[change.what]
        if change.what == "resource":
            await self._bus.publish(ResourceUpdated(change.uri))
            await self._tell_all(send, change.uri)
        else:
            await self._bus.publish(event())
            await self._tell_all(send)

    async def _tell_all(self, send: str, uri: str | None = None) -> None:
        args = () if uri is None else (uri,)
        async with anyio.create_task_group() as tasks:
            for link in list(self._open.values()):
                for peer in (link.own, *link.sessions.values()):
                    if peer.outbox is not None and (uri is None or uri in peer.hears):
                        tasks.start_soon(self._tell, partial(getattr(peer.outbox, send), *args))

    def close_streams(self) -> None:
        """End every open stream of notifications in an orderly way."""
        self._listen.close()

    async def _tell(self, send: Any) -> None:
        try:
            with anyio.move_on_after(_NOTIFY_TIMEOUT):
                await send()
        except Exception:
            _log.debug("a client could not be told that the list has changed", exc_info=True)

    @asynccontextmanager
    async def _serve_link(self, _: Server[Link]) -> AsyncIterator[Link]:
        link = Link(self._host.state_keys[0])
        self._open[id(link)] = link
        try:
            yield link
        finally:
            del self._open[id(link)]
            if any(peer.hears for peer in (link.own, *link.sessions.values())):
                self._host.tasks.start_soon(self._subscriptions.settle)

    def _bound_to(self, ctx: Context) -> str:
        return f"{principal_of(ctx, self._host.principal)}\0{client_name(ctx)}"

    async def _initialized(self, ctx: Context, _: types.NotificationParams) -> None:
        peer = ctx.lifespan_context.peer(ctx)
        if peer is not None and not is_modern(ctx):
            peer.outbox = ctx.session

    async def _set_level(self, ctx: Context, params: types.SetLevelRequestParams) -> types.EmptyResult:
        peer = ctx.lifespan_context.peer(ctx)
        if peer is not None:
            peer.log_level = params.level
        return types.EmptyResult()

    async def _cached_list(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        # The SDK validates and dumps a list twice; hundreds of tools take it tens of milliseconds.
        ready = is_modern(ctx) or ctx.session.client_params is not None
        if ctx.method != "tools/list" or not ready or not (ctx.params or {}).keys() <= {"_meta"}:
            return await call_next(ctx)
        key = (ctx.protocol_version, self._host.generation)
        result = self._wire_lists.get(key)
        if result is None:
            result = await call_next(ctx)
            self._wire_lists = {k: v for k, v in self._wire_lists.items() if k[1] == key[1]}
            self._wire_lists[key] = result
        return result

    async def _list_tools(
        self, ctx: Context, _: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return self._catalog.listed()

    async def _call_tool(self, ctx: Context, params: types.CallToolRequestParams) -> Result:
        try:
            if params.name == STATUS:
                return await status(self._host, self._catalog, ctx, params)
            if params.name == EXPLAIN:
                return explain(self._host, ctx, params)
            if not self.admission.open:
                if relayed_key(ctx) is not None:
                    # once this host has ended, the relay that brought the call takes it to the next one
                    await anyio.sleep_forever()
                return refused(self.admission.refusal())
            with self.admission:
                return await self._govern(ctx, params)
        except PackhostError as error:
            return refused(refusal_of(error))
        except Exception:
            _log.exception("call failed")
            return refused(internal())

    async def _govern(self, ctx: Context, params: types.CallToolRequestParams) -> Result:
        caller = raised(ctx, identify(ctx, self._host.principal))
        if secrets_refused(identity_of(ctx), names_secrets(params.arguments)):
            return refused(
                Refusal(
                    "POLICY_DENIED",
                    "the token does not have the scope `secrets:read`, and a runtime tool names a secret",
                    "use a token that was made with `--scope secrets:read`",
                )
            )
        channel = Channel(ctx)
        round = round_of(params.request_state)
        if round.key is None and (key := own_key(ctx, caller) or relayed_key(ctx)) is not None:
            round = replace(round, key=key)
        result = response(params)
        tool = self._catalog.tool(params.name)
        progress = channel.report if channel.wanted else None
        request = CallRequest(
            params.name, params.arguments or {}, caller, progress, idem_key=round.key, log=channel.log
        )
        nested = tool is not None and (tool.spec.kind == "mcp" or tool.spec.config.get("nested") is True)
        outcome: Outcome | Prompt
        flight = None
        if nested and is_modern(ctx) and can_ask(ctx):
            if request.idem_key is None:  # by it another host finds the call, should the client go there
                round = replace(round, key=new_id("flt"))
                request = replace(request, idem_key=round.key)
            flight, outcome = await self._fly(request, round, result, channel)
        else:
            asker = choose(ctx, channel, round, result, by=caller.principal, hold=self._host.hold)
            outcome = await self._host.gate.call(request, asker)
        if isinstance(outcome, Deferred):
            outcome = outcome.prompt
        if isinstance(outcome, Prompt):
            after = round.next(outcome.approval_id, flight=flight, nested=outcome.nested)
            return put(outcome.text, after, outcome.form, outcome.url if can_link(ctx) else None)
        if isinstance(outcome, Completed):
            return completed(outcome, tool, channel.limit)
        return refused(outcome)

    async def _fly(
        self, request: CallRequest, round: Round, result: types.ElicitResult | None, channel: Channel
    ) -> tuple[str | None, Outcome | Prompt]:
        """Attend a call in flight: the one that asked, or a new one."""
        by = request.caller.principal
        asked = (round.subject, result) if round.subject is not None and result is not None else None
        flight = self._flights.find(round.flight) if round.flight is not None else None
        if flight is not None:
            if asked is not None:
                flight.answer(*asked)
        elif round.nested:
            return None, await self._afar(request, round, asked)
        else:
            # Nothing ran before its own approval, so a call that is gone is simply made again.
            flight = self._flights.start(request, by, early=asked)
        if flight is None:
            return None, Refusal(
                "LIMIT_EXCEEDED",
                "too many calls are in flight on this host, or of this client",
                hint="wait until some have ended, or abort a run that is not needed",
                data={"retry_after": 5},
            )
        return flight.id, await flight.attend(channel, last=round.last)

    async def _afar(self, request: CallRequest, round: Round, asked: Asked | None) -> Outcome | Prompt:
        """Attend a call that another host may have in flight; its outcome once it has ended."""
        afar, by = self._host.afar, request.caller.principal
        if afar is None or not afar.knows(round.key):
            return self._gone(round)
        told = None if asked is None else told_afar(*asked)
        found = await afar.attend(round.key, told, by, last=round.last, hold=self._host.hold)
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


def build_server(host: ServerHost) -> GovernedServer:
    """The MCP server of a host; run it over as many connections as there are."""
    return GovernedServer(host)
