"""What a list of tools costs at 10, 1,000 and 5,000 tools, beside a bare `mcp` server with the same ones.

    python tests/benchmarks/lists.py [--counts 10,1000,5000] [--rounds 20] [--json]

Both serve over stdio to the same client, which follows the cursors to the end; they are asked in turn. A
figure is the median of a whole list, the first one apart, which is built. It exits 0 however they
compare.
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

ERAS = {"2026-07-28": "auto", "2025-11-25": "legacy"}
EACH = 500
"""Tools of one pack."""
BARE = """\
import json, sys, anyio
from mcp import types
from mcp.server import Server
from mcp.server.stdio import stdio_server

tools = [types.Tool.model_validate(tool) for tool in json.load(open(sys.argv[1]))]
SIZE = 1000

async def list_tools(ctx, params):
    start = int(params.cursor) if params and params.cursor else 0
    after = str(start + SIZE) if start + SIZE < len(tools) else None
    return types.ListToolsResult(tools=tools[start : start + SIZE], next_cursor=after)

async def main():
    server = Server("bare", on_list_tools=list_tools)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())

anyio.run(main)
"""
TOOL = """\
  - name: tool_{number}
    title: Tool {number}
    description: Looks number {number} up, and says what it found of it in a few words.
    kind: python
    target: found:look
    permission: read
    input_schema:
      type: object
      properties:
        key: {{type: string, description: What is looked up.}}
        limit: {{type: integer, minimum: 1, maximum: 100}}
      required: [key]
"""


@dataclass(frozen=True, slots=True)
class Pair:
    """One comparison, in milliseconds."""

    tools: int
    era: str
    bare: float
    governed: float
    bare_first: float
    governed_first: float

    @property
    def ratio(self) -> float:
        """Governed over bare."""
        return self.governed / self.bare


@contextmanager
def workspace(count: int) -> Iterator[tuple[Path, dict[str, str]]]:
    """An accepted workspace with that many tools, and the environment that it is served in."""
    with tempfile.TemporaryDirectory(prefix="packhost-lists-") as made:
        base = Path(made)
        root = base / "work"
        root.mkdir()
        packs = []
        for first in range(0, count, EACH):
            name = f"pack-{first // EACH}"
            folder = root / name
            folder.mkdir()
            tools = "".join(TOOL.format(number=n) for n in range(first, min(first + EACH, count)))
            head = f'packhost: 1\nid: {name}\nversion: "1"\ntitle: {name}\ntools:\n'
            (folder / "pack.yaml").write_text(head + tools)
            (folder / "found.py").write_text("def look(context, arguments):\n    return arguments\n")
            packs.append(f"{{path: ./{name}}}")
        settings = (
            f"packhost: 1\npacks: [{', '.join(packs)}]\nbound: []\nenforcement: {{require: advisory}}\n"
        )
        (root / "packhost.yaml").write_text(settings)
        # an agent's shell may run this, in which nothing is accepted
        shell = {
            name: value for name, value in os.environ.items() if name not in ("CLAUDECODE", "CURSOR_AGENT")
        }
        environ = {**shell, "XDG_STATE_HOME": str(base / "state")}
        command = [sys.executable, "-m", "packhost", "accept", "--yes", "-w", str(root)]
        subprocess.run(command, env=environ, check=True, stdout=subprocess.DEVNULL)
        yield root, environ


async def listed(client: Client) -> tuple[float, list[dict[str, Any]]]:
    """The time of a whole list in milliseconds, and its tools."""
    began = time.perf_counter()
    tools: list[Any] = []
    cursor = None
    while True:
        page = await client.list_tools(cursor=cursor, cache_mode="bypass")
        tools += page.tools
        cursor = page.next_cursor
        if cursor is None:
            break
    took = (time.perf_counter() - began) * 1000
    return took, [tool.model_dump(by_alias=True, mode="json", exclude_none=True) for tool in tools]


async def measure(count: int, era: str, rounds: int) -> Pair:
    """Ask both in turn."""
    with workspace(count) as (root, environ), tempfile.TemporaryDirectory() as aside:
        governed = StdioServerParameters(
            command=sys.executable, args=["-m", "packhost", "serve", "-w", str(root)], env=environ
        )
        mode: Any = ERAS[era]
        async with Client(governed, mode=mode) as ours:
            first, tools = await listed(ours)
            assert len(tools) == count + 2, f"{len(tools)} tools are listed"
            mirror, script = Path(aside) / "tools.json", Path(aside) / "bare.py"
            mirror.write_text(json.dumps(tools))
            script.write_text(BARE)
            bare = StdioServerParameters(command=sys.executable, args=[str(script), str(mirror)])
            async with Client(bare, mode=mode) as theirs:
                bare_first, _ = await listed(theirs)
                both = [((await listed(theirs))[0], (await listed(ours))[0]) for _ in range(rounds)]
    medians = (statistics.median(side) for side in zip(*both, strict=True))
    return Pair(count, era, *medians, bare_first, first)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--counts", default="10,1000,5000")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    counts = [int(count) for count in options.counts.split(",")]
    pairs = [anyio.run(measure, count, era, options.rounds) for count in counts for era in ERAS]
    if options.json:
        print(json.dumps([asdict(pair) for pair in pairs]))
        return 0
    print("tools  era         bare ms  governed ms  ratio  first: bare ms  governed ms")
    for one in pairs:
        print(
            f"{one.tools:5}  {one.era}  {one.bare:7.1f}  {one.governed:11.1f}  {one.ratio:4.2f}x"
            f"  {one.bare_first:14.1f}  {one.governed_first:11.1f}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
