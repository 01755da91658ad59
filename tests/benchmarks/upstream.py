"""What it adds to a call that it goes upstream through packhost, and through others that do the same.

    python tests/benchmarks/upstream.py [--calls 500] [--rounds 3] [--peers FOLDER] [--json]

One echo server of the SDK's is called directly, through packhost with the tool governed, and through what is
installed in FOLDER: `fastmcp` (its proxy), `agentbelay` (Belay) and `mcp-proxy`, each a virtual environment
of that name. All run at once and are called in turn, a slice of calls each, so that whatever else the machine
does meets all alike. packhost alone writes down each call that has effects before it is made: `packhost,
effects` is that. Figures are medians in milliseconds; `added` is over the direct call. It exits 0 whatever
they are, and 1 when something did not run.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters

ECHO = """\
from mcp.server.mcpserver import MCPServer

server = MCPServer("echo")


@server.tool()
def echo(text: str) -> str:
    "Echo text back"
    return text


server.run("stdio")
"""
FASTMCP = """\
import sys

from fastmcp.client.transports import StdioTransport
from fastmcp.server import create_proxy

create_proxy(StdioTransport(sys.argv[1], [sys.argv[2]]), name="p").run(show_banner=False, log_level="ERROR")
"""
BELAY = """\
version: 1
default: allow
rules: []
"""
SETTINGS = """\
packhost: 1
packs: [{path: ./up}]
bound: [path read **]
enforcement: {require: advisory}
"""
WARM_UP = 20
SLICE = 25


@dataclass
class Side:
    """One way to the tool."""

    name: str
    client: Client
    tool: str
    process: int
    """The process that stands between, with all below it but the client."""
    started: float
    """Seconds until its first answer."""
    times: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)

    async def call(self) -> None:
        result = await self.client.call_tool(self.tool, {"text": "hello"})
        if result.is_error:
            raise RuntimeError(f"{self.name}: {result.content}")

    async def slice(self, calls: int) -> None:
        for _ in range(calls):
            begun = time.perf_counter()
            await self.call()
            self.times.append((time.perf_counter() - begun) * 1e3)

    async def crowd(self, calls: int, at_once: int = 16) -> None:
        left = iter(range(calls))

        async def work() -> None:
            for _ in left:
                await self.call()

        begun = time.perf_counter()
        async with anyio.create_task_group() as group:
            for _ in range(at_once):
                group.start_soon(work)
        self.rates.append(calls / (time.perf_counter() - begun))


@dataclass(frozen=True)
class Figure:
    """What came of one way."""

    way: str
    p50: float
    p99: float
    added: float
    calls_per_second_at_16: float
    megabytes: float
    start: float


def memory(pid: int) -> float:
    """Megabytes that a process and all below it hold."""
    total, left = 0, [pid]
    while left:
        one = left.pop()
        try:
            with open(f"/proc/{one}/status") as file:
                total += next((int(line.split()[1]) for line in file if line.startswith("VmRSS")), 0)
            for task in os.listdir(f"/proc/{one}/task"):
                with open(f"/proc/{one}/task/{task}/children") as file:
                    left += [int(child) for child in file.read().split()]
        except OSError:
            continue
    return total / 1024


def children() -> set[int]:
    """The processes that this one has started."""
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return {int(pid) for pid in file.read().split()}


@asynccontextmanager
async def opened(name: str, target: Any, tool: str, era: str, process: int = 0) -> AsyncIterator[Side]:
    """A client of one way, warmed up."""
    before, begun = children(), time.perf_counter()
    async with Client(target, mode=era, read_timeout_seconds=60) as client:
        side = Side(name, client, tool, process, 0.0)
        await side.call()
        side.started = time.perf_counter() - begun
        side.process = process or next(iter(children() - before))
        for _ in range(WARM_UP):
            await side.call()
        yield side


def packhost(folder: Path, server: Path, permission: str) -> StdioServerParameters:
    """packhost in front of the server, which it starts itself."""
    work = folder / permission
    (work / "up").mkdir(parents=True)
    tool = {"name": "echo", "description": "Echo.", "kind": "mcp", "permission": permission}
    tool |= {"config": {"upstream_name": "echo"}, "input_schema": {"type": "object"}}
    block = {"command": [sys.executable, str(server)], "pinned": False}
    manifest = {"packhost": 1, "id": "up", "version": "1", "title": "Up", "upstream": block, "tools": [tool]}
    (work / "up" / "pack.yaml").write_text(json.dumps(manifest))
    (work / "packhost.yaml").write_text(SETTINGS)
    env = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
    env.pop("CLAUDECODE", None)
    command = [sys.executable, "-m", "packhost"]
    subprocess.run([*command, "accept", "--yes", "-w", str(work)], env=env, check=True, capture_output=True)
    return StdioServerParameters(command=command[0], args=[*command[1:], "serve", "-w", str(work)], env=env)


async def run(calls: int, rounds: int, peers: Path | None, era: str) -> list[Figure]:
    """All ways at once, called in turn."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = folder / "echo.py"
        server.write_text(ECHO)
        direct = StdioServerParameters(command=sys.executable, args=[str(server)])
        ways: list[tuple[str, Any, str, int]] = [
            ("direct", direct, "echo", 0),
            ("packhost", packhost(folder, server, "read"), "up_echo", 0),
            ("packhost, effects", packhost(folder, server, "write"), "up_echo", 0),
        ]
        ways += peers_in(peers, folder, server, stack) if peers is not None else []
        sides = [await stack.enter_async_context(opened(n, t, tool, era, pid)) for n, t, tool, pid in ways]
        for _ in range(rounds):
            for _ in range(0, calls // rounds, SLICE):
                for side in sides:
                    await side.slice(SLICE)
            for side in sides:
                await side.crowd(calls // rounds)
        base = statistics.median(sides[0].times)
        return [figure(side, base) for side in sides]


def peers_in(
    peers: Path, folder: Path, server: Path, stack: AsyncExitStack
) -> list[tuple[str, Any, str, int]]:
    """Those that are installed, each in an environment of its own; the server runs in this one."""
    found: list[tuple[str, Any, str, int]] = []
    if (peers / "fastmcp/bin/python").exists():
        (folder / "fastmcp_proxy.py").write_text(FASTMCP)
        args = [str(folder / "fastmcp_proxy.py"), sys.executable, str(server)]
        command = str(peers / "fastmcp/bin/python")
        found.append(("FastMCP proxy", StdioServerParameters(command=command, args=args), "echo", 0))
    if (peers / "agentbelay/bin/belay").exists():
        rules = folder / "belay.yaml"
        rules.write_text(BELAY)
        audit = ["--audit", str(folder / "audit.jsonl")]
        args = ["mcp", "--policy", str(rules), *audit, "--", sys.executable, str(server)]
        command = str(peers / "agentbelay/bin/belay")
        found.append(("Belay", StdioServerParameters(command=command, args=args), "echo", 0))
    if (peers / "mcp-proxy/bin/mcp-proxy").exists():
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        line = [
            str(peers / "mcp-proxy/bin/mcp-proxy"),
            "--port",
            str(port),
            "--",
            sys.executable,
            str(server),
        ]
        process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        stack.callback(process.wait)
        stack.callback(process.kill)
        until = time.monotonic() + 30
        while time.monotonic() < until:
            with socket.socket() as there:
                if there.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        found.append(("mcp-proxy (HTTP)", f"http://127.0.0.1:{port}/mcp/", "echo", process.pid))
    return found


def figure(side: Side, base: float) -> Figure:
    """The figures of one way."""
    ordered = sorted(side.times)
    p50 = statistics.median(ordered)
    p99 = ordered[int(0.99 * len(ordered))]
    rate = statistics.median(side.rates)
    return Figure(side.name, p50, p99, p50 - base, rate, memory(side.process), side.started)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", type=Path)
    parser.add_argument("--era", choices=("legacy", "auto"), default="legacy")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = anyio.run(run, options.calls, options.rounds, options.peers, options.era)
    if options.json:
        print(json.dumps([asdict(one) for one in figures]))
        return 0
    print(
        f"{'way':20} {'p50 ms':>8} {'p99 ms':>8} {'added':>8} {'calls/s at 16':>14} {'MB':>6} {'start s':>8}"
    )
    for one in figures:
        print(
            f"{one.way:20} {one.p50:8.2f} {one.p99:8.2f} {one.added:8.2f} {one.calls_per_second_at_16:14.0f} "
            f"{one.megabytes:6.0f} {one.start:8.2f}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
