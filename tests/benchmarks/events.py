"""How fast a run's events are replayed, and what a thousand watchers of a run that rests cost.

    python tests/benchmarks/events.py [--events 100000] [--watchers 1000] [--json]

Replay is from the store to the bytes of server-sent events (goal: 50,000 events a second), and over a socket
to a client that throws them away. Watchers hold a stream open and hear nothing. It exits 0 whether or not a
goal is met, and 1 when something did not run.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import resource
import socket
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import uvicorn
from starlette.applications import Starlette

from packhost.control import tokens
from packhost.control.base import Parts
from packhost.http.api import Api
from packhost.http.events import PAGE, EventStream
from packhost.http.kit import CLIENT, Call
from packhost.http.limits import Allowance
from packhost.names import new_id
from packhost.store.ops import executions
from packhost.store.rows import NewExecution
from packhost.store.sqlite import SqliteStore
from packhost.workspace.redaction import Redactor

GOAL = 50_000
DATA = {"code": None, "enforcement": "kernel", "result_sha": "0" * 64, "status": "ok", "step": 12}


def parts_of(store: Any) -> Parts:
    none = SimpleNamespace(standing=lambda: SimpleNamespace(state="none"))
    limits = SimpleNamespace(max_argument_bytes=1 << 20)
    redactor = Redactor()
    for number in range(3):
        redactor.add(f"a-secret-of-the-workspace-{number}")
    known: Any = {"workspace": None, "runs": None, "changed": None, "principal": "me"}
    return Parts(
        store=store,
        gate=SimpleNamespace(operators=none),  # type: ignore[arg-type]
        configuration=lambda: SimpleNamespace(redact=redactor.redact, limits=limits),  # type: ignore[arg-type, return-value]
        **known,
    )


async def fill(store: Any, count: int) -> str:
    run = NewExecution(new_id("run"), "turn", "s", "me", CLIENT)
    await store.write(executions.create, run)
    await store.write(executions.claim, run.id, "host", 600.0, 0)

    def some(tx: Any, number: int) -> None:
        for _ in range(number):
            tx.emit(
                "call.ok", DATA, execution_id=run.id, call_id="call_01m8q244e0yp0qhdjvt1zkr9zx", actor="host"
            )

    left = count
    while left:
        await store.write(some, min(left, 5_000))
        left -= min(left, 5_000)
    return run.id


class Sink:
    """Takes bytes and forgets them."""

    def __init__(self) -> None:
        self.size = 0
        self.events = 0

    async def __call__(self, message: Any) -> None:
        body = message.get("body", b"")
        self.size += len(body)
        self.events += body.count(b"\nevent: ")


async def never() -> Any:
    await asyncio.Event().wait()


async def replay(api: Api, parts: Parts, run: str, count: int, token: str) -> dict[str, float]:
    headers = [(b"authorization", f"Bearer {token}".encode())]
    identity = await api.authenticator.required({"type": "http", "headers": headers, "path": "/v1/runs"})
    call = Call(api._shared, parts, identity, None, {"id": run})  # type: ignore[arg-type]
    sink, began = Sink(), time.perf_counter()
    await EventStream(call, run, 0)({}, never, sink)
    took = time.perf_counter() - began
    assert sink.events == count, (sink.events, count)
    return {"events/s": round(count / took), "MB/s": round(sink.size / took / 1e6, 1)}


async def over_socket(url: tuple[str, int], token: str, run: str, count: int) -> dict[str, float]:
    reader, writer = await asyncio.open_connection(*url)
    began = time.perf_counter()
    writer.write(request(run, token))
    found, tail = 0, b""
    while piece := await reader.read(1 << 20):
        found += (tail + piece).count(b"\nevent: ")
        tail = piece[-7:]
    writer.close()
    took = time.perf_counter() - began
    assert found == count, (found, count)
    return {"events/s": round(found / took)}


def request(run: str, token: str) -> bytes:
    return (
        f"GET /v1/runs/{run}/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n"
        "Connection: close\r\n\r\n"
    ).encode()


def memory() -> float:
    """Resident megabytes."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


async def watch(url: tuple[str, int], token: str, run: str, count: int) -> dict[str, Any]:
    """Watchers in a process of their own, so that only the server's side is counted."""
    code = (
        "import socket, sys\n"
        "host, port, count, request = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]\n"
        "held = []\n"
        "for _ in range(count):\n"
        "    s = socket.create_connection((host, port)); s.sendall(request.encode()); held.append(s)\n"
        "for s in held:\n"
        "    data = b''\n"
        "    while b'run.running' not in data: data += s.recv(4096)\n"
        "print('open', flush=True); sys.stdin.readline()\n"
    )
    before = memory()
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        code,
        *map(str, url),
        str(count),
        request(run, token).decode(),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    line = await process.stdout.readline()
    took = time.perf_counter() - began
    after = memory()
    busy = time.process_time()
    await asyncio.sleep(5)
    busy = time.process_time() - busy
    process.stdin.write(b"\n")
    await process.stdin.drain()
    await process.wait()
    assert line == b"open\n", line
    return {
        "opened in s": round(took, 2),
        "kB each": round((after - before) * 1e3 / count, 1),
        "MB in all": round(after - before, 1),
        "processor while idle, %": round(busy / 5 * 100, 1),
    }


async def measure(events: int, watchers: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder, socket.socket(proto=socket.IPPROTO_TCP) as listener:
        store = SqliteStore(Path(folder) / "store.db", "bench")
        parts = parts_of(store)
        api = Api(
            parts,
            b"k" * 32,
            "1",
            allowance=Allowance(rate=1e9, burst=1e9, streams=watchers + 8, at_once=watchers),
        )
        run = await fill(store, events)
        await store.write(executions.finish, run, "host", 1, "completed", "completed")
        resting = await fill(store, 0)
        token = (await tokens.new(parts, {"role": "caller"}))["token"]
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(
            uvicorn.Config(
                Starlette(routes=api.routes()), log_config=None, lifespan="off", http="h11", backlog=2_048
            )
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server._serve, [listener])
            while not server.started:
                await anyio.sleep(0.01)
            url = listener.getsockname()
            total = events + 3
            result = {
                "replay to bytes": await replay(api, parts, run, total, token),
                "replay over a socket": await over_socket(url, token, run, total),
                "watchers": await watch(url, token, resting, watchers),
            }
            server.should_exit = server.force_exit = True
        await store.close()
        return {**result, "events a page": PAGE}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--watchers", type=int, default=1_000)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, given.watchers + 256)), hard))
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    found = anyio.run(measure, given.events, given.watchers)
    if given.json:
        print(json.dumps(found))
        return
    for name, figures in found.items():
        print(f"{name}: {figures}")
    met = found["replay to bytes"]["events/s"] >= GOAL
    print(f"goal: {GOAL} events/s to bytes, {'met' if met else 'missed'}")


if __name__ == "__main__":
    main()
