"""What governing costs: the same small tool behind packhost and behind a bare `mcp` server, on stdio.

    python tests/benchmarks/calls.py [--calls 1000] [--starts 20] [--json]

Both servers run at once and are called in turn, a slice of calls each, so that whatever else the machine does
meets both alike. A figure is the median over all calls of one side; a ratio is governed over bare. It exits 0
whether or not the goals are met, and 1 when something did not run.
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
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

ERAS = {"2026-07-28": "auto", "2025-11-25": "legacy"}
READ = ("workspace_read_file", {"path": "notes/tiny.txt"})
WRITE = ("workspace_write_file", {"path": "notes/made.txt", "content": "tiny\n"})
GOALS = {"read": 1.4, "write": 1.8, "start": 1.3}
TITLES = {
    "read": "idempotent call",
    "write": "call with mandatory intent",
    "start": "cold start to the answer of initialize",
}
SLICES = 10
WARM_UP = 30

SETTINGS = """\
packhost: 1
packs: [workspace]
bound:
  - path read **
  - path write notes/**
"""

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "benchmark", "version": "1"},
    },
}

# Only for `--bare-twice`, where there is no governed side to look like.
PLAIN = {
    "tools": [
        {"name": name, "inputSchema": {"type": "object"}, "outputSchema": {"type": "object"}}
        for name in (READ[0], WRITE[0])
    ],
    "results": {READ[0]: {"path": READ[1]["path"]}, WRITE[0]: {"path": WRITE[1]["path"]}},
}


@dataclass(frozen=True, slots=True)
class Pair:
    """One comparison; medians in milliseconds."""

    what: str
    era: str
    bare: float
    governed: float
    ratio: float
    goal: float
    met: bool
    samples: int


@dataclass(frozen=True, slots=True)
class Side:
    """How one server is started."""

    command: list[str]
    environment: dict[str, str]
    log: Path

    @contextmanager
    def logging(self) -> Iterator[Any]:
        """The file that takes what the server says on stderr."""
        with self.log.open("a") as log:
            yield log

    def parameters(self) -> StdioServerParameters:
        """The same for the client."""
        return StdioServerParameters(command=self.command[0], args=self.command[1:], env=self.environment)


def pair(what: str, era: str, bare: list[float], governed: list[float]) -> Pair:
    """Two lists of seconds as one comparison."""
    below, above = statistics.median(bare) * 1000, statistics.median(governed) * 1000
    ratio = above / below
    met = ratio <= GOALS[what]
    return Pair(what, era, round(below, 3), round(above, 3), round(ratio, 2), GOALS[what], met, len(bare))


async def timed(client: Client, call: tuple[str, dict[str, Any]], times: int) -> list[float]:
    """Seconds of each of so many sequential calls; raises `RuntimeError` on a refused one."""
    name, arguments = call
    taken = []
    for _ in range(times):
        begin = time.perf_counter()
        result = await client.call_tool(name, arguments)
        taken.append(time.perf_counter() - begin)
        if result.is_error:
            raise RuntimeError(f"{name} was refused: {result.content[0]}")
    return taken


async def compare_calls(bare: Side, governed: Side, era: str, calls: int) -> list[Pair]:
    """Both tools in one protocol era, slice by slice, the sides taking turns at going first."""
    pairs = []
    with bare.logging() as bare_log, governed.logging() as governed_log:
        async with (
            Client(stdio_client(bare.parameters(), errlog=bare_log), mode=ERAS[era]) as plain,
            Client(stdio_client(governed.parameters(), errlog=governed_log), mode=ERAS[era]) as host,
        ):
            for client in (plain, host):
                await client.list_tools()
                if client.protocol_version != era:
                    raise RuntimeError(f"a server speaks {client.protocol_version}, not {era}")
            for what, call in (("read", READ), ("write", WRITE)):
                sides: list[tuple[Client, list[float]]] = [(plain, []), (host, [])]
                for client, _ in sides:
                    await timed(client, call, WARM_UP)
                for turn in range(SLICES):
                    for client, taken in sides if turn % 2 else reversed(sides):
                        taken += await timed(client, call, max(1, calls // SLICES))
                pairs.append(pair(what, era, sides[0][1], sides[1][1]))
    return pairs


def started(side: Side) -> float:
    """Seconds from starting the process to its answer to `initialize`."""
    with side.logging() as log:
        begin = time.perf_counter()
        server = subprocess.Popen(
            side.command, env=side.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
        )
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            server.stdin.write(json.dumps(INITIALIZE).encode() + b"\n")
            server.stdin.flush()
            answer = server.stdout.readline()
            taken = time.perf_counter() - begin
        finally:
            server.stdin.close()
            try:
                server.wait(10)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait(10)
            server.stdout.close()
    if b'"protocolVersion"' not in answer:
        raise RuntimeError(f"no answer to initialize from {side.command[0]}; see {side.log}")
    return taken


def compare_starts(bare: Side, governed: Side, starts: int) -> Pair:
    """Cold starts, one side after the other; the first of each only warms the disk's cache."""
    started(bare), started(governed)
    both = [(started(bare), started(governed)) for _ in range(starts)]
    return pair("start", "2025-11-25", [one for one, _ in both], [other for _, other in both])


async def mirrored(governed: Side) -> dict[str, Any]:
    """What the bare side must look like, asked of the governed one."""
    with governed.logging() as log:
        async with Client(stdio_client(governed.parameters(), errlog=log)) as client:
            listed = (await client.list_tools()).tools
            tools = [tool for tool in listed if tool.name in (READ[0], WRITE[0])]
            results = {}
            for name, arguments in (READ, WRITE):
                result = await client.call_tool(name, arguments)
                if result.is_error:
                    raise RuntimeError(f"{name} was refused: {result.content[0]}")
                results[name] = result.structured_content
    declared = [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in tools]
    return {"tools": declared, "results": results}


def governed_side(folder: Path, root: Path) -> Side:
    """packhost on a workspace whose settings were accepted."""
    (root / "packhost.yaml").write_text(SETTINGS)
    packhost = str(Path(sys.executable).parent / "packhost")
    shell = {name: value for name, value in os.environ.items() if name not in ("CLAUDECODE", "CURSOR_AGENT")}
    environment = shell | {"XDG_STATE_HOME": str(folder / "state")}
    accept = [packhost, "accept", "--yes", "-w", str(root)]
    done = subprocess.run(
        accept, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
    )
    if done.returncode:
        raise RuntimeError(f"packhost accept gave {done.returncode}: {done.stderr.strip()}")
    return Side([packhost, "serve", "-w", str(root)], environment, folder / "governed.log")


def measure(folder: Path, calls: int, starts: int, *, bare_twice: bool) -> list[Pair]:
    """Every comparison, in a folder made for it."""
    root = folder / "work"
    (root / "notes").mkdir(parents=True)
    (root / READ[1]["path"]).write_text("tiny\n")
    mirror = folder / "mirror.json"
    server = str(Path(__file__).with_name("bare_server.py"))
    bare = Side([sys.executable, server, str(root), str(mirror)], dict(os.environ), folder / "bare.log")
    if bare_twice:
        governed = bare
        mirror.write_text(json.dumps(PLAIN))
    else:
        governed = governed_side(folder, root)
        mirror.write_text(json.dumps(anyio.run(mirrored, governed)))
    pairs = [found for era in ERAS for found in anyio.run(compare_calls, bare, governed, era, calls)]
    return [*pairs, compare_starts(bare, governed, starts)]


def report(pairs: list[Pair]) -> str:
    """The comparisons as a table for people."""
    lines = [f"{'':40}{'protocol':12}{'bare':>11}{'governed':>11}{'ratio':>8}{'goal':>8}"]
    for row in pairs:
        verdict = "met" if row.met else "missed"
        lines.append(
            f"{TITLES[row.what]:40}{row.era:12}{row.bare:8.3f} ms{row.governed:8.3f} ms"
            f"{row.ratio:7.2f}x{row.goal:7.1f}x  {verdict} (medians of {row.samples})"
        )
    return "\n".join(lines)


def main() -> int:
    """Reads the command line, measures, prints."""
    parser = argparse.ArgumentParser(description="What governing costs, beside a bare mcp server.")
    parser.add_argument("--calls", type=int, default=1000, help="calls per side, tool and protocol")
    parser.add_argument("--starts", type=int, default=20, help="cold starts per side")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--bare-twice", action="store_true", help="measure the harness: bare on both sides")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="packhost-bench-") as folder:
        try:
            pairs = measure(Path(folder), options.calls, options.starts, bare_twice=options.bare_twice)
        except Exception as error:
            print(f"the benchmark did not run: {error!r}", file=sys.stderr)
            for log in Path(folder).glob("*.log"):
                print(f"{log.name}:\n{log.read_text()[-2000:]}", file=sys.stderr)
            return 1
    print(json.dumps([asdict(found) for found in pairs], indent=2) if options.json else report(pairs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
