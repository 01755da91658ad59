"""What was acknowledged survives: a killed process, a torn write-ahead log."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from packhost.store.audit import verify_chain
from packhost.store.base import Reading
from packhost.store.ops import calls, executions
from packhost.store.sqlite import SqliteStore

pytestmark = pytest.mark.anyio
Make = Callable[..., Any]

CHILD = """
import asyncio, os, sys
from pathlib import Path
from packhost.names import new_id
from packhost.store.ops import calls
from packhost.store.rows import NewCall, NewExecution
from packhost.store.sqlite import SqliteStore

async def caller(store):
    while True:
        run, id = new_id("run"), new_id("call")
        execution = NewExecution(run, "call", "s", "me", "code")
        call = NewCall(id, run, "child", 1, "a:b", "1", "{}", "d", False, "me", execution=execution)
        await store.write(calls.begin, call)
        os.write(1, f"begun {id}\\n".encode())
        await store.write(calls.end, id, "ok", None, "1", finish_execution=True)
        os.write(1, f"ended {id}\\n".encode())

async def main():
    store = SqliteStore(Path(sys.argv[1]), "ws")
    await asyncio.gather(*(caller(store) for _ in range(8)))

asyncio.run(main())
"""


def status_by_call(tx: Reading) -> dict[str, str]:
    return dict(tx.execute("SELECT id, status FROM calls").fetchall())


def write_until_killed(path: Path, acknowledgements: int) -> list[tuple[str, str]]:
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(path)], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        lines = [child.stdout.readline() for _ in range(acknowledgements)]
        child.kill()
        lines += [line for line in child.stdout if line.endswith("\n")]
    pairs = [line.split() for line in lines]
    return [(what, id) for what, id in pairs]


def flip(source: Path, target: Path) -> None:
    log = bytearray(source.read_bytes())
    log[len(log) * 3 // 4] ^= 0x40
    target.write_bytes(log)


async def test_what_was_acknowledged_survives_a_killed_writer(anyio_backend: str, tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    acknowledged: list[tuple[str, str]] = []
    for round in range(4):
        acknowledged += write_until_killed(path, 40 + 97 * round)
        store = SqliteStore(path, "ws")
        found = store.read(status_by_call)
        for what, id in acknowledged:
            assert found[id] == "ok" or (what == "begun" and found[id] in ("started", "unknown"))
        assert store.read(verify_chain).broken is None
        open_calls = {id for id, status in found.items() if status == "started"}
        taken = await store.write(executions.interrupt_orphans, f"host-{round}")
        assert len(taken) == len(open_calls)
        after = store.read(status_by_call)
        assert {id for id in open_calls if after[id] == "unknown"} == open_calls
        await store.close()


async def test_a_torn_log_reopens_as_a_committed_prefix(
    anyio_backend: str, tmp_path: Path, new_call: Make
) -> None:
    source = SqliteStore(tmp_path / "store.db", "ws")
    made = [new_call() for _ in range(60)]
    for call in made:
        await source.write(calls.begin, call)
    whole = (tmp_path / "store.db-wal").stat().st_size
    chance = random.Random(7)
    kept: list[tuple[int, int]] = []
    for number in range(24):
        cut = chance.randrange(whole + 1)
        copy = tmp_path / f"copy-{number}.db"
        shutil.copyfile(tmp_path / "store.db", copy)
        shutil.copyfile(tmp_path / "store.db-wal", f"{copy}-wal")
        os.truncate(f"{copy}-wal", cut)
        store = SqliteStore(copy, "ws")
        report = store.read(verify_chain)
        found = set(store.read(status_by_call))
        assert report.broken is None
        assert found == {call.id for call in made[: report.count]}
        assert await store.write(lambda tx: tx.emit("note", {})) == report.count + 1
        await store.close()
        kept.append((cut, report.count))
    await source.close()
    kept.sort()
    assert [count for _, count in kept] == sorted(count for _, count in kept)
    assert len({count for _, count in kept}) > 10


async def test_a_log_with_a_flipped_byte_loses_only_its_tail(
    anyio_backend: str, tmp_path: Path, new_call: Make
) -> None:
    source = SqliteStore(tmp_path / "store.db", "ws")
    made = [new_call() for _ in range(20)]
    for call in made:
        await source.write(calls.begin, call)
    copy = tmp_path / "copy.db"
    shutil.copyfile(tmp_path / "store.db", copy)
    flip(tmp_path / "store.db-wal", Path(f"{copy}-wal"))
    await source.close()
    store = SqliteStore(copy, "ws")
    report = store.read(verify_chain)
    assert report.broken is None
    assert 0 < report.count < 20
    assert set(store.read(status_by_call)) == {call.id for call in made[: report.count]}
    await store.close()
