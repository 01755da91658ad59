"""The files in which clients keep their MCP servers: which client's a file is, and where in it they stand."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from packhost.clients.jsonc import Json
from packhost.clients.toml import Toml
from packhost.errors import ConfigInvalid, Place

Client = Literal["claude-code", "cursor", "vscode", "codex", "claude-desktop"]
CLIENTS: Final[tuple[Client, ...]] = ("claude-code", "cursor", "vscode", "codex", "claude-desktop")
TITLES: Final[Mapping[Client, str]] = {
    "claude-code": "Claude Code",
    "cursor": "Cursor",
    "vscode": "VS Code",
    "codex": "Codex",
    "claude-desktop": "Claude Desktop",
}
LARGEST: Final = 16 * 1024 * 1024
"""Bytes of the largest file of a client that is read."""
_BOM: Final = "\ufeff"


@dataclass(frozen=True, slots=True)
class Section:
    """Where in a client's file servers stand, and what a reference to a variable looks like there."""

    client: Client
    path: tuple[str, ...]
    scope: str = ""
    """Which part of the file it is, where a file has several."""


class ClientFile:
    """A client's file under change. `path` is the file itself, past any link; `original` its bytes.

    Raises `ConfigInvalid` for a file that cannot be read or is none of a client's.
    """

    def __init__(self, path: Path, root: Path, client: Client | None = None) -> None:
        self.named = path
        self.path = Path(os.path.realpath(path.expanduser()))
        self.original, self.mode = _read(self.path, path)
        text = _decoded(self.original, str(path))
        self._mark = _BOM if text.startswith(_BOM) else ""
        text = text.removeprefix(_BOM)
        self.document: Json | Toml
        if client == "codex" or (client is None and self.path.suffix == ".toml"):
            self.document = Toml(text, str(path))
        else:
            self.document = Json(text if text.strip() else "{}\n", str(path))
        self.sections = _sections(self.path, self.document, root, client)

    @property
    def client(self) -> Client:
        """Whose file it is."""
        return self.sections[0].client

    @property
    def changed(self) -> bytes:
        """The file's content as changed so far."""
        return (self._mark + self.document.text).encode("utf-8")

    def servers(self, section: Section) -> dict[str, Any]:
        """The entries of a section by name, as they stand."""
        found: Any = self.document.data
        for step in section.path:
            found = found.get(step) if isinstance(found, Mapping) else None
        return {str(name): one for name, one in found.items()} if isinstance(found, Mapping) else {}

    def twice(self, section: Section) -> list[str]:
        """Names that stand twice in a section."""
        return self.document.twice(section.path) if isinstance(self.document, Json) else []

    def put(self, section: Section, name: str, entry: Mapping[str, Any]) -> None:
        """Make a server's entry this one."""
        if isinstance(self.document, Toml):
            self.document.put((section.path[0], name), entry)
        else:
            self.document.put((*section.path, name), dict(entry))

    def drop(self, section: Section, name: str) -> None:
        """Take a server's entry out, however often it stands there."""
        if isinstance(self.document, Toml):
            self.document.drop((section.path[0], name))
            return
        while name in (self.document.get(section.path) or {}):
            self.document.drop((*section.path, name))

    def inputs(self) -> dict[str, Mapping[str, Any]]:
        """VS Code's questions by id."""
        data: Any = self.document.data
        if self.sections[0].path[0] == "mcp":
            data = data.get("mcp", {})
        given = data.get("inputs") if isinstance(data, Mapping) else None
        asked = given if isinstance(given, list) else []
        return {str(one.get("id")): one for one in asked if isinstance(one, Mapping)}


def _read(path: Path, named: Path) -> tuple[bytes, int]:
    try:
        with path.open("rb") as file:
            facts = os.fstat(file.fileno())
            content = file.read(LARGEST + 1) if stat.S_ISREG(facts.st_mode) else None
    except OSError as error:
        said = (error.strerror or "it failed").lower()
        raise ConfigInvalid(
            f"`{named}` cannot be read: {said}", hint="name a client's file, such as .mcp.json"
        ) from None
    if content is None or len(content) > LARGEST:
        raise ConfigInvalid(f"`{named}` is no client's file", hint="name one such as .mcp.json")
    return content, stat.S_IMODE(facts.st_mode)


def _decoded(content: bytes, name: str) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise ConfigInvalid(
            "the file is not UTF-8 text", place=Place(name), hint="save it as UTF-8"
        ) from None


def _sections(path: Path, document: Json | Toml, root: Path, client: Client | None) -> tuple[Section, ...]:
    if isinstance(document, Toml):
        return (Section("codex", ("mcp_servers",)),)
    data = document.data
    if not isinstance(data, Mapping):
        raise ConfigInvalid(
            "a client's file holds an object", place=Place(str(path)), hint="name one such as .mcp.json"
        )
    if client == "vscode" or (client is None and _is_vscode(path, data)):
        return (_vscode(path, data),)
    whose = client or _owner(path)
    found = [Section(whose, ("mcpServers",), "for every project" if path.name == ".claude.json" else "")]
    projects = data.get("projects")
    if path.name == ".claude.json" and isinstance(projects, Mapping):
        own = [name for name in projects if os.path.realpath(name) == os.path.realpath(root)]
        found += [
            Section("claude-code", ("projects", name, "mcpServers"), "for this project") for name in own
        ]
    if client is None and not any(document.get(one.path) is not None for one in found):
        raise ConfigInvalid(
            "the file has no `mcpServers`, `servers` or `mcp_servers`",
            place=Place(str(path)),
            hint="name a client's file, such as .mcp.json",
        )
    return tuple(found)


def _is_vscode(path: Path, data: Mapping[str, Any]) -> bool:
    nested = data.get("mcp")
    return (
        path.parent.name == ".vscode"
        or ("servers" in data and "mcpServers" not in data)
        or (isinstance(nested, Mapping) and "servers" in nested)
    )


def _vscode(path: Path, data: Mapping[str, Any]) -> Section:
    if path.name == "settings.json" or ("mcp" in data and "servers" not in data):
        return Section("vscode", ("mcp", "servers"))
    return Section("vscode", ("servers",))


def _owner(path: Path) -> Client:
    if path.parent.name == ".cursor":
        return "cursor"
    return "claude-desktop" if path.name == "claude_desktop_config.json" else "claude-code"
