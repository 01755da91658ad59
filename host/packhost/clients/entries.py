"""packhost's own entry in each client's file."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from packhost.clients.forms import Client
from packhost.clients.launch import SERVER, Launch

_REFERENCE: Final[Mapping[Client, str]] = {
    "claude-code": "${%s}",
    "cursor": "${env:%s}",
    "vscode": "${env:%s}",
}
"""How a client's file refers to a variable of the client's own environment, where it can."""
_TYPED: Final = frozenset({"claude-code", "cursor", "vscode"})


def entry_for(client: Client, launch: Launch) -> dict[str, Any]:
    """The entry that makes the client start this host."""
    found: dict[str, Any] = {"type": "stdio"} if client in _TYPED else {}
    found |= {"command": launch.command, "args": list(launch.arguments)}
    reference = _REFERENCE.get(client)
    env = {name: reference % name for name in launch.variables} if reference else {}
    env |= launch.values
    if client == "codex":
        # else Codex begins without the tools where the start takes a moment
        found["required"] = True
        if launch.variables:
            # Codex hands on only what is named here
            found["env_vars"] = list(launch.variables)
    if env:
        found["env"] = env
    return found


def is_packhost(name: str, entry: Any) -> bool:
    """Whether a client's entry is this server."""
    if name != SERVER or not isinstance(entry, Mapping):
        return False
    arguments = entry.get("args")
    words = [entry.get("command"), *(arguments if isinstance(arguments, list) else [])]
    return any("packhost" in str(word) for word in words) or "packhost" in str(entry.get("url", ""))


def vscode_link(launch: Launch) -> str:
    """The link that makes VS Code offer to install the server."""
    server = {"name": SERVER, **entry_for("vscode", launch)}
    return f"vscode:mcp/install?{quote(json.dumps(server, separators=(',', ':')), safe='')}"


def cursor_link(launch: Launch) -> str:
    """The link that makes Cursor offer to install the server."""
    entry = entry_for("cursor", launch)
    entry.pop("type")
    config = base64.b64encode(json.dumps(entry, separators=(",", ":")).encode()).decode()
    return f"cursor://anysphere.cursor-deeplink/mcp/install?name={SERVER}&config={quote(config, safe='')}"
