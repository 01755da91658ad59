"""What is kept of tasks, for whichever host a client asks: see `tasks`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import anyio

from packhost.errors import Conflict, NotFound
from packhost.server.afar import Decide, Give
from packhost.store.base import Store, Watch
from packhost.store.ops import approvals, replicas, tasks
from packhost.store.ops.tasks import NewTask, Status, TaskRow


class Board:
    """The tasks of a workspace, and the records of what they ask."""

    def __init__(self, store: Store, owner: str, decide: Decide, give: Give) -> None:
        self.owner = owner
        self.decide = decide
        self.give = give
        self._store = store

    async def keep(self, new: NewTask) -> TaskRow:
        """Have a task on record; the one that was made for the same key if there is one.

        Raises `StoreUnavailable`.
        """
        return await self._store.write(tasks.create, new)

    def find(self, id: str) -> TaskRow | None:
        """A task; `None` where there is none, or no more."""
        return self._store.read(tasks.find, id)

    def of_key(self, key: str) -> TaskRow | None:
        """The task of a call's own key."""
        return self._store.read(tasks.by_key, key)

    def show(self, id: str, asked: Mapping[str, Any]) -> None:
        """Let other hosts know what a task of this one waits for."""
        self._store.post(tasks.show, id, self.owner, asked)

    async def finish(self, id: str, status: Status, result: Mapping[str, Any] | None) -> None:
        """Keep what came of a task of this host."""
        text = None if result is None else json.dumps(result, separators=(",", ":"))
        await self._store.write(tasks.finish, id, self.owner, status, text)

    async def end_for(self, row: TaskRow, status: Status) -> None:
        """End a task whose host is gone."""
        await self._store.write(tasks.finish, row.id, row.owner, status, None)

    async def take_over(self, row: TaskRow) -> bool:
        """Take a task of a host that is gone; whether nobody else did."""
        return await self._store.write(tasks.take_over, row.id, row.owner, self.owner)

    async def wish(self, id: str, *, cancel: bool = False, dismissed: tuple[str, ...] = ()) -> None:
        """Tell the host that has a task what its client wants."""
        await self._store.write(tasks.wish, id, cancel=cancel, dismissed=dismissed)

    def watch(self, id: str) -> Watch:
        """Wait for what another host is told for a task."""
        return self._store.watch(f"task:{id}")

    def lives(self, owner: str) -> bool:
        """Whether a host, as far as is known, still has what it took."""
        now = self._store.now()
        return any(row.id == owner and row.lease_until > now for row in self._store.read(replicas.listing))

    async def withdraw(self, approval_id: str, by: str) -> None:
        """Nobody waits for an answer any more."""
        with suppress(Conflict, NotFound):
            await self._store.write(approvals.cancel, approval_id, by, "its task was cancelled")

    async def decided(self, approval_id: str, timeout: float) -> bool:
        """Wait until a question is decided; whether it was within `timeout` seconds."""
        with anyio.move_on_after(timeout), self._store.watch(f"approval:{approval_id}") as watch:
            while self._store.read(approvals.get, approval_id).status == "pending":
                await watch.changed()
            return True
        return False
