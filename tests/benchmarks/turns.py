"""What the loop of turns costs by itself: runs with a scripted provider, which takes no time.

    python tests/benchmarks/turns.py [--turns 200] [--runs 5] [--json]

Each turn asks for one call of a tool that does nothing. The same calls made without a loop, in turn with
the runs, show what the gate's part is; the rest is the loop's: asking, judging, keeping the history and the
state. A figure is the median over the runs. It exits 0 whether or not the goal is met, and 1 when something
did not run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import anyio

GOAL = 2.0
"""Milliseconds of the loop's own in one turn."""

WHAT = {"look": "reading call", "note": "call with mandatory intent"}


class Nothing:
    """A kind of tools that do nothing."""

    name = "nothing"

    def check(self, spec: Any, folder: Any = None) -> list[str]:
        return []

    def enforcement(self, tool: Any) -> Any:
        return "host"

    async def run(self, tool: Any, arguments: dict[str, Any], context: Any) -> Any:
        return {}

    async def preview(self, tool: Any, arguments: dict[str, Any], context: Any) -> str:
        return ""

    async def close(self) -> None:
        """Nothing is left running."""


def script(tool: str, turns: int) -> list[dict[str, Any]]:
    asks = [
        {"tool_calls": [{"id": f"c{n}", "name": f"bench_{tool}", "arguments": {"n": n}}]}
        for n in range(turns)
    ]
    return [*asks, {"text": "done"}]


def lab(folder: Path, tool: str, turns: int) -> Any:
    """A host's rooms with two tools that do nothing."""
    from packhost.gate.catalog import build_catalog
    from packhost.gate.configuration import Autonomy, Configuration, Limits, Terms
    from packhost.kinds.base import PackFacts, Tool
    from packhost.kinds.python import PythonKind
    from packhost.manifest.load import load_manifest
    from packhost.manifest.model import ToolSpec
    from packhost.names import ToolId
    from packhost.packs.registry import Registry
    from packhost.rules.policy import NamedApproval, Policy
    from packhost.rules.scopes import Layer, parse_scope
    from packhost.shipped import shipped_manifest

    tools: dict[str, Tool] = {}

    def add(pack: str, spec: Any) -> None:
        scopes = tuple(parse_scope(line) for line in spec.required_scopes)
        facts = PackFacts(pack, "1", pack, "d", None, True, True, None)
        tools[f"{pack}:{spec.name}"] = Tool(ToolId(pack, spec.name), spec, facts, scopes, "1-a")

    for spec in load_manifest(shipped_manifest("agent-runtime"), shipped=True).tools:
        add("agent-runtime", spec)
    for name, permission in (("look", "read"), ("note", "write")):
        schema = {"type": "object"}
        spec = ToolSpec(
            name=name, description=name, kind="nothing", permission=permission, input_schema=schema
        )
        add("bench", spec)
    remote = NamedApproval("agent-runtime:remote_control", "Remote control", grantable=False)
    registry = Registry(tools=tools, approvals={remote.name: remote})
    bounds = (Layer("bound", (parse_scope("path read **"), parse_scope("path write **"))),)
    kinds: Any = {"nothing": Nothing(), "python": PythonKind(folder)}
    section = {
        "default_model": "demo",
        "models": {"demo": {"provider": "scripted", "script": script(tool, turns)}},
    }
    return Configuration(
        catalog=build_catalog(registry, kinds, bounds, 1),
        policies=(Policy(()),),
        limits=Limits(1 << 20, 1 << 22),
        autonomy=Autonomy("guarded", "autonomous"),
        terms=Terms(600.0, "hold"),
        require="partial",
        variables={},
        sections={"agent-runtime": section},
        resolve_secret=str,
        redact=lambda text: text,
    )


async def measure(tool: str, turns: int, runs: int) -> dict[str, float]:
    """Medians in milliseconds: a whole turn, and the same call without a loop."""
    from packhost.executions.runs import Runs
    from packhost.gate import Caller, CallRequest, Gate
    from packhost.store.sqlite import SqliteStore
    from packhost_packs.agent_runtime import packhost_run_drivers

    turn_ms, call_ms = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "work").mkdir()
        descriptor = os.open(folder / "work", os.O_RDONLY | os.O_DIRECTORY)
        store = SqliteStore(folder / "store.db", "w")
        configuration = lab(folder / "work", tool, turns)
        async with anyio.create_task_group() as tasks:
            services: Any = None
            gate = Gate(
                store=store,
                key=b"k" * 32,
                root_descriptor=descriptor,
                owner="host",
                configuration=lambda: configuration,
                services=lambda: services,
            )
            drivers = {driver.name: driver for driver in packhost_run_drivers()}
            held = Runs(
                store, gate, owner="host", drivers=drivers, tasks=tasks, configuration=lambda: configuration
            )
            services = type("Services", (), {"runs": held, "sessions": gate.sessions, "approvals": None})()
            for number in range(runs):
                session = await gate.sessions.enter(f"s{number}", "ann", "bench")
                caller = Caller("ann", "bench", session)
                began = time.perf_counter()
                for n in range(turns):
                    await gate.call(CallRequest(f"bench:{tool}", {"n": n}, caller))
                await store.flush()
                call_ms.append((time.perf_counter() - began) / turns * 1000)
                asked = {
                    "messages": [{"role": "user", "content": "go"}],
                    "loop": True,
                    "limits": {"max_turns": turns + 1, "max_tool_calls": turns},
                }
                began = time.perf_counter()
                outcome: Any = await gate.call(CallRequest("agent-runtime:execute-turn", asked, caller))
                await store.flush()
                turn_ms.append((time.perf_counter() - began) / (turns + 1) * 1000)
                if outcome.value["outcome"] != "completed" or outcome.value["turns"] != turns + 1:
                    raise RuntimeError(f"the run ended as {outcome.value}")
            tasks.cancel_scope.cancel()
        await store.close()
        os.close(descriptor)
    whole, call = statistics.median(turn_ms), statistics.median(call_ms)
    return {"turn": whole, "call": call, "loop": max(0.0, whole - call)}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    try:
        found = {tool: anyio.run(measure, tool, asked.turns, asked.runs) for tool in WHAT}
    except Exception as error:
        print(f"the measurement did not run: {error}", file=sys.stderr)
        return 1
    if asked.json:
        print(json.dumps({"goal_ms": GOAL, "results": found}))
        return 0
    print(f"{'a turn with one':32} {'whole':>9} {'its call':>9} {'the loop':>9}   goal {GOAL:g} ms")
    for tool, figures in found.items():
        met = "met" if figures["loop"] <= GOAL else "missed"
        shown = " ".join(f"{figures[name]:7.2f}ms" for name in ("turn", "call", "loop"))
        print(f"{WHAT[tool]:32} {shown}   {met}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
