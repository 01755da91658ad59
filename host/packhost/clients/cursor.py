"""Cursor: a block for `.cursor/mcp.json`, and a link that offers to install it."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

from packhost.clients.claude_code import names_server
from packhost.clients.launch import SERVER, Launch

FILE = Path(".cursor/mcp.json")


def block(launch: Launch) -> dict[str, Any]:
    """The content of `.cursor/mcp.json`."""
    return {"mcpServers": {SERVER: {"type": "stdio", **_server(launch)}}}


def deeplink(launch: Launch) -> str:
    """The link that makes Cursor offer to install the server."""
    config = base64.b64encode(json.dumps(_server(launch), separators=(",", ":")).encode()).decode()
    return f"cursor://anysphere.cursor-deeplink/mcp/install?name={SERVER}&config={quote(config, safe='')}"


def configured(root: Path, home: Path) -> list[Path]:
    """The files of Cursor that name packhost: the project's, and the user's."""
    return [path for path in (root / FILE, home / FILE) if names_server(path)]


def _server(launch: Launch) -> dict[str, Any]:
    server: dict[str, Any] = {"command": launch.command, "args": list(launch.arguments)}
    if launch.variables:
        server["env"] = {name: f"${{env:{name}}}" for name in launch.variables}
    return server
