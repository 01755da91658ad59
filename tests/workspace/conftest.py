"""A workspace in a folder of its own, with its state beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from packhost.workspace.root import CONFIG_FILE, Root
from packhost.workspace.workspace import Workspace

PACK = """\
packhost: 1
id: mine
version: "2"
title: Mine
config_key: mine
config_schema:
  type: object
  additionalProperties: false
  properties: {size: {type: integer}}
tools:
  - {name: do_it, description: Does it., kind: python, target: "mine:do_it", permission: write}
"""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """An environment whose home and state lie beside the workspace."""
    (tmp_path / "home").mkdir()
    return {"HOME": str(tmp_path / "home"), "XDG_STATE_HOME": str(tmp_path / "state")}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The workspace's root, empty."""
    path = tmp_path / "work"
    path.mkdir()
    return path


@pytest.fixture
def root(folder: Path, environ: dict[str, str]) -> Iterator[Root]:
    """The root, opened."""
    with Root(folder, environ) as opened:
        yield opened


@pytest.fixture
def write(folder: Path) -> Callable[[str], None]:
    """Writes packhost.yaml below its first line."""

    def put(body: str) -> None:
        (folder / CONFIG_FILE).write_text(f"packhost: 1\n{body}", encoding="utf-8")

    return put


@pytest.fixture
def pack(folder: Path) -> Path:
    """A pack by path, `./mine`, in the workspace."""
    path = folder / "mine"
    path.mkdir()
    (path / "pack.yaml").write_text(PACK, encoding="utf-8")
    (path / "mine.py").write_text("def do_it(context, arguments):\n    return {}\n", encoding="utf-8")
    return path


@pytest.fixture
def opened(root: Root, environ: dict[str, str]) -> Callable[[], Workspace]:
    """Opens the workspace, as a host that starts does."""
    return lambda: Workspace(root, environ=environ)
