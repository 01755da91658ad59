"""Resources as MCP serves them: lists, readings through the gate, and who hears of changes."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final

import anyio
from mcp import types
from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import ListenHandler

from packhost.errors import PackhostError
from packhost.kinds.providing import READ, Provision
from packhost.server.beside import Beside, answer, marked, missing, page_of, refused
from packhost.server.callers import Link
from packhost.server.wire import refusal_of

_log = logging.getLogger(__name__)
MAX_SUBSCRIPTIONS: Final = 1024
"""Resources that one client hears of."""
_PATIENCE: Final = 5.0
"""Seconds that a pack may take to be told that somebody hears of a resource, or nobody does any more."""

Context = ServerRequestContext[Any, Any]


class Resources:
    """The handlers of `resources/*`."""

    def __init__(self, beside: Beside) -> None:
        self._beside = beside

    async def list(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        """What there is to read."""
        entries, cursor = page_of(await self._allowed(ctx, "resources"), params.cursor if params else None)
        found = [types.Resource.model_validate(one.data) for one in entries]
        return types.ListResourcesResult(resources=found, next_cursor=cursor)

    async def templates(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        """What more there is to read, by URIs that follow a pattern."""
        entries, cursor = page_of(await self._allowed(ctx, "templates"), params.cursor if params else None)
        found = [types.ResourceTemplate.model_validate(one.data) for one in entries]
        return types.ListResourceTemplatesResult(resource_templates=found, next_cursor=cursor)

    async def _allowed(self, ctx: Context, what: str) -> Any:
        caller, may = self._beside.caller(ctx), self._beside.may
        return [
            one
            for one in await self._beside.listed(what)
            if may(caller, one.of.tools[READ], {"uri": one.key})
        ]

    async def read(
        self, ctx: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult | types.InputRequiredResult:
        """A reading, governed."""
        uri = str(params.uri)
        of = await self._beside.owner(uri)
        if of is None:
            raise missing("resource", uri, ctx)
        outcome = await self._beside.call(ctx, params, of.tools[READ], {"uri": uri})
        if isinstance(outcome, types.InputRequiredResult):
            return outcome
        found = answer(outcome, types.ReadResourceResult, ctx)
        for one in found.contents:
            if isinstance(one, types.TextResourceContents):
                one.text = marked(one.text, of)
        return found

    async def may_hear(self, ctx: Context, uri: str) -> Provision | None:
        """Whose a resource is, if this client may read it."""
        of = await self._beside.owner(uri)
        if of is None or not self._beside.may(self._beside.caller(ctx), of.tools[READ], {"uri": uri}):
            return None
        return of


class Subscriptions:
    """Who hears of which resources; each pack is asked for a resource once, however many hear of it."""

    def __init__(self, resources: Resources, beside: Beside, links: Mapping[int, Link]) -> None:
        self._resources = resources
        self._beside = beside
        self._links = links
        self._listening: dict[object, frozenset[str]] = {}
        self._asked: dict[str, Provision] = {}
        self._lock = anyio.Lock()

    async def subscribe(self, ctx: Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
        """Of the session-based era."""
        uri = str(params.uri)
        peer = ctx.lifespan_context.peer(ctx)
        if peer is None or await self._resources.may_hear(ctx, uri) is None:
            raise missing("resource", uri, ctx)
        if len(peer.hears) < MAX_SUBSCRIPTIONS:
            peer.hears.add(uri)
        try:
            await self.settle({uri})
        except PackhostError as error:
            peer.hears.discard(uri)
            raise refused(refusal_of(error), ctx) from None
        return types.EmptyResult()

    async def unsubscribe(self, ctx: Context, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        """Of the session-based era."""
        peer = ctx.lifespan_context.peer(ctx)
        if peer is not None:
            peer.hears.discard(str(params.uri))
            await self.settle()
        return types.EmptyResult()

    def listening(self, serve: ListenHandler) -> Any:
        """The handler of `subscriptions/listen`, which owns to no resource that the client may not read."""

        async def listen(
            ctx: Context, params: types.SubscriptionsListenRequestParams
        ) -> types.SubscriptionsListenResult:
            wanted = params.notifications.resource_subscriptions or []
            if not wanted:
                return await serve(ctx, params)
            heard = [
                uri for uri in wanted[:MAX_SUBSCRIPTIONS] if await self._resources.may_hear(ctx, str(uri))
            ]
            notes = params.notifications.model_copy(update={"resource_subscriptions": heard or None})
            token = object()
            self._listening[token] = frozenset(map(str, heard))
            try:
                await self.settle()
                return await serve(ctx, params.model_copy(update={"notifications": notes}))
            finally:
                del self._listening[token]
                with anyio.CancelScope(shield=True), anyio.move_on_after(_PATIENCE):
                    await self.settle()

        return listen

    async def settle(self, wanted: Iterable[str] = (), *, anew: bool = False) -> None:
        """Ask packs for what somebody hears of and did not before, and let go of the rest.

        `anew` asks again for everything, once packs have changed. What fails of `wanted` is raised.
        """
        async with self._lock:
            now = self._wanted()
            for uri in [uri for uri in self._asked if anew or uri not in now]:
                of = self._asked.pop(uri)
                if not anew:
                    await self._quietly(of.provider.unsubscribe, uri)
            for uri in now - self._asked.keys():
                of_now = await self._beside.owner(uri)
                if of_now is None:
                    continue
                self._asked[uri] = of_now
                try:
                    with anyio.fail_after(_PATIENCE):
                        await of_now.provider.subscribe(uri)
                except PackhostError:
                    self._asked.pop(uri)
                    if uri in wanted:
                        raise
                except Exception:
                    _log.warning("`%s` cannot be heard of", uri, exc_info=True)

    def _wanted(self) -> set[str]:
        heard = {uri for uris in self._listening.values() for uri in uris}
        for link in self._links.values():
            for peer in (link.own, *link.sessions.values()):
                heard |= peer.hears
        return heard

    async def _quietly(self, ask: Any, uri: str) -> None:
        try:
            with anyio.move_on_after(_PATIENCE):
                await ask(uri)
        except Exception:
            _log.debug("`%s` could not be let go of", uri, exc_info=True)
