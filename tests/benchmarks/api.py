"""What the API costs beside a bare Starlette route that makes the same write and reads the same row.

    python tests/benchmarks/api.py [--requests 500] [--rounds 5] [--folder DIR] [--json]

Both are served by one server in one process and asked over one kept connection, by turns. The API's route
tells who asks by their token, holds them to scope and rate, reads and checks the body, and then does what the
bare one does: it sets a session's level. `--folder` says where the store lies: in memory (/dev/shm) the disk
has no part in the figures. A figure is the median over the rounds of a round's median. The goal is at most
1.5 times the bare route. It exits 0 whether or not the goal is met, and 1 when something did not run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from packhost.app.host import open_host
from packhost.control import tokens
from packhost.http.api import Api
from packhost.http.limits import Allowance
from packhost.store.lock import HostLock
from packhost.store.ops import sessions
from packhost.workspace.root import Root

GOAL = 1.5


async def ask(streams: Any, path: str, token: str, body: dict[str, Any]) -> float:
    reader, writer = streams
    data = json.dumps(body).encode()
    began = time.perf_counter()
    writer.write(
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode()
        + data
    )
    head = await reader.readuntil(b"\r\n\r\n")
    (length,) = [
        int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")
    ]
    await reader.readexactly(length)
    took = time.perf_counter() - began
    assert b" 200 " in head.split(b"\r\n")[0], head
    return took


async def measure(requests: int, rounds: int, where: str | None) -> dict[str, Any]:
    with (
        tempfile.TemporaryDirectory(dir=where) as folder,
        socket.socket(proto=socket.IPPROTO_TCP) as listener,
    ):
        os.environ["XDG_STATE_HOME"] = f"{folder}/state"
        (project := Path(folder) / "project").mkdir()
        with Root(project) as root, HostLock(root.state) as lock:
            assert lock.acquire()
            async with open_host(root) as host:
                found = await between(host, listener, requests, rounds)
        return found


async def between(host: Any, listener: socket.socket, requests: int, rounds: int) -> dict[str, Any]:
    store = host.store

    async def bare(request: Request) -> JSONResponse:
        body = await request.json()
        await store.write(sessions.set_level, "s-bare", body["level"], None, "me", body["reason"])
        row = store.read(sessions.get, "s-bare")
        return JSONResponse({"id": row.id, "level": row.level})

    api = Api(host.parts, host.cursor_key, "1", allowance=Allowance(rate=1e9, burst=1e9))
    for name in ("s-bare", "s-api"):
        await host.gate.sessions.enter(name, "me", "bench")
    token = (await tokens.new(host.parts, {"role": "operator", "principal": "me"}))["token"]
    listener.bind(("127.0.0.1", 0))
    app = Starlette(routes=[Route("/bare", bare, methods=["POST"]), *api.routes()])
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off", http="h11"))
    paths = {"bare": "/bare", "api": "/v1/sessions/s-api/autonomy"}
    medians: dict[str, list[float]] = {name: [] for name in paths}
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server._serve, [listener])
        while not server.started:
            await anyio.sleep(0.01)
        streams = await asyncio.open_connection(*listener.getsockname())
        levels = ("guarded", "supervised")
        for _ in range(rounds):
            times: dict[str, list[float]] = {name: [] for name in paths}
            for n in range(requests):
                for name, path in paths.items():
                    body = {"level": levels[n % 2], "reason": "bench"}
                    times[name].append(await ask(streams, path, token, body))
            for name, taken in times.items():
                medians[name].append(statistics.median(taken))
        streams[1].close()
        server.should_exit = server.force_exit = True
    figures = {
        f"{name} p50 ms": round(statistics.median(values) * 1e3, 3) for name, values in medians.items()
    }
    return {**figures, "ratio": round(figures["api p50 ms"] / figures["bare p50 ms"], 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = anyio.run(measure, given.requests, given.rounds, given.folder)
    if given.json:
        print(json.dumps(found))
        return
    for name, figure in found.items():
        print(f"{name}: {figure}")
    print(f"goal: {GOAL} times, {'met' if found['ratio'] <= GOAL else 'missed'}")


if __name__ == "__main__":
    sys.exit(main())
