"""What a `code` tool's governed call takes: through the gate and the store, the interpreter and back.

    python tests/benchmarks/code.py [--calls 500] [--json]

Exits 0 whether or not the goal is met, and 1 when something did not run.
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

import anyio

from packhost.app.host import open_host
from packhost.gate.types import Caller, CallRequest, Completed
from packhost.store.lock import HostLock
from packhost.workspace.root import Root

GOAL = 2.0
"""Milliseconds, the median of one call."""
WARM_UP = 20
MANIFEST = """\
packhost: 1
id: prices
version: "1.0"
title: Prices
tools:
  - name: discount
    description: Work out a discounted price.
    kind: code
    permission: PERMISSION
    input_schema: {type: object, properties: {price: {type: number}, percent: {type: number}}}
    config: {code: "{'price': round(price * (1 - percent / 100), 2)}"}
"""
SETTINGS = """\
packhost: 1
packs: [{path: packs/prices}]
bound: [path read **]
"""


async def measure(root_path: Path, calls: int) -> dict[str, float]:
    """Median and 99th percentile in milliseconds, of calls that read and of calls with an intent."""
    found: dict[str, float] = {}
    for permission in ("read", "write"):
        folder = root_path / permission
        (folder / "packs/prices").mkdir(parents=True)
        (folder / "packs/prices/pack.yaml").write_text(MANIFEST.replace("PERMISSION", permission))
        (folder / "packhost.yaml").write_text(SETTINGS)
        with Root(folder) as root, HostLock(root.state) as lock:
            if not lock.acquire():
                raise RuntimeError("the workspace is held by another process")
            async with open_host(root) as host:
                workspace = host.workspace
                workspace.accept(by="benchmark", channel="script", seen=workspace.seen, with_code=True)
                await host.changed()
                taken = []
                for number in range(calls + WARM_UP):
                    request = CallRequest(
                        "prices:discount",
                        {"price": number, "percent": 25},
                        Caller("somebody", "benchmark", "benchmark"),
                    )
                    begin = time.perf_counter()
                    outcome = await host.gate.call(request)
                    taken.append((time.perf_counter() - begin) * 1000)
                    if not isinstance(outcome, Completed):
                        raise RuntimeError(f"a call was refused: {outcome}")
        taken = sorted(taken[WARM_UP:])
        found[f"{permission} p50"] = round(statistics.median(taken), 3)
        found[f"{permission} p99"] = round(taken[int(len(taken) * 0.99)], 3)
    return found


def main() -> int:
    """Reads the command line, measures, prints."""
    parser = argparse.ArgumentParser(description="What a code tool's governed call takes.")
    parser.add_argument("--calls", type=int, default=500)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="packhost-bench-") as folder:
        os.environ["XDG_STATE_HOME"] = f"{folder}/state"
        try:
            found = anyio.run(measure, Path(folder), options.calls)
        except Exception as error:
            print(f"the benchmark did not run: {error!r}", file=sys.stderr)
            return 1
    if options.json:
        print(json.dumps({**found, "goal": GOAL}, indent=2))
        return 0
    for name, value in found.items():
        verdict = "" if "p99" in name else "  met" if value <= GOAL else "  missed"
        print(f"{name:12}{value:9.3f} ms{verdict}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
