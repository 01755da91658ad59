"""Cursor: whether it is connected already."""

from __future__ import annotations

from pathlib import Path

from packhost.clients.claude_code import names_server

FILE = Path(".cursor/mcp.json")


def configured(root: Path, home: Path) -> list[Path]:
    """The files of Cursor that name packhost: the project's, and the user's."""
    return [path for path in (root / FILE, home / FILE) if names_server(path)]
