"""The store beside the usual ways to write to a database, in one run and in turns.

    python tests/benchmarks/store.py [--seconds 1] [--rounds 3] [--callers 64] [--events 100000] [--json]

Intents: what is written before a governed call (run, call, event of the chain), acknowledged after COMMIT and
synced to disk, by so many callers at once. Beside it, with the same statements on the same schema: a thread
for each call, SQLAlchemy's asyncio with its default pool and with a pool of one. Then: how soon a commit on
one host wakes a watcher on another, how fast events are replayed, and what 10,000 paused runs cost a host
that starts. Needs the extra `bench`, and Debian's PostgreSQL for its part. It exits 0 whether or not a
goal is met, and 1 when something did not run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from postgres_server import AVAILABLE, own_server

from packhost.journal import GENESIS, canonical, digest, link
from packhost.names import new_id
from packhost.store.address import parse_address
from packhost.store.ops import calls, events, executions
from packhost.store.rows import NewCall, NewExecution
from packhost.store.sqlite import SqliteStore, SqliteTx

GOALS = {
    "SQLite over to_thread": 4.0,
    "SQLite over SQLAlchemy + aiosqlite": 10.0,
    "wake p50 ms": 20.0,
    "replay events/s": 50_000.0,
}
Intent = Callable[[], Awaitable[None]]


def new_call() -> NewCall:
    """A direct call with its run, as the gate begins one."""
    run, id = new_id("run"), new_id("call")
    execution = NewExecution(run, "call", "s", "me", "code")
    return NewCall(id, run, "host", 1, "a:b", "1", '{"path":"a"}', "d", False, "me", execution=execution)


# the contenders: each gives a way to write one intent


@asynccontextmanager
async def ours(store: Any) -> AsyncIterator[Intent]:
    """packhost's writer."""

    async def write() -> None:
        await store.write(calls.begin, new_call())

    try:
        yield write
    finally:
        await store.close()


@asynccontextmanager
async def threads(folder: Path) -> AsyncIterator[Intent]:
    """A thread for each call, one connection, one transaction each."""
    path = folder / "threads.db"
    SqliteStore(path, "ws").close_now()
    import sqlite3

    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=256)
    for pragma in ("synchronous=FULL", "foreign_keys=ON", "secure_delete=ON"):
        connection.execute(f"PRAGMA {pragma}")
    tx, lock = SqliteTx(connection, "ws"), threading.Lock()

    def in_thread() -> None:
        with lock:
            tx.begin()
            calls.begin(tx, new_call())
            tx.commit()

    try:
        yield lambda: asyncio.to_thread(in_thread)
    finally:
        connection.close()


_RUN = (
    "INSERT INTO executions(id, workspace, kind, session_id, principal, client, status, owner, epoch,"
    " created_at, updated_at, spec_json)"
    " VALUES(:run,'ws','call','s','me','code','running','host',1,:now,:now,'{}')"
)
_CALL = (
    "INSERT INTO calls(id, execution_id, step, epoch, tool, tool_version, args_json, args_digest, idempotent,"
    " status, started_at) VALUES(:id,:run,1,1,'a:b','1',:args,'d',0,'started',:now)"
)
_LAST = "SELECT id, hash FROM events ORDER BY id DESC LIMIT 1"
_EVENT = (
    "INSERT INTO events(id, workspace, execution_id, call_id, type, actor, data_json, data_sha, ts, prev,"
    " hash) VALUES(:number,'ws',:run,:id,'call.started','me',:data,:sha,:now,:prev,:hash)"
)


@asynccontextmanager
async def sqlalchemy(url: str, lock: str, **options: Any) -> AsyncIterator[Intent]:
    """SQLAlchemy's asyncio, Core, one transaction each; `lock` is the statement that makes writers queue."""
    from sqlalchemy import event, text
    from sqlalchemy.ext.asyncio import create_async_engine

    engine = create_async_engine(url, **options)
    if url.startswith("sqlite"):

        @event.listens_for(engine.sync_engine, "connect")
        def prepare(connection: Any, record: Any) -> None:
            connection.isolation_level = None
            for pragma in ("busy_timeout=60000", "synchronous=FULL", "foreign_keys=ON", "secure_delete=ON"):
                connection.execute(f"PRAGMA {pragma}")

        @event.listens_for(engine.sync_engine, "begin")
        def begin(connection: Any) -> None:
            connection.exec_driver_sql(lock)

    statements = {name: text(sql) for name, sql in {"run": _RUN, "call": _CALL, "event": _EVENT}.items()}
    last, locking = text(_LAST), text(lock)

    async def write() -> None:
        run, id, now, args = new_id("run"), new_id("call"), time.time(), '{"path":"a"}'
        async with engine.begin() as connection:
            if not url.startswith("sqlite"):
                await connection.execute(locking)
            await connection.execute(statements["run"], {"run": run, "now": now})
            await connection.execute(statements["call"], {"id": id, "run": run, "args": args, "now": now})
            row = (await connection.execute(last)).first() or (0, GENESIS)
            data = canonical({"arguments": json.loads(args), "tool": "a:b"})
            sha, number = digest(data), row[0] + 1
            hash = link(row[1], number, "ws", run, id, "call.started", "me", sha, now)
            values = {"run": run, "id": id, "now": now, "data": data, "sha": sha, "prev": row[1]}
            await connection.execute(statements["event"], {**values, "number": number, "hash": hash})

    try:
        yield write
    finally:
        await engine.dispose()


async def rate(write: Intent, callers: int, seconds: float) -> float:
    """Intents a second."""
    done, end = 0, time.perf_counter() + seconds

    async def caller() -> None:
        nonlocal done
        while time.perf_counter() < end:
            await write()
            done += 1

    began = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(callers)))
    return done / (time.perf_counter() - began)


async def compete(contenders: dict[str, Any], callers: int, seconds: float, rounds: int) -> dict[str, float]:
    """The median rate of each over rounds in which all take turns."""
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, make in contenders.items():
            async with make() as write:
                await rate(write, 4, 0.2)  # warm
                found[name].append(await rate(write, callers, seconds))
    return {name: statistics.median(rates) for name, rates in found.items()}


async def wakes(url: str, count: int) -> list[float]:
    """Milliseconds from a write on one host, with its acknowledgement, to the wake on another."""
    from packhost.store.postgres import PostgresStore

    one, other = (PostgresStore(parse_address(url, "ws")) for _ in range(2))
    took = []
    with other.watch("events") as watch:
        await watch.changed()  # listening
        for _ in range(count):
            began = time.perf_counter()
            writing = asyncio.create_task(one.write(lambda tx: tx.emit("note", {})))
            await asyncio.wait_for(watch.changed(), 10)
            took.append(1000 * (time.perf_counter() - began))
            await writing
    await one.close()
    await other.close()
    return took


async def replay(store: Any, count: int) -> float:
    """Events a second, read in pages as the API reads them."""

    def fill(tx: Any) -> None:
        for number in range(count):
            data = {"tool": "workspace:read_file", "arguments": {"path": f"src/{number}.py"}, "step": number}
            tx.emit("call.started", data, execution_id="run_x", call_id=f"call_{number}", actor="me")

    await store.write(fill)
    took = []
    for _ in range(3):
        began, last, seen = time.perf_counter(), 0, 0
        while page := store.read(events.page, last, None, 1_000):
            last, seen = page[-1].id, seen + len(page)
        took.append(time.perf_counter() - began)
        assert seen == count
    await store.close()
    return count / statistics.median(took)


STARTED = """
import json, resource, sys, time
from pathlib import Path
import anyio
from packhost.app.host import open_host
from packhost.workspace.root import Root

async def main():
    root = Root(Path(sys.argv[1]))
    began = time.perf_counter()
    async with open_host(root):
        took = time.perf_counter() - began
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
        print(json.dumps([took, resident]), flush=True)

anyio.run(main)
"""


async def paused(folder: Path, count: int) -> dict[str, float]:
    """What paused runs cost a host that starts: time, memory, and their rows on disk."""
    state: dict[str, Any] = {}
    for kept in (0, count):
        base = folder / f"paused-{kept}"
        (base / "work").mkdir(parents=True)
        env = {**os.environ, "HOME": str(base), "XDG_STATE_HOME": str(base / "state")}
        command = [sys.executable, "-c", STARTED, str(base / "work")]

        def start(command: list[str] = command, env: dict[str, str] = env) -> tuple[float, float]:
            said = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout
            took, resident = json.loads(said)
            return took, resident

        start()
        (path,) = (base / "state" / "packhost").glob("*/store.db")
        store = SqliteStore(path, "ws")
        await store.write(_pause_many, kept)
        await store.close()
        found = [start() for _ in range(5)]
        state[f"{kept}"] = (
            min(took for took, _ in found),
            statistics.median(resident for _, resident in found),
            path.stat().st_size,
        )
    none, many = state["0"], state[f"{count}"]
    return {
        "paused runs": count,
        "start ms, none": 1000 * none[0],
        "start ms, all": 1000 * many[0],
        "memory MiB, none": none[1] / 2**20,
        "memory MiB, all": many[1] / 2**20,
        "rows MiB": (many[2] - none[2]) / 2**20,
    }


def _pause_many(tx: Any, count: int) -> None:
    text = json.dumps({"messages": ["x" * 1_000]})
    for _ in range(count):
        run = NewExecution(new_id("run"), "agent-runtime:turn", "s", "me", "code", spec_json=text)
        executions.create(tx, run)
        epoch = executions.claim(tx, run.id, "host", 60.0, 0)
        executions.mark_paused(tx, run.id, "host", epoch, state_json=text, waiting_on="approval:x")


async def measure(options: argparse.Namespace, url: Callable[[], str] | None, folder: Path) -> dict[str, Any]:
    """Everything, one part after another."""
    from packhost.store.opening import open_store
    from packhost.workspace.secrets import Secrets

    names = iter(range(10_000))

    def sqlite() -> Any:
        return SqliteStore(folder / f"ours-{next(names)}.db", "ws")

    def postgres(given: str) -> Any:
        return open_store(given, folder, "ws", Secrets({}, base=folder))

    def alchemy(**more: Any) -> Any:
        path = folder / f"alchemy-{next(names)}.db"
        SqliteStore(path, "ws").close_now()
        return sqlalchemy(f"sqlite+aiosqlite:///{path}", "BEGIN IMMEDIATE", **more)

    contenders: dict[str, Any] = {
        "SQLite": lambda: ours(sqlite()),
        "to_thread": lambda: threads(Path(tempfile.mkdtemp(dir=folder))),
        "SQLAlchemy + aiosqlite": alchemy,
        "SQLAlchemy + aiosqlite, one connection": lambda: alchemy(pool_size=1, max_overflow=0),
    }
    if url is not None:

        def alchemy_psycopg(**more: Any) -> Any:
            given = url()
            store = postgres(given)
            address = store.address
            store.close_now()
            place = address.url.replace("postgresql://", "postgresql+psycopg://")
            place += f"?options=-csearch_path%3D{address.schema}"
            return sqlalchemy(place, f"SELECT pg_advisory_xact_lock({address.lock})", **more)

        contenders["PostgreSQL"] = lambda: ours(postgres(url()))
        contenders["SQLAlchemy + psycopg"] = alchemy_psycopg
        contenders["SQLAlchemy + psycopg, one connection"] = lambda: alchemy_psycopg(
            pool_size=1, max_overflow=0
        )
    intents = await compete(contenders, options.callers, options.seconds, options.rounds)
    found: dict[str, Any] = {"callers": options.callers, "intents/s": intents, "ratios": {}}
    for other in contenders:
        base = "PostgreSQL" if "psycopg" in other else "SQLite"
        if other not in ("SQLite", "PostgreSQL"):
            found["ratios"][f"{base} over {other}"] = intents[base] / intents[other]
    if url is not None:
        took = sorted(await wakes(url(), 200))
        found["wake ms"] = {"p50": took[100], "p99": took[197]}
    found["replay events/s"] = {"SQLite": await replay(sqlite(), options.events)}
    if url is not None:
        found["replay events/s"]["PostgreSQL"] = await replay(postgres(url()), options.events)
    found["paused"] = await paused(folder, options.paused)
    return found


def tell(found: dict[str, Any]) -> None:
    """Print it for a person, with the goals."""
    print(f"intents a second, {found['callers']} callers at once (higher is better)")
    for name, value in found["intents/s"].items():
        print(f"  {name:40} {value:9,.0f}")
    print("ratios")
    for name, value in found["ratios"].items():
        goal = GOALS.get(name)
        note = "" if goal is None else f"   goal {goal:g}x: {'met' if value >= goal else 'MISSED'}"
        print(f"  {name:52} {value:6.1f}x{note}")
    if wake := found.get("wake ms"):
        met = "met" if wake["p50"] <= GOALS["wake p50 ms"] else "MISSED"
        print(f"wake on another host: p50 {wake['p50']:.1f} ms, p99 {wake['p99']:.1f} ms   goal 20 ms: {met}")
    for name, value in found["replay events/s"].items():
        met = "met" if value >= GOALS["replay events/s"] else "MISSED"
        print(f"replay by pages, {name}: {value:,.0f} events/s   goal 50,000: {met}")
    held = found["paused"]
    print(
        f"{held['paused runs']:,} paused runs ({held['rows MiB']:.0f} MiB of rows): start"
        f" {held['start ms, none']:.0f} -> {held['start ms, all']:.0f} ms, memory"
        f" {held['memory MiB, none']:.1f} -> {held['memory MiB, all']:.1f} MiB"
    )


def main() -> int:
    """Measure and print; the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3, help="in which all take turns")
    parser.add_argument("--callers", type=int, default=64)
    parser.add_argument("--events", type=int, default=100_000, help="to replay")
    parser.add_argument("--paused", type=int, default=10_000, help="runs")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="packhost-bench-") as folder:
        if AVAILABLE:
            with own_server() as server:
                found = asyncio.run(measure(options, server.url, Path(folder)))
        else:
            print("PostgreSQL is not installed: its part is left out", file=sys.stderr)
            found = asyncio.run(measure(options, None, Path(folder)))
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        tell(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
