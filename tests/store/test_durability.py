"""What was acknowledged survives: a killed process, a torn write-ahead log."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from store_checker import check

from packhost.store.audit import verify_chain
from packhost.store.base import Reading, Store
from packhost.store.opening import open_store
from packhost.store.ops import calls, replicas
from packhost.store.sqlite import SqliteStore
from packhost.workspace.secrets import Secrets

pytestmark = pytest.mark.anyio
Make = Callable[..., Any]

SUPPORT = Path(__file__).parents[1] / "support"
IN_ONE_STORE = 20


def status_by_call(tx: Reading) -> dict[str, str]:
    return dict(tx.execute("SELECT id, status FROM calls").fetchall())


def flip(source: Path, target: Path) -> None:
    log = bytearray(source.read_bytes())
    log[len(log) * 3 // 4] ^= 0x40
    target.write_bytes(log)


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


def rounds(plain: int) -> int:
    """How often to kill: `PACKHOST_ROUNDS`, which `.ci/run` sets to 20 and a nightly run to 200."""
    return int(os.environ.get("PACKHOST_ROUNDS", plain))


def start(setting: str, folder: Path, name: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(SUPPORT / "store_worker.py"), setting, str(folder), name]
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)


def kill(worker: subprocess.Popen[str]) -> None:
    assert worker.poll() is None, "a worker ended by itself"
    worker.send_signal(signal.SIGKILL)
    worker.communicate()


async def settled(opened: Store, name: str, shared: bool) -> None:
    """Take away what killed processes held, as the next host does."""
    if shared:
        with anyio.fail_after(30):
            while opened.read(replicas.listing) or opened.read(replicas.overdue):
                await opened.write(replicas.reap, name)
                await anyio.sleep(0.02)
    else:
        new = replicas.NewReplica(name, "here", 1, "1", "k" * 64, "s")
        await opened.write(replicas.join, new, 60.0, shared=False)


async def killed_again_and_again(setting: str, folder: Path, count: int, processes: int) -> dict[str, int]:
    """Kill processes at random instants, while they go on with what the former ones left; what stands."""
    chance, shared, found = random.Random(11 + processes), setting != "sqlite", {}
    acks = folder / "acks"
    acks.touch()
    for number in range(count):
        workers = [start(setting, folder, f"w{number}-{index}") for index in range(processes)]
        try:
            before = acks.stat().st_size
            if chance.random() < 0.9:  # else they are killed as they start
                with anyio.fail_after(60):
                    while acks.stat().st_size == before:
                        await anyio.sleep(0.005)
            await anyio.sleep(chance.uniform(0.0, 0.5))
            if processes > 1 and chance.random() < 0.5:  # the other goes on alone for a while
                kill(workers.pop(chance.randrange(len(workers))))
                await anyio.sleep(chance.uniform(0.1, 1.6))
        finally:
            for worker in workers:
                kill(worker)
        opened = open_store(setting, folder, "ws", Secrets({}, base=folder))
        await settled(opened, f"checker-{number}", shared)
        found = check(opened, folder)
        await opened.close()
    return found


async def test_killed_processes_lose_nothing_acknowledged_and_double_no_effect(
    anyio_backend: str, tmp_path: Path
) -> None:
    found = await killed_again_and_again("sqlite", tmp_path, rounds(2), 1)
    assert found["intents"] > 10


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
async def test_killed_processes_that_follow_one_another_go_on_with_their_runs(
    anyio_backend: str, setting: str, tmp_path: Path, processes: int
) -> None:
    all_found: Counter[str] = Counter()
    left = rounds(5)
    while left > 0:  # each store for a while alone, since all that was acknowledged is looked for each time
        folder = tmp_path / str(left)
        folder.mkdir()
        own = setting if setting == "sqlite" else f"{setting}-{left}"
        all_found.update(await killed_again_and_again(own, folder, min(left, IN_ONE_STORE), processes))
        left -= IN_ONE_STORE
    print(setting.partition(":")[0], processes, dict(all_found))
    assert all_found["completed"] > 0
    assert all_found["unknown"] > 0
