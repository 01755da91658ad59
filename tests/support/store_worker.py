"""A process that drives runs through a store until it is killed, and writes down what was acknowledged.

    python store_worker.py SETTING FOLDER NAME

In FOLDER it appends to `acks`, one line a fact, each after its acknowledgement: `C run` created, `I call run
step again` intent committed, `E call` the effect itself, `O call` its outcome committed, `F run` finished,
`P approval` asked, `D approval` decided. Of a run that was interrupted it goes on with the first step that
was not begun, and again with one whose call may be made again. `again` is 1 for such a call.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from pathlib import Path
from typing import Any

from packhost.errors import Conflict, StoreUnavailable
from packhost.names import new_id
from packhost.store.base import Store
from packhost.store.lock import HostLock
from packhost.store.opening import open_store
from packhost.store.ops import approvals, calls, executions, replicas
from packhost.store.rows import ApprovalAnswer, NewApproval, NewCall, NewExecution
from packhost.workspace.secrets import Secrets

LEASE = 1.0
STEPS = 5
AGENTS = 6


class Worker:
    def __init__(self, store: Store, folder: Path, name: str, shared: bool) -> None:
        self.store = store
        self.shared = shared
        self.me = f"{name}-{os.getpid()}"
        self.chance = random.Random(os.getpid())
        self.taken: set[str] = set()
        self._acks = os.open(folder / "acks", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def acknowledged(self, *facts: object) -> None:
        os.write(self._acks, (" ".join(map(str, facts)) + "\n").encode())

    async def join(self) -> None:
        new = replicas.NewReplica(self.me, "here", os.getpid(), "1", "k" * 64, "s")
        await self.store.write(replicas.join, new, LEASE, shared=self.shared)

    async def keep(self) -> None:
        while True:
            await asyncio.sleep(LEASE / 5)
            try:
                if await self.store.write(replicas.renew, self.me, LEASE) is None:
                    await self.join()
                if self.store.read(replicas.overdue):
                    await self.store.write(replicas.reap, self.me)
            except StoreUnavailable:
                continue

    async def agent(self) -> None:
        while True:
            try:
                await self.drive(*await self.one())
            except (Conflict, StoreUnavailable):
                await asyncio.sleep(0.02)  # overtaken, or the store is away: whoever holds it now goes on

    async def one(self) -> tuple[str, int]:
        """A run to go on with: one that was left, else a new one."""
        for run, epoch in self.store.read(replicas.resumable, ["work"]):
            if run not in self.taken:
                self.taken.add(run)
                try:
                    return run, await self.store.write(executions.claim, run, self.me, LEASE, epoch)
                finally:
                    self.taken.discard(run)
        run = new_id("run")
        await self.store.write(executions.create, NewExecution(run, "work", "s", "me", "test"))
        self.acknowledged("C", run)
        return run, await self.store.write(executions.claim, run, self.me, LEASE, 0, background=True)

    async def drive(self, run: str, epoch: int) -> None:
        for step in range(STEPS):
            again = step % 2
            made = [
                call
                for call in self.store.read(calls.of_execution, run)
                if json.loads(call.args_json)["step"] == step
            ]
            if not made or (again and made[-1].status == "error"):
                await self.call(run, epoch, step, again)
        await self.store.write(executions.finish, run, self.me, epoch, "completed", "done")
        self.acknowledged("F", run)

    async def call(self, run: str, epoch: int, step: int, again: int) -> None:
        id, extra = new_id("call"), {}
        if step == 2:
            extra = await self.approval(run)
        new = NewCall(
            id,
            run,
            self.me,
            epoch,
            "work:step",
            "1",
            json.dumps({"step": step}),
            "d",
            bool(again),
            "me",
            **extra,
        )
        await self.store.write(calls.begin, new)
        self.acknowledged("I", id, run, step, again)
        self.acknowledged("E", id)
        if self.chance.random() < 0.5:
            await asyncio.sleep(self.chance.random() * 0.004)
        await self.store.write(calls.end, id, "ok", None, "1")
        self.acknowledged("O", id)

    async def approval(self, run: str) -> dict[str, Any]:
        id, binding = new_id("apr"), run
        new = NewApproval(
            id, "s", "me", "test", "work:step", "1", binding, ("a:b",), "client", 1, "?", "{}", 4e9, run, run
        )
        found = await self.store.write(approvals.request, new)
        self.acknowledged("P", found.id)
        if found.status == "pending":
            await self.store.write(approvals.answer, found.id, ApprovalAnswer("approve", "me", "test"))
            self.acknowledged("D", found.id)
        return {"approval_id": found.id, "binding": binding}


async def main() -> None:
    setting, folder, name = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    if setting == "sqlite":
        lock = HostLock(folder)
        while not lock.acquire():
            await asyncio.sleep(0.01)
    store = open_store(setting, folder, "ws", Secrets({}, base=folder))
    worker = Worker(store, folder, name, setting != "sqlite")
    await worker.join()
    print("ready", flush=True)
    await asyncio.gather(worker.keep(), *(worker.agent() for _ in range(AGENTS)))


if __name__ == "__main__":
    asyncio.run(main())
