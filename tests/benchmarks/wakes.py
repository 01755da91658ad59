"""How long it takes until what one host commits wakes another one, over one PostgreSQL store.

    python tests/benchmarks/wakes.py [--store URL] [--wakes N]

Two processes, as two hosts are: one commits an event, the other waits for its topic and then reads it. Timed
from before the change is handed to the store of the first until the second has read it. Without `--store` a
server is started for the time of the measurement.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

import anyio

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from postgres_server import own_server

from packhost.store.base import Reading, Store, Tx
from packhost.store.opening import open_store
from packhost.workspace.secrets import Secrets

TOPIC = "run:run_wakes"
GAP = 0.02
"""Seconds between two commits, as between two decisions of people at most."""


def opened(url: str) -> Store:
    """A host's own store."""
    folder = Path.cwd()
    return open_store(url, folder, "wakes", Secrets({}, base=folder))


def tell(tx: Tx, at: float) -> None:
    """An event that says when it was handed over."""
    tx.emit("wake", {"at": at}, actor="benchmark")
    tx.touch(TOPIC)


def last(tx: Reading) -> tuple[int, float]:
    """The last event: its number, and when it was handed over."""
    row = tx.execute("SELECT id, data_json FROM events ORDER BY id DESC LIMIT 1").fetchone()
    return (0, 0.0) if row is None else (row[0], float(row[1].partition(":")[2].rstrip("}")))


async def commit(url: str, count: int) -> None:
    """The host that decides."""
    store = opened(url)
    try:
        for _ in range(count):
            await anyio.sleep(GAP)
            await store.write(tell, time.monotonic())
    finally:
        await store.close()


async def follow(url: str, count: int) -> list[float]:
    """The host that waits; seconds for each wake."""
    store, took, seen = opened(url), [], 0
    try:
        with store.watch(TOPIC) as watch:
            while not took:  # from here on it listens
                await store.write(tell, time.monotonic())
                with anyio.move_on_after(0.1):
                    await watch.changed()
                    took.append(0.0)
            seen = store.read(last)[0]
            took.clear()
            with subprocess.Popen([sys.executable, __file__, "--child", url, "--wakes", str(count)]) as child:
                with anyio.fail_after(60 + count * GAP * 4):
                    while len(took) < count:
                        await watch.changed()
                        id, at = store.read(last)
                        if id > seen:
                            took.append(time.monotonic() - at)
                            seen = id
                child.wait()
    finally:
        await store.close()
    return took


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store", metavar="URL", help="a PostgreSQL store, `postgresql://…`")
    parser.add_argument("--wakes", type=int, default=300)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        anyio.run(commit, options.child, options.wakes)
        return
    if options.store:
        took = anyio.run(follow, options.store, options.wakes)
    else:
        with own_server() as server:
            took = anyio.run(follow, server.url(), options.wakes)
    cuts = statistics.quantiles(took, n=100)
    print(f"{len(took)} wakes across hosts: p50 {cuts[49] * 1e3:.1f} ms, p99 {cuts[98] * 1e3:.1f} ms")


if __name__ == "__main__":
    main()
