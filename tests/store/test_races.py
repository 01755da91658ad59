"""Many who want the same run at once: one has it, the others are told so."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from postgres_server import STORES

from packhost.errors import Conflict
from packhost.store.audit import verify_chain
from packhost.store.base import Reading, Store
from packhost.store.ops import approvals, calls, executions
from packhost.store.rows import ApprovalAnswer

pytestmark = pytest.mark.anyio
Make = Callable[..., Any]
RUNS = 60
CONTENDERS = 4

CONTENDER = """
import asyncio, json, sys
from packhost.errors import Conflict
from packhost.store.address import parse_address
from packhost.store.ops import executions
from packhost.store.postgres import PostgresStore

async def main():
    store = PostgresStore(parse_address(sys.argv[1], "ws"))
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    won, lost = [], []

    async def claim(run):
        try:
            await store.write(executions.claim, run, sys.argv[2], 60.0, 0)
            won.append(run)
        except Conflict as conflict:
            lost.append(conflict.code)

    await asyncio.gather(*(claim(run) for run in json.loads(sys.argv[3])))
    print(json.dumps([won, lost]), flush=True)
    await store.close()

asyncio.run(main())
"""


def owners(tx: Reading) -> dict[str, tuple[str, int]]:
    return {
        row[0]: (row[1], row[2])
        for row in tx.execute("SELECT id, owner, epoch FROM executions WHERE status='running'").fetchall()
    }


async def test_of_many_tasks_that_want_a_run_one_has_it(store: Store, new_run: Make) -> None:
    runs = [new_run() for _ in range(RUNS)]
    for run in runs:
        await store.write(executions.create, run)
    said: Counter[str] = Counter()

    async def claim(run: str, owner: str) -> None:
        try:
            await store.write(executions.claim, run, owner, 60.0, 0)
            said["won"] += 1
        except Conflict as conflict:
            said[conflict.code] += 1

    async with anyio.create_task_group() as tasks:
        for owner in range(CONTENDERS):
            for run in runs:
                tasks.start_soon(claim, run.id, f"host-{owner}")
    assert said == {"won": RUNS, "CONTINUATION_IN_PROGRESS": RUNS * (CONTENDERS - 1)}
    assert {epoch for _, epoch in store.read(owners).values()} == {1}
    assert store.read(verify_chain).ok


@pytest.mark.slow
@pytest.mark.parametrize("setting", STORES[1:], indirect=True)
async def test_of_many_processes_that_want_a_run_one_has_it(
    store: Store, setting: str, new_run: Make
) -> None:
    runs = [new_run() for _ in range(RUNS)]
    for run in runs:
        await store.write(executions.create, run)
    listed = json.dumps([run.id for run in runs])
    contenders = [
        subprocess.Popen(
            [sys.executable, "-c", CONTENDER, setting, f"host-{number}", listed],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(CONTENDERS)
    ]
    for one in contenders:
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n"
    for one in contenders:
        assert one.stdin is not None
        one.stdin.write("\n")
        one.stdin.flush()
    results = [json.loads(one.communicate(timeout=60)[0]) for one in contenders]
    held = store.read(owners)
    for number, (won, lost) in enumerate(results):
        assert len(won) + len(lost) == RUNS
        assert all(held[run] == (f"host-{number}", 1) for run in won)
        assert set(lost) <= {"CONTINUATION_IN_PROGRESS"}
    assert sum(len(won) for won, _ in results) == RUNS
    assert store.read(verify_chain).ok


async def test_answers_that_cross_under_load_leave_one_decision(
    store: Store, new_approval: Make, new_call: Make
) -> None:
    asked = [new_approval(binding=f"{number:064}") for number in range(30)]
    for one in asked:
        await store.write(approvals.request, one)
    decided: Counter[str] = Counter()
    loaded = anyio.Event()

    async def load() -> None:
        while not loaded.is_set():
            call = new_call()
            await store.write(calls.begin, call)
            await store.write(calls.end, call.id, "ok", None, "1", finish_execution=True)

    async def decide(id: str, verdict: Any, by: str) -> None:
        try:
            await store.write(approvals.answer, id, ApprovalAnswer(verdict, by, "cli"))
            decided[id] += 1
        except Conflict:
            decided["late"] += 1

    async with anyio.create_task_group() as loads:
        for _ in range(16):
            loads.start_soon(load)
        async with anyio.create_task_group() as tasks:
            for one in asked:
                for verdict, by in (("approve", "ann"), ("deny", "ben"), ("approve", "cat")):
                    tasks.start_soon(decide, one.id, verdict, by)
        loaded.set()
    assert decided == {**dict.fromkeys((one.id for one in asked), 1), "late": 60}
    assert store.read(verify_chain).ok
