"""This host among those that share a store: registered, renewed in time, or stopped before others take over.

The store's clock decides whose lease has passed. Beside it stands a local deadline, counted from before
each renewal was asked for, so that it never ends later than the lease does: past it nothing is started
here, whatever the store says or cannot say, until this host has registered again. Time that a stopped
process or a sleeping machine missed counts.
"""

from __future__ import annotations

import logging
import os
import platform
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

import anyio

from packhost.errors import PackhostError, StoreUnavailable
from packhost.store.base import Store
from packhost.store.ops import executions, replicas
from packhost.store.ops.replicas import NewReplica

log = logging.getLogger("packhost.replica")
LEASE = 60.0
"""Seconds for which a claim holds where one host alone has the store; renewed every third of it."""
SHARED_LEASE = 15.0
"""Seconds for which it holds where several do: so long a run waits at most for another host."""
_EARLY = 0.1
"""Of a lease, the part at its end in which nothing is started any more."""


def uptime() -> float:
    """Seconds that only grow and go on while the machine sleeps, where the system has such a clock."""
    boot: int | None = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot is None else time.clock_gettime(boot)


def replica(
    id: str, *, version: str = "", key_sha: str = "", settings_sha: str = "", serving: bool = True
) -> NewReplica:
    """This process as a replica."""
    return NewReplica(id, platform.node()[:200], os.getpid(), version, key_sha, settings_sha, serving)


class Held(Protocol):
    """What this host runs, as its membership needs it."""

    def holding(self) -> Collection[str]:
        """The runs that go on here."""

    def keep(self, among: Collection[str], held: Collection[str]) -> None:
        """Stop those of `among` that are no longer `held`."""

    def stop_all(self) -> None:
        """Stop every run where it is: another host may have it by now."""


class Membership:
    """The registration of this host; `shared`: others may have the same store at the same time.

    `settings` gives what stands for the accepted configuration, kept in the replica's row.
    """

    def __init__(
        self,
        store: Store,
        me: NewReplica,
        *,
        shared: bool,
        lease: float | None = None,
        settings: Callable[[], str] = str,
        clock: Callable[[], float] = uptime,
    ) -> None:
        self.id = me.id
        self.shared = shared
        self.lease = lease or (SHARED_LEASE if shared else LEASE)
        self._store = store
        self._me = me
        self._settings = settings
        self._clock = clock
        self._deadline = 0.0
        self._joined = False
        self.draining = False
        self._held: Held | None = None

    def check(self) -> None:
        """Raise `StoreUnavailable` where this host may start nothing now."""
        if self.shared and self._joined and self._clock() >= self._deadline:
            self._lose()
        if self._joined or not self.shared:
            return
        raise StoreUnavailable(
            "this host lost touch with the store for longer than its lease",
            hint="make the call again: it registers anew as soon as the store answers",
        )

    def admit(self) -> None:
        """`check`, for what would outlive this host: raises also once it is about to stop."""
        if self.draining:
            raise StoreUnavailable(
                "this host is stopping and starts no run any more",
                hint="make the call again: it goes to another host, or to the next one here",
            )
        self.check()

    async def join(self) -> None:
        """Register; raises `ConfigInvalid` when the others have another host key."""
        asked = self._clock()
        others = await self._store.write(replicas.join, self._new(), self.lease, shared=self.shared)
        self._standing(asked)
        if others:
            log.info("this host shares its store with %d more", len(others))

    def _new(self) -> NewReplica:
        me = self._me
        return replace(me, settings_sha=self._settings() or me.settings_sha)

    def _standing(self, asked: float) -> None:
        self._deadline = asked + self.lease * (1 - _EARLY)
        self._joined = True

    async def keep(self, held: Held) -> None:
        """Renew in time, and reap what others lost, for as long as this is not cancelled."""
        self._held = held
        async with anyio.create_task_group() as tasks:
            if self.shared:
                tasks.start_soon(self._watch)
            while True:
                await anyio.sleep(self.lease / 3)
                try:
                    await self._beat(held)
                except PackhostError as error:
                    log.warning("the lease of this host could not be renewed: %s", error.message)

    async def _beat(self, held: Held) -> None:
        if not self.shared:
            if held.holding():
                await self._store.write(executions.renew, self.id, self.lease)
            return
        asked, among = self._clock(), held.holding()
        still = None
        if self._joined:
            still = await self._store.write(replicas.renew, self.id, self.lease, self._settings())
        if still is None or not self._joined:
            self._lose()
            await self.join()
            log.warning("this host has registered again; what it ran goes on elsewhere or here")
        else:
            self._standing(asked)
            held.keep(among, still)
        await self.reap()

    async def _watch(self) -> None:
        while True:
            left = self._deadline - self._clock()
            if self._joined and left <= 0:
                self._lose()
            await anyio.sleep(min(max(left, 0.01), self.lease / 3) if self._joined else self.lease / 3)

    def _lose(self) -> None:
        if self._joined:
            self._joined = False
            log.warning("this host was out of touch for longer than its lease: its runs are stopped here")
            if self._held is not None:
                self._held.stop_all()

    async def tell(self) -> None:
        """Say in this host's row what it has accepted by now."""
        if self.shared:
            with suppress(StoreUnavailable):
                await self._store.write(replicas.renew, self.id, self.lease, self._settings())

    async def reap(self) -> None:
        """Take away what no live replica holds, a batch at a time."""
        while self._store.read(replicas.overdue):
            found = await self._store.write(replicas.reap, self.id)
            if found.runs:
                log.warning("runs of a lost host were taken away: %s", ", ".join(found.runs))
            if not found.more:
                return

    async def drain(self) -> None:
        """Say that this host takes up nothing new; what goes on goes on."""
        self.draining = True
        with suppress(StoreUnavailable):
            await self._store.write(replicas.drain, self.id)

    async def leave(self) -> None:
        """Hand over what is still held and take part no longer."""
        self.draining = True
        await self._store.write(replicas.leave, self.id, told=self.shared and self._me.serving)
