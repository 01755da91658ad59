"""Connecting a client to a workspace: its file with packhost in it, and its rules against its own tools."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from packhost.clients.entries import entry_for
from packhost.clients.forms import TITLES, Client, ClientFile
from packhost.clients.jsonc import Json
from packhost.clients.keeping import FileChange
from packhost.clients.launch import SERVER, Launch
from packhost.clients.toml import Toml
from packhost.errors import ConfigInvalid

_PROJECT: Final[Mapping[Client, str]] = {
    "claude-code": ".mcp.json",
    "cursor": ".cursor/mcp.json",
    "vscode": ".vscode/mcp.json",
}
_USER: Final[Mapping[Client, str]] = {
    "claude-code": ".claude.json",
    "cursor": ".cursor/mcp.json",
    "codex": ".codex/config.toml",
}
_CLAUDE_DENIES: Final = (
    "Bash",
    "Read",
    "Edit",
    "Write",
    "NotebookEdit",
    "Glob",
    "Grep",
)
_CURSOR_DENIES: Final = ("Shell(**)", "Read(**)", "Write(**)")


@dataclass(frozen=True, slots=True)
class Target:
    """The file that a client is connected by, and what is said of its own tools."""

    client: Client
    path: Path
    project: bool


def target(client: Client, root: Path, home: Path, *, user: bool) -> Target:
    """Where a client keeps servers: in the project if that can be, but with `user` in one's own file."""
    if client in _PROJECT and not user:
        return Target(client, root / _PROJECT[client], True)
    if client in _USER:
        return Target(client, home / _USER[client], False)
    mac = sys.platform == "darwin"
    base = home / ("Library/Application Support" if mac else ".config")
    if client == "vscode":
        return Target(client, base / "Code/User/mcp.json", False)
    return Target(client, base / "Claude/claude_desktop_config.json", False)


def block(client: Client, launch: Launch) -> dict[str, Any]:
    """What the client's file holds for packhost alone, as data."""
    keys: Mapping[Client, str] = {"vscode": "servers", "codex": "mcp_servers"}
    return {keys.get(client, "mcpServers"): {SERVER: entry_for(client, launch)}}


def as_text(client: Client, launch: Launch) -> str:
    """The same, as the file's text."""
    if client == "codex":
        toml = Toml("", "config.toml")
        toml.put(("mcp_servers", SERVER), entry_for(client, launch))
        return toml.text
    file = Json("{}", "")
    for key, servers in block(client, launch).items():
        file.put((key,), servers)
    return f"{file.text}\n"


def connect(where: Target, root: Path, launch: Launch) -> FileChange | None:
    """The client's file with packhost in it and everything else as it was; `None` where it is so already.

    Raises `ConfigInvalid` for a file that cannot be read or changed.
    """
    path = where.path
    if not path.exists():
        return FileChange(path, as_text(where.client, launch).encode())
    file = ClientFile(path, root, where.client)
    section = file.sections[0]
    entry = entry_for(where.client, launch)
    if file.servers(section).get(SERVER) == entry:
        return None
    file.put(section, SERVER, entry)
    return FileChange(file.path, file.changed, section.path)


def exclusive(where: Target, root: Path, home: Path) -> tuple[list[FileChange], str]:
    """The client's own rules against its own file and shell tools, and a sentence on what they reach.

    Raises `ConfigInvalid` for a file that cannot be read or changed.
    """
    base = root if where.project else home
    name = TITLES[where.client]
    match where.client:
        case "claude-code":
            found = _denied(base / ".claude/settings.json", _CLAUDE_DENIES)
            return found, f"{name} denies itself {', '.join(_CLAUDE_DENIES)}"
        case "cursor":
            file = base / (".cursor/cli.json" if where.project else ".cursor/cli-config.json")
            said = (
                "Cursor's command line denies itself its own tools; in the editor, switch them off yourself"
            )
            return _denied(file, _CURSOR_DENIES, also={"allow": []}), said
        case "codex":
            return [], "Codex runs no shell and writes no file by itself"
        case "vscode":
            return [], f"{name} keeps that in no file: leave only packhost's tools in its tools picker"
    return [], f"{name} has no file or shell tools of its own"


def codex_alone(change: FileChange | None, where: Target) -> FileChange:
    """Codex's file with its shell switched off and its sandbox read-only, beside what `change` made of it."""
    content = change.content if change is not None and change.content is not None else where.path.read_bytes()
    toml = Toml(content.decode("utf-8"), str(where.path))
    before = toml.text
    toml.set(("sandbox_mode",), "read-only")
    toml.set(("features", "shell_tool"), False)
    path = change.path if change is not None else Path(str(where.path.resolve()))
    return FileChange(path, (toml.text if toml.text != before else before).encode())


def _denied(path: Path, rules: tuple[str, ...], also: Mapping[str, Any] | None = None) -> list[FileChange]:
    """The file with these rules among those that it denies."""
    real = path.resolve()
    text = real.read_text(encoding="utf-8") if real.exists() else ""
    file = Json(text if text.strip() else "{}\n", str(path))
    held = file.get(("permissions", "deny")) or []
    if not isinstance(held, list):
        raise ConfigInvalid(f"`permissions.deny` in `{path}` is no list", hint="correct it first")
    missing = [rule for rule in rules if rule not in held]
    for key, value in (also or {}).items():
        if file.get(("permissions", key)) is None:
            file.put(("permissions", key), value)
    if missing:
        file.put(("permissions", "deny"), [*held, *missing])
    return [FileChange(real, file.text.encode())] if missing else []
