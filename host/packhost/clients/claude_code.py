"""Claude Code: a line for its own command, and whether it is connected already."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from packhost.clients.launch import SERVER, Launch

FILE = ".mcp.json"


def add_command(launch: Launch) -> str:
    """The `claude mcp add` line; keys stay references, which Claude Code fills in when it starts the host."""
    words = ["claude", "mcp", "add", SERVER]
    for name in launch.variables:
        words += ["-e", f"{name}=${{{name}}}"]
    return shlex.join([*words, "--", launch.command, *launch.arguments])


def configured(root: Path, home: Path) -> list[Path]:
    """The files of Claude Code that name packhost for this workspace: the project's, and the user's."""
    found = [root / FILE] if names_server(root / FILE) else []
    user = home / ".claude.json"
    data = read_json(user)
    projects = data.get("projects", {})
    local = projects.get(str(root), {}) if isinstance(projects, Mapping) else {}
    if _has(data) or (isinstance(local, Mapping) and _has(local)):
        found.append(user)
    return found


def names_server(path: Path) -> bool:
    """Whether a file's `mcpServers` has packhost among them."""
    return _has(read_json(path))


def read_json(path: Path) -> Mapping[str, Any]:
    """The object in a file; empty for a file that is missing or holds anything else."""
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def _has(data: Mapping[str, Any]) -> bool:
    servers = data.get("mcpServers")
    return isinstance(servers, Mapping) and SERVER in servers
