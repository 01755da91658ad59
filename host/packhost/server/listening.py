"""`subscriptions/listen`, with tasks among what a client may listen to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import anyio
from mcp import types
from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import SUBSCRIPTION_ID_META_KEY, ListenHandler, SubscriptionBus
from pydantic import ConfigDict

from packhost.server.tasks import Tasks, declared

MAX_LISTENED = 256
"""Tasks that one stream may tell of."""
Context = ServerRequestContext[Any, Any]
Owner = Callable[[Context], tuple[str, str]]


class _Task(types.NotificationParams):
    model_config = ConfigDict(extra="allow")


class _TaskChanged(types.Notification[_Task, Literal["notifications/tasks"]]):
    method: Literal["notifications/tasks"] = "notifications/tasks"
    params: _Task


class _Session:
    """A session that says in its acknowledgement which tasks are told of."""

    def __init__(self, session: Any, ids: list[str]) -> None:
        self._session = session
        self._ids = ids
        self.acknowledged = anyio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    async def send_notification(self, notification: Any, related_request_id: Any = None) -> None:
        """Pass a notification on."""
        if isinstance(notification, types.SubscriptionsAcknowledgedNotification):
            told = notification.params.notifications.model_copy(update={"taskIds": self._ids})
            params = notification.params.model_copy(update={"notifications": told})
            notification = notification.model_copy(update={"params": params})
            await self._session.send_notification(notification, related_request_id)
            self.acknowledged.set()
            return
        await self._session.send_notification(notification, related_request_id)


class Listening(ListenHandler):
    """Tells each stream of what its client asked for: of lists, and of its own tasks."""

    def __init__(self, bus: SubscriptionBus, tasks: Tasks, owner: Owner) -> None:
        super().__init__(bus)
        self._tasks = tasks
        self._owner = owner

    async def __call__(
        self, ctx: Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """Serve one stream."""
        ids = self._own(ctx, params)
        if not ids:
            return await super().__call__(ctx, params)
        session = _Session(ctx.session, ids)
        async with anyio.create_task_group() as group:
            group.start_soon(self._tell, ctx, session, ids)
            result = await super().__call__(replace(ctx, session=session), params)  # type: ignore[arg-type]
            group.cancel_scope.cancel()
        return result

    def _own(self, ctx: Context, params: types.SubscriptionsListenRequestParams) -> list[str]:
        wanted = (params.notifications.model_extra or {}).get("taskIds")
        if not isinstance(wanted, list) or not declared(ctx):
            return []
        owner = self._owner(ctx)
        found = [id for id in wanted[:MAX_LISTENED] if isinstance(id, str)]
        return [id for id in found if self._tasks.detail(id, *owner) is not None]

    async def _tell(self, ctx: Context, session: _Session, ids: list[str]) -> None:
        owner, changed, news = self._owner(ctx), dict.fromkeys(ids), anyio.Event()

        def told(id: str) -> None:
            if id in ids:
                changed[id] = None
                news.set()

        stop = self._tasks.listen(told)
        try:
            await session.acknowledged.wait()
            while True:
                for id in list(changed):
                    del changed[id]
                    detail = self._tasks.detail(id, *owner)
                    if detail is not None:
                        meta = {SUBSCRIPTION_ID_META_KEY: ctx.request_id}
                        note = _TaskChanged(params=_Task(_meta=meta, **detail))
                        await session.send_notification(note, ctx.request_id)
                if not changed:
                    await news.wait()
                    news = anyio.Event()
        finally:
            stop()
