"""A console of its own, beside a host that serves on stdio, or in place of one that is not there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread

from packhost.app.entry import RemoteControl, hold, reach, workspace_root
from packhost.app.mounting import console_of
from packhost.console.app import own_name
from packhost.control.base import Control
from packhost.errors import PackhostError, StoreUnavailable
from packhost.store.lock import HostLock
from packhost.transports.console import serve_console
from packhost.workspace.root import Root

_AGAIN: Final = 0.2
Opened = Callable[[Control, str], Awaitable[None]]
"""Told the control of the host and the console's origin once it can be reached."""


class _Through:
    """The control of whichever host holds the workspace now; this process becomes it once there is none."""

    def __init__(self, root: Root, lock: HostLock) -> None:
        self._root = root
        self._lock = lock
        self._control: Control | None = None
        self._found = anyio.Event()
        self.url = ""

    async def request(self, op: str, params: dict[str, Any]) -> Any:
        """Run one operation; raises `PackhostError` as the host did."""
        await self._found.wait()
        assert self._control is not None
        return await self._control.request(op, params)

    def _reached(self, control: Control) -> None:
        self._control = control
        self._found.set()

    async def keep(self) -> None:
        """Stay in touch with a host for as long as this runs, and let it know where the console is."""
        while True:
            try:
                if await reach(self._root, self._lock):
                    await self._hold()
                else:
                    control = RemoteControl(self._root.socket)
                    self._reached(control)
                    await control.request("console.opened", {"url": self.url})
            except StoreUnavailable as error:
                if self._control is None:
                    raise
                if error.data:  # it is there and does not answer: the pages say so
                    await anyio.sleep(_AGAIN * 5)
            await anyio.sleep(_AGAIN)

    async def _hold(self) -> None:
        try:
            async with hold(self._root, serving=True) as host:
                host.go_on()
                self._reached(host.control)
                with host.parts.consoles.shown_at(self.url):
                    await anyio.sleep_forever()
        finally:
            self._lock.release()


async def open_console(start: Path | None, port: int | None, opened: Opened) -> None:
    """Find the console of a workspace that runs, or serve one at `port` (0 for any) until told to stop.

    Without a `port` one that runs already is used, and this returns after `opened`.
    """
    with workspace_root(start) as root, HostLock(root.state) as lock:
        if port is None and (url := await _running(root)) is not None:
            await opened(RemoteControl(root.socket), url)
            return
        through = _Through(root, lock)
        console = console_of(through, root)
        async with anyio.create_task_group() as tasks:

            async def started(at: int) -> None:
                through.url = f"http://{own_name(root.hash)}:{at}"
                tasks.start_soon(through.keep)
                tasks.start_soon(anyio.to_thread.run_sync, console.warm)
                await opened(through, through.url)

            await serve_console(console, port or 0, started)
            tasks.cancel_scope.cancel()


async def _running(root: Root) -> str | None:
    """The console that the host of a workspace knows of."""
    try:
        status = await RemoteControl(root.socket).request("status", {})
    except PackhostError:
        return None
    found: str | None = status.get("console")
    return found
