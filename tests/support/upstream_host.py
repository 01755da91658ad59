"""A process with servers upstream, to be ended in any way: `python upstream_host.py FOLDER SERVERS`.

Each server is deaf to signals and to the end of its input, and leaves a daemon behind. Once all of them run,
`ready` is printed; a line on the standard input ends everything in order.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import upstream_server

from packhost.kinds.base import PackFacts, Tool
from packhost.kinds.mcp.kind import McpKind
from packhost.manifest.model import ToolSpec
from packhost.manifest.upstream import UpstreamSpec
from packhost.names import ToolId


async def main(folder: Path, servers: int) -> None:
    kind = McpKind(folder)
    context: Any = SimpleNamespace(
        principal="ann", client="c", session_id="s", host=None, progress=None, logged=None
    )
    for number in range(servers):
        spawned = folder / f"daemon{number}"
        command = (
            sys.executable,
            "-I",
            "-S",
            upstream_server.__file__,
            "--stubborn",
            "--spawn",
            str(spawned),
        )
        spec = UpstreamSpec(command=command, pinned=False, env={"ORPHANS_OF": str(folder)})
        pack = PackFacts(f"up{number}", "1", "Up", str(number), None, False, False, None, (), spec)
        config = {"upstream_name": "pid"}
        tool = ToolSpec(name="pid", description="pid", kind="mcp", permission="read", config=config)
        await kind.run(Tool(ToolId(pack.id, "pid"), tool, pack, (), "1"), {}, context)
        while not spawned.exists():
            await asyncio.sleep(0.01)
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    await kind.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
