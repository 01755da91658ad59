"""What many MCP sessions at once cost a host over HTTP, in both eras of the protocol.

    python tests/benchmarks/sessions.py [--sessions 200] [--rounds 3] [--json]

A host of its own process serves one workspace. So many clients of the official SDK connect to `/mcp` with one
token and stay: `sessions` those whose protocol has sessions, each with its stream open, `stateless` those of
the newer one, of which the host remembers nothing. Memory is what the host's own (USS) grew by for each, once
all are open and have made a call. Latency is that of a call of a tool that reads a small file, client and
server together on one machine: `alone` one session after the other, `all at once` every session at the same
moment. `host CPU` is what the host itself works for a call of the former. Figures are over all rounds; a call
that was refused or went wrong counts as `failed`. It exits 0 whatever they are, 1 when something did not run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

ERAS = {"sessions": "legacy", "stateless": "auto"}
SETTINGS = "packhost: 1\npacks: [workspace]\nbound: [path read **]\n"


def packhost(*arguments: str, project: Path) -> str:
    command = [sys.executable, "-m", "packhost", *arguments]
    return subprocess.run(command, cwd=project, check=True, capture_output=True, text=True).stdout


def own_memory(pid: int) -> int:
    """Bytes that the process has for itself alone."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_"))


def cpu(pid: int) -> float:
    """Seconds that the process has worked."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def call(client: Client) -> float | None:
    """Milliseconds of one call; `None` when it failed."""
    began = time.perf_counter()
    result = await client.call_tool("workspace_read_file", {"path": "a.txt"})
    return None if result.is_error else (time.perf_counter() - began) * 1e3


async def era(url: str, token: str, pid: int, mode: str, sessions: int, rounds: int) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {token}"}
    async with AsyncExitStack() as stack:

        async def opened() -> Client:
            http = httpx2.AsyncClient(headers=headers, timeout=60, trust_env=False, verify=False)
            await stack.enter_async_context(http)
            transport = streamable_http_client(f"{url}/mcp", http_client=http)
            client = await stack.enter_async_context(Client(transport, mode=mode))
            await call(client)
            return client

        await opened()  # what the first one costs, all share
        before, began = own_memory(pid), time.perf_counter()
        clients = [await opened() for _ in range(sessions)]
        took = time.perf_counter() - began
        memory = (own_memory(pid) - before) / sessions
        worked = cpu(pid)
        alone = [await call(client) for _ in range(rounds) for client in clients]
        worked = (cpu(pid) - worked) / len(alone)
        together: list[float | None] = []

        async def one(client: Client) -> None:
            together.append(await call(client))

        for _ in range(rounds):
            async with anyio.create_task_group() as tasks:
                for client in clients:
                    tasks.start_soon(one, client)
        grown = (own_memory(pid) - before) / sessions
    return {
        "opened each ms": round(took / sessions * 1e3, 1),
        "memory each KiB": round(memory / 1024, 1),
        "memory each after all at once KiB": round(grown / 1024, 1),
        **figures("alone", alone),
        "alone host CPU ms": round(worked * 1e3, 2),
        **figures("all at once", together),
        "failed": sum(taken is None for taken in (*alone, *together)),
    }


def figures(name: str, times: list[float | None]) -> dict[str, float]:
    good = [taken for taken in times if taken is not None]
    cuts = statistics.quantiles(good, n=20)
    return {f"{name} p50 ms": round(statistics.median(good), 1), f"{name} p95 ms": round(cuts[-1], 1)}


async def measure(sessions: int, rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = f"{folder}/state"
        for name in ("CLAUDECODE", "CURSOR_AGENT"):
            os.environ.pop(name, None)
        (project := Path(folder) / "project").mkdir()
        (project / "packhost.yaml").write_text(SETTINGS)
        (project / "a.txt").write_text("an apple\n")
        packhost("accept", "--yes", project=project)
        serve = [sys.executable, "-m", "packhost", "serve", "--http", "127.0.0.1:0"]
        with subprocess.Popen(serve, cwd=project, stderr=subprocess.PIPE, text=True) as host:
            try:
                assert host.stderr is not None
                url = host.stderr.readline().rsplit(" ", 1)[1].strip()
                token = json.loads(packhost("tokens", "new", "--role", "caller", "--json", project=project))[
                    "token"
                ]
                return {
                    name: await era(url, token, host.pid, mode, sessions, rounds)
                    for name, mode in ERAS.items()
                }
            finally:
                host.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = anyio.run(measure, given.sessions, given.rounds)
    if given.json:
        print(json.dumps(found))
        return
    for name, values in found.items():
        print(f"{given.sessions} {name}:")
        for figure, value in values.items():
            print(f"  {figure}: {value}")


if __name__ == "__main__":
    sys.exit(main())
