"""Who looks on at a host that serves: telemetry and logs, where they are wanted, else nobody."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from packhost.gate.gate import Gate
from packhost.store.base import Store
from packhost.telemetry.setup import open_telemetry, wanted
from packhost.workspace.workspace import Workspace

if TYPE_CHECKING:
    from packhost.gate.observed import Observer
    from packhost.telemetry.export import Telemetry
    from packhost.telemetry.following import Follower, Sink
    from packhost.webhooks.delivering import Webhooks

_log = logging.getLogger(__name__)
_LOOK: Final = 2.0
"""Seconds between two looks whether anybody is to be told."""


@dataclass(slots=True)
class Watching:
    """The observers of a host's calls, and what its record is handed to; made by `watching`."""

    store: Store
    workspace: Workspace
    owner: str
    version: str
    observers: Sequence[Observer] = ()
    sinks: Sequence[Sink] = ()
    telemetry: Telemetry | None = None
    _follower: Follower | None = None

    def gate(self, **parts: Any) -> Gate:
        """A gate that is watched, or a plain one where nobody looks on."""
        if not self.observers:
            return Gate(**parts)
        from packhost.gate.observed import ObservedGate, together  # only for a host that somebody looks at

        return ObservedGate(observer=together(self.observers), **parts)

    def begin(self, tasks: TaskGroup) -> None:
        """Look on from now on."""
        if self.telemetry is not None:
            self.telemetry.announce()
            self.store.tell_commits(self.telemetry.instruments.commit)
        if self.sinks:
            from packhost.telemetry.following import Follower  # as above

            self._follower = Follower(self.store, self.sinks)
            tasks.start_soon(self._follower.follow)

    def begin_telling(self, tasks: TaskGroup, console: Callable[[], str | None]) -> None:
        """Tell the workspace's webhooks of what happens from now on."""
        tasks.start_soon(self._tell, console)

    async def _tell(self, console: Callable[[], str | None]) -> None:
        while True:
            if self.workspace.accepted.webhooks:
                try:
                    await self._webhooks(console).run()
                except ExceptionGroup:  # the host goes on, and so does what is to be told
                    _log.exception("webhooks cannot be told just now")
            await anyio.sleep(_LOOK)

    def _webhooks(self, console: Callable[[], str | None]) -> Webhooks:
        from packhost.webhooks.delivering import Webhooks  # only for a workspace that has some

        secrets = self.workspace.secrets
        return Webhooks(
            self.store,
            self.owner,
            lambda: self.workspace.accepted.webhooks,
            secret=secrets.resolve,
            redact=secrets.redact,
            console=console,
            version=self.version,
        )

    async def end(self) -> None:
        """Tell the rest, and send what is left to be sent."""
        if self._follower is not None:
            await self.store.flush()
            self._follower.catch_up()
        if self.telemetry is not None:
            self.store.tell_commits(None)
            await anyio.to_thread.run_sync(self.telemetry.close)


def watching(workspace: Workspace, store: Store, owner: str, version: str, *, serving: bool) -> Watching:
    """Whoever wants to look on at a host; at one that does not serve nobody does.

    Raises `ConfigInvalid` for telemetry that cannot be had.
    """
    settings = workspace.accepted.telemetry
    lines = any(getattr(handler, "lines", False) for handler in logging.getLogger().handlers)
    if not serving or not (lines or wanted(settings, os.environ)):
        return Watching(store, workspace, owner, version)
    observers: list[Observer] = []
    sinks: list[Sink] = []
    secret = workspace.secrets.resolve
    telemetry = open_telemetry(settings, os.environ, store=store, owner=owner, version=version, secret=secret)
    if telemetry is not None:
        observers.append(telemetry.observer)
        sinks.append(telemetry.sink)
    if lines:
        from packhost.telemetry.logs import EventSink, LogObserver  # as above

        observers.append(LogObserver())
        sinks.append(EventSink())
    return Watching(store, workspace, owner, version, observers, sinks, telemetry)
