"""The MCP server of a host: lists the governed tools and takes every call to the gate."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import anyio
from mcp import MCPError, types
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
from packhost.kinds.providing import Changed
from packhost.server.admission import Admission
from packhost.server.beside import Beside
from packhost.server.callers import Link, client_name, identify, is_modern, principal_of, relayed_key
from packhost.server.calling import Calling, Result
from packhost.server.catalog import EXPLAIN, STATUS, Catalog
from packhost.server.host import ServerHost
from packhost.server.inputs import Inputs, refusal_in
from packhost.server.listening import Listening
from packhost.server.own import explain, instructions, status
from packhost.server.prompts import Prompts
from packhost.server.resources import Resources, Subscriptions
from packhost.server.tasks import TaskParams, Tasks, UpdateParams, demand
from packhost.server.taskwire import EXTENSION
from packhost.server.wire import internal, refusal_of, refused

_log = logging.getLogger(__name__)
_NAME = "packhost"
_NOTIFY_TIMEOUT = 5.0
"""Seconds that one client may take to be told that the list has changed."""

_KEPT_PAGES: Final = 32
"""Pages of the list that are kept as they go out."""
_LISTS: Final[tuple[CacheableMethod, ...]] = (
    "tools/list",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "prompts/list",
)
_EVENTS: Final[dict[str, tuple[Any, str]]] = {
    "tools": (ToolsListChanged, "send_tool_list_changed"),
    "resource": (ResourceUpdated, "send_resource_updated"),
    "resources": (ResourcesListChanged, "send_resource_list_changed"),
    "prompts": (PromptsListChanged, "send_prompt_list_changed"),
}

Context = ServerRequestContext[Any, Any]


class GovernedServer(Server[Link]):
    """The server of one host, for any number of connections over any transport, at once."""

    def __init__(self, host: ServerHost) -> None:
        self.admission = Admission()
        self._host = host
        self._catalog = Catalog(host)
        self._calling = Calling(host, self._catalog, self.admission)
        self._inputs = Inputs(host)
        self._bus = InMemorySubscriptionBus()
        self._listen = self._listening(self._calling.tasks)
        self._open: dict[int, Link] = {}
        self._wire_lists: dict[tuple[str, int, str], HandlerResult] = {}
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
            on_call_tool=self._call_tool,  # type: ignore[arg-type]  # a task is an extension's own result
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

        if self._calling.tasks is not None:
            self._know_tasks(self._calling.tasks)

    def _listening(self, tasks: Tasks | None) -> ListenHandler:
        if tasks is None:
            return ListenHandler(self._bus)
        own = self._host.principal
        return Listening(self._bus, tasks, lambda ctx: (principal_of(ctx, own), client_name(ctx)))

    def _know_tasks(self, tasks: Tasks) -> None:
        handlers = (
            ("tasks/get", TaskParams, tasks.get),
            ("tasks/update", UpdateParams, tasks.update),
            ("tasks/cancel", TaskParams, tasks.cancel),
        )
        for method, model, handler in handlers:
            self.add_request_handler(method, model, partial(self._of_task, handler))
        self.extensions[EXTENSION] = {}

    async def _of_task(self, handler: Any, ctx: Context, params: Any) -> dict[str, Any]:
        demand(ctx)
        ways = self._calling.ways(ctx)
        try:
            found: dict[str, Any] = await handler(ctx, params, identify(ctx, self._host.principal), ways)
        except PackhostError as error:
            raise MCPError(types.INTERNAL_ERROR, f"{error.message}; {error.hint}") from None
        return found

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
        await self.announced(Changed("tools"))
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
        if ctx.method != "tools/list" or not ready or not (ctx.params or {}).keys() <= {"_meta", "cursor"}:
            return await call_next(ctx)
        key = (ctx.protocol_version, self._host.generation, str((ctx.params or {}).get("cursor", "")))
        result = self._wire_lists.get(key)
        if result is None:
            result = await call_next(ctx)
            self._wire_lists = {k: v for k, v in self._wire_lists.items() if k[1] == key[1]}
            if len(self._wire_lists) < _KEPT_PAGES:
                self._wire_lists[key] = result
        return result

    async def _list_tools(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return self._catalog.listed(params.cursor if params else None)

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
                calling = self._calling.call
                return await self._inputs.serve(ctx, params, params.name, calling, refusal_in, refused)
        except PackhostError as error:
            return refused(refusal_of(error))
        except MCPError:
            raise  # said in the protocol's own words
        except Exception:
            _log.exception("call failed")
            return refused(internal())


def build_server(host: ServerHost) -> GovernedServer:
    """The MCP server of a host; run it over as many connections as there are."""
    return GovernedServer(host)
