"""What confining a handler costs: the same function in the host, in a trusted process, a fresh fork, a spawn.

    python tests/benchmarks/sandbox.py [--calls 200] [--json]

All ways are measured in turn, a slice of calls each, so that whatever else the machine does meets them alike.
A figure is the median of one way; a ratio is that way over a bare start of the interpreter, which does
nothing at all. It exits 0 whether or not the goals are met, and 1 when something did not run.
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
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio

from packhost.kinds.base import PackFacts, Tool
from packhost.kinds.python import PythonKind
from packhost.manifest.model import ToolSpec
from packhost.names import ToolId
from packhost.rules.scopes import Layer, parse_scope
from packhost.sandbox.paths import FileBroker

SLICES = 10
WARM_UP = 10
PAUSE = 0.01
"""Seconds between two calls of an agent that thinks; a fresh process is forked ahead meanwhile."""
SCOPES = ("path read notes/**", "path write out/**")
HANDLER = "def handle(context, arguments):\n    return {'number': arguments['number'] + 1}\n"
READING = "def handle(context, arguments):\n    return {'text': open('notes/tiny.txt').read()}\n"
GOALS = {"fresh fork, paused": 6.0, "fresh fork, one after the other": 6.0, "trusted over in the host": 0.3}


@dataclass
class Context:
    """The least that a call needs."""

    files: FileBroker
    layers: tuple[Layer, ...]
    config: Mapping[str, Any] = field(default_factory=dict)
    tool: str = "pack:tool"
    call_id: str = "call_1"
    run_id: str = "run_1"
    session_id: str = "session"
    principal: str = "somebody"
    client: str = "a client"
    host: None = None


@dataclass(frozen=True, slots=True)
class Way:
    """One way to run the handler; the median in milliseconds, and over a bare start of the interpreter."""

    what: str
    median: float
    best: float
    ratio: float
    samples: int
    goal: float | None
    met: bool | None


def tool_in(folder: Path, name: str, source: str, *, shipped: bool = False, trusted: bool = False) -> Tool:
    """A tool whose handler is `source`."""
    place = folder / name
    place.mkdir()
    (place / f"bench_{name}.py").write_text(source)
    if shipped:
        sys.path.append(str(place))
    spec = ToolSpec(
        name="tool", description="A tool.", kind="python", target=f"bench_{name}:handle", permission="read"
    )
    pack = PackFacts("pack", "1", "Pack", name, None if shipped else place, shipped, trusted, None)
    return Tool(ToolId("pack", "tool"), spec, pack, tuple(map(parse_scope, SCOPES)), "1")


async def measure(calls: int, base: Path) -> list[Way]:
    """Every way in turn, slice by slice."""
    root = base / "workspace"
    (root / "notes").mkdir(parents=True)
    (root / "notes" / "tiny.txt").write_text("tiny")
    descriptor = os.open(root, os.O_RDONLY)
    layers = tuple(Layer(name, tuple(map(parse_scope, SCOPES))) for name in ("bound", "manifest"))
    context: Any = Context(FileBroker(descriptor, layers), layers)
    kind, plain = PythonKind(root), PythonKind(root, abi=0)
    fresh = tool_in(base, "fresh", HANDLER)
    if kind.enforcement(fresh) == "advisory":
        raise RuntimeError("nothing can be enforced here")

    def calling(kind: PythonKind, tool: Tool) -> Callable[[], Awaitable[object]]:
        return lambda: kind.run(tool, {"number": 1}, context)

    async def bare() -> None:
        await anyio.to_thread.run_sync(
            lambda: subprocess.run([sys.executable, "-I", "-S", "-c", ""], check=True)
        )

    ways: dict[str, tuple[Callable[[], Awaitable[object]], float, int]] = {
        "bare start of the interpreter": (bare, 0, 4),
        "in the host (shipped)": (
            calling(kind, tool_in(base, "shipped", HANDLER.replace("def", "async def"), shipped=True)),
            0,
            1,
        ),
        "trusted process": (calling(kind, replace(tool_in(base, "trusted", HANDLER, trusted=True))), 0, 1),
        "trusted process, opens a file": (
            calling(kind, tool_in(base, "reading", READING, trusted=True)),
            0,
            1,
        ),
        "fresh fork, paused": (calling(kind, fresh), PAUSE, 1),
        "fresh fork, one after the other": (calling(kind, fresh), 0, 1),
        "plain process (advisory)": (calling(plain, fresh), 0, 8),
    }
    taken: dict[str, list[float]] = {what: [] for what in ways}
    for call, _, _ in ways.values():
        for _ in range(WARM_UP):
            await call()
    for _ in range(SLICES):
        for what, (call, pause, fewer) in ways.items():
            for _ in range(max(1, calls // SLICES // fewer)):
                await anyio.sleep(pause)
                begin = time.perf_counter()
                await call()
                taken[what].append((time.perf_counter() - begin) * 1000)
    await kind.close()
    await plain.close()
    os.close(descriptor)
    return summed_up(taken)


def summed_up(taken: Mapping[str, list[float]]) -> list[Way]:
    """Medians, ratios and goals."""
    medians = {what: statistics.median(times) for what, times in taken.items()}
    bare = medians["bare start of the interpreter"]
    found = []
    for what, times in taken.items():
        goal = GOALS.get(what)
        met = None if goal is None else medians[what] <= goal
        found.append(
            Way(
                what,
                round(medians[what], 3),
                round(min(times), 3),
                round(medians[what] / bare, 3),
                len(times),
                goal,
                met,
            )
        )
    over = medians["trusted process"] - medians["in the host (shipped)"]
    goal = GOALS["trusted over in the host"]
    found.append(
        Way(
            "trusted over in the host",
            round(over, 3),
            0.0,
            round(over / bare, 3),
            len(taken["trusted process"]),
            goal,
            over <= goal,
        )
    )
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=200, help="calls a way (fewer for the slow ones)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="packhost-benchmark-") as folder:
        ways = anyio.run(measure, options.calls, Path(folder))
    if options.json:
        print(json.dumps([asdict(way) for way in ways], indent=2))
        return
    print(f"{'':34s} {'median':>9s} {'best':>9s} {'ratio':>7s}  goal")
    for way in ways:
        goal = "" if way.goal is None else f"≤ {way.goal:g} ms: {'met' if way.met else 'missed'}"
        print(f"{way.what:34s} {way.median:6.3f} ms {way.best:6.3f} ms {way.ratio:7.3f}  {goal}")


if __name__ == "__main__":
    main()
