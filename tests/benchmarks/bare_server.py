"""The other side of the benchmark: the same two tools on a low-level `mcp` server with nothing around them.

`python bare_server.py ROOT MIRROR` serves the folder ROOT on stdio. MIRROR is a JSON file that says how the
governed side declares the tools and what its results look like, so that both sides send the same bytes:
`{"tools": [...], "results": {tool name: structured content}}`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import anyio
from mcp import types
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server


def read_file(root: Path, arguments: dict[str, Any], shape: dict[str, Any]) -> dict[str, Any]:
    """What a reader gets: the file's text in the governed result's shape."""
    return shape | {"content": (root / arguments["path"]).read_text()}


def write_file(root: Path, arguments: dict[str, Any], shape: dict[str, Any]) -> dict[str, Any]:
    """Writes beside the file, flushes, renames and flushes the folder, as the governed tool does."""
    target = root / arguments["path"]
    beside = target.with_name(f".{target.name}.new")
    with beside.open("w") as file:
        file.write(arguments["content"])
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, target)
    folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return shape


def build(root: Path, mirror: dict[str, Any]) -> Server[Any]:
    """A server with the two tools and no check of any kind."""
    tools = [types.Tool.model_validate(tool) for tool in mirror["tools"]]
    shapes = mirror["results"]

    async def list_tools(
        context: ServerRequestContext[Any, Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools)

    async def call_tool(
        context: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        run = read_file if params.name.endswith("_read_file") else write_file
        value = run(root, params.arguments or {}, shapes[params.name])
        content = types.TextContent(type="text", text=json.dumps(value, ensure_ascii=False))
        return types.CallToolResult(content=[content], structured_content=value)

    return Server("bare", version="1", on_list_tools=list_tools, on_call_tool=call_tool)


async def main(root: Path, mirror: dict[str, Any]) -> None:
    """Serves stdio until its end."""
    server = build(root, mirror)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text()))
