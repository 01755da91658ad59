"""Deliveries: written down with the event, then sent, by one host at a time, until they are taken.

Each endpoint has a task of its own, so that a slow one holds up no other, and none a call. What is sent, and
whether it was taken, is on record: a host that starts anew goes on where the one before stopped. A receiver
may get a delivery twice and never a changed one.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Any, Final

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from packhost.errors import PackhostError, StoreUnavailable
from packhost.kinds.egress import Limits, Outgoing, Resolve, exchange, system_resolve, taken_apart
from packhost.kinds.reply import FetchReply
from packhost.rules.scopes import Layer, NetworkScope
from packhost.store.base import Reading, Store
from packhost.store.ops import events, webhooks
from packhost.store.ops.webhooks import Delivery, Telling
from packhost.webhooks.signing import headers_of, key_of
from packhost.webhooks.telling import tellings
from packhost.workspace.hooks import WebhookSettings

_log = logging.getLogger(__name__)
DELAYS: Final = (5.0, 30.0, 120.0, 600.0, 1_800.0, 3_600.0, 10_800.0, 21_600.0, 43_200.0)
"""Seconds between two tries; after the last it is given up."""
LEASE: Final = 60.0
"""Seconds for which a host takes a delivery to itself."""
TIME: Final = 15.0
"""Seconds that one try may take."""
PATIENCE: Final = 10.0
AT_ONCE: Final = 4
"""Deliveries to one endpoint that are under way at once."""
NOTE: Final = 60.0
"""Seconds after which it is written down up to where was looked, though nothing was to be told."""
LOOK: Final = 5.0
"""Seconds after which the configuration is looked at again while nothing happens."""
_LONGEST_WAIT: Final = 3_600.0
_PAGE: Final = 200
_OLDEST: Final = 86_400.0
"""Seconds: of what is longer ago nobody is told any more."""
_REPLY: Final = 64 * 1024

Hooks = Callable[[], Mapping[str, WebhookSettings]]


class Webhooks:
    """Tells the endpoints of a workspace of what happens."""

    def __init__(
        self,
        store: Store,
        owner: str,
        hooks: Hooks,
        *,
        secret: Callable[[str], str],
        redact: Callable[[str], str],
        console: Callable[[], str | None],
        version: str,
        resolve: Resolve = system_resolve,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._store = store
        self._owner = owner
        self._hooks = hooks
        self._secret = secret
        self._redact = redact
        self._console = console
        self._agent = f"packhost/{version}"
        self._resolve = resolve
        self._chance = chance
        self._sending: dict[str, anyio.CancelScope] = {}
        self._seen: dict[str, int] = {}
        self._noted = 0.0

    async def run(self) -> None:
        """Look on and deliver for as long as the task lives."""
        with suppress(StoreUnavailable):
            await self._store.write(webhooks.let_go, self._owner)
        async with anyio.create_task_group() as tasks:
            with self._store.watch("events") as watch:
                while True:
                    hooks = self._hooks()
                    self._attend(tasks, hooks)
                    try:
                        await self.look(hooks)
                    except StoreUnavailable as error:
                        _log.debug("the record cannot be looked at now: %s", error)
                    with anyio.move_on_after(LOOK):
                        await watch.changed()

    def _attend(self, tasks: TaskGroup, hooks: Mapping[str, WebhookSettings]) -> None:
        for name in hooks.keys() - self._sending:
            scope = self._sending[name] = anyio.CancelScope()
            tasks.start_soon(self._serve, name, scope)
        for name in self._sending.keys() - hooks:
            self._sending.pop(name).cancel()

    async def look(self, hooks: Mapping[str, WebhookSettings]) -> None:
        """Write down what is to be told of what has happened by now."""
        while hooks:
            seen, found, more = self._store.read(self._due, hooks)
            new = seen.keys() - self._seen
            self._seen = seen
            # where nothing is to be told, that it was looked at need not be written with each event
            if found or new or self._store.now() - self._noted >= NOTE:
                await self._store.write(webhooks.advance, seen, found)
                self._noted = self._store.now()
            if not more:
                return

    def _due(
        self, tx: Reading, hooks: Mapping[str, WebhookSettings]
    ) -> tuple[dict[str, int], list[Telling], bool]:
        """Up to where each endpoint is looked after now, what it is to be told, and whether there is more."""
        before = {**webhooks.cursors(tx, hooks.keys() - self._seen), **self._seen}
        seen = {name: before[name] for name in hooks}
        page = events.page(tx, min(seen.values()), None, _PAGE)
        since = tx.now() - _OLDEST
        new = tuple(record for record in page if record.ts >= since)
        found = tellings(tx, new, hooks, seen, self._console(), self._redact)
        last = page[-1].id if page else 0
        return {name: max(last, id) for name, id in seen.items()}, found, len(page) == _PAGE

    async def _serve(self, name: str, scope: anyio.CancelScope) -> None:
        """Send what one endpoint is due, as long as it is wanted."""
        with scope, self._store.watch(webhooks.TOPIC) as watch:
            while True:
                try:
                    due = self._store.read(webhooks.next_due, name)
                    if due is not None and due <= self._store.now():
                        await self._send_due(name)
                        continue
                except StoreUnavailable as error:
                    _log.debug("deliveries to %s wait: %s", name, error)
                    due = self._store.now() + LOOK
                with anyio.move_on_after(None if due is None else max(0.01, due - self._store.now())):
                    await watch.changed()

    async def _send_due(self, name: str) -> None:
        taken = await self._store.write(webhooks.claim, name, self._owner, LEASE, AT_ONCE)
        async with anyio.create_task_group() as tasks:
            for delivery in taken:
                tasks.start_soon(self._deliver, name, delivery)

    async def _deliver(self, name: str, delivery: Delivery) -> None:
        hook = self._hooks().get(name)
        if hook is None:
            return  # its lease ends by itself
        status, said, again = await self._try(hook, delivery)
        with suppress(StoreUnavailable):  # its lease ends, and it is sent once more
            if not said:
                await self._store.write(webhooks.delivered, delivery.id, self._owner, status or 0)
                return
            said = self._redact(said)[:500]
            if again is None:
                _log.warning("delivery %s to webhook %s is given up: %s", delivery.id, name, said)
            await self._store.write(webhooks.failed, delivery.id, self._owner, status, said, again)

    async def _try(self, hook: WebhookSettings, delivery: Delivery) -> tuple[int | None, str, float | None]:
        """Send it once: what was answered, what is wrong with that, and when to try again."""
        try:
            with anyio.fail_after(TIME):
                reply = await self._post(hook, delivery)
        except TimeoutError:
            return None, f"it did not answer within {TIME:g} s", self._again(delivery)
        except PackhostError as error:
            said = f"{error.message}; {error.hint}" if error.hint else error.message
            return None, said, self._again(delivery)
        except Exception as error:  # whatever an endpoint brings about must not take the host down
            _log.exception("delivery %s could not be sent", delivery.id)
            return None, f"it could not be sent ({type(error).__name__})", self._again(delivery)
        if 200 <= reply.status < 300:
            return reply.status, "", None
        gone = reply.status == 410
        again = None if gone else self._again(delivery, _wait_asked(reply))
        return reply.status, f"it answered {reply.status}", again

    async def _post(self, hook: WebhookSettings, delivery: Delivery) -> FetchReply:
        key = await anyio.to_thread.run_sync(lambda: key_of(self._secret(hook.secret)))
        target, body = taken_apart(hook.url), delivery.body.encode()
        headers = {
            "content-type": "application/json",
            "user-agent": self._agent,
            **headers_of(delivery.id, self._store.now(), body, key),
        }
        scope = NetworkScope(target.host, target.port if hook.private else None)
        layers = (Layer("webhook", (scope,)),)
        limits = Limits(PATIENCE, _REPLY, redirects=0)
        request = Outgoing(target, "POST", headers, body)
        return await exchange(request, layers, limits, resolve=self._resolve)

    def _again(self, delivery: Delivery, asked: float = 0.0) -> float | None:
        """In how many seconds it is tried again; `None`: never."""
        if delivery.attempts >= len(DELAYS):
            return None
        # spread, so that an endpoint that comes back is not met by everything at once
        return max(asked, DELAYS[delivery.attempts] * (0.8 + 0.4 * self._chance()))


def _wait_asked(reply: FetchReply) -> float:
    """The seconds that a reply asks to wait, within bounds."""
    asked: Any = reply.headers.get("retry-after", "")
    if asked.isascii() and asked.isdigit():
        return min(float(asked), _LONGEST_WAIT)
    with suppress(ValueError, TypeError, OverflowError):
        at, date = parsedate_to_datetime(asked), reply.headers.get("date", "")
        return min(max(0.0, (at - parsedate_to_datetime(date)).total_seconds()), _LONGEST_WAIT)
    return 0.0
