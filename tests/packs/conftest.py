"""Packs in folders and in distributions, real ones on disk."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from packhost.kinds.base import Kind, Tool
from packhost.manifest.model import ToolSpec
from packhost.packs.discover import EntryPoints
from packhost.sandbox.level import Enforcement
from packhost.workspace.root import Root
from packhost.workspace.workspace import Workspace

MANIFEST = """\
packhost: 1
id: {id}
version: "1"
title: {id}
approvals:
  - {{name: go, title: Go}}
tools:
  - name: do_it
    description: Does it.
    kind: {kind}
    target: "{id}:do_it"
    permission: write
    required_approvals: ["{approval}"]
    required_scopes: [path write src/**]
    input_schema: {{type: object, properties: {{path: {{type: string, x-path: write}}}}}}
"""


class Named:
    """A kind that runs nothing; tools whose description says `bad` do not pass its check."""

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    def check(self, spec: ToolSpec, folder: object = None) -> list[str]:
        return ["it is bad"] if "bad" in spec.description else []

    def enforcement(self, tool: Tool) -> Enforcement:
        return "advisory"

    async def run(self, tool: Tool, arguments: object, context: object) -> object:
        return {}

    async def preview(self, tool: Tool, arguments: object, context: object) -> str:
        return ""

    async def close(self) -> None:
        return None


@pytest.fixture
def kinds() -> dict[str, Kind]:
    """The kind `python`, and no other."""
    return {"python": Named("python")}


@pytest.fixture
def named() -> type[Named]:
    """Makes further kinds."""
    return Named


@pytest.fixture
def manifest_text() -> Callable[..., str]:
    """A manifest of a pack by id."""

    def text(pack: str, kind: str = "python", approval: str = "") -> str:
        return MANIFEST.format(id=pack, kind=kind, approval=approval or f"{pack}:go")

    return text


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that packages can be found in."""
    path = tmp_path / "site"
    path.mkdir()
    monkeypatch.syspath_prepend(str(path))
    return path


@pytest.fixture
def install(site: Path, manifest_text: Callable[..., str]) -> Iterator[Callable[..., Path]]:
    """Installs a distribution whose one package holds a pack; returns the package's folder."""
    packages: list[str] = []

    def put(
        pack: str,
        *,
        distribution: str = "",
        package: str = "",
        code: str = "raise RuntimeError('imported')\n",
        manifest: str | None = None,
        listed: bool = True,
    ) -> Path:
        owner, name = distribution or f"dist-{pack}", package or f"pack_{pack}".replace("-", "_")
        packages.append(name.partition(".")[0])
        folder = site.joinpath(*name.split("."))
        folder.mkdir(parents=True)
        for parent in (folder, *folder.parents):
            if parent == site:
                break
            (parent / "__init__.py").write_text(code)
        (folder / "pack.yaml").write_text(manifest_text(pack) if manifest is None else manifest)
        info = site / f"{owner.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {owner}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[packhost.packs]\n{pack} = {name}\n")
        inside = name.replace(".", "/")
        record = f"{inside}/__init__.py,,\n" + (f"{inside}/pack.yaml,,\n" if listed else "")
        (info / "RECORD").write_text(record)
        return folder

    yield put
    for loaded in [one for one in sys.modules if one.partition(".")[0] in packages]:
        del sys.modules[loaded]


@pytest.fixture
def installed(site: Path) -> Callable[[], EntryPoints]:
    """The entry points of what is installed in `site`."""
    return lambda: EntryPoints(importlib.metadata.distributions(path=[str(site)]))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The workspace's root, empty."""
    path = tmp_path / "work"
    path.mkdir()
    return path


@pytest.fixture
def open_workspace(folder: Path, tmp_path: Path) -> Iterator[Callable[..., Workspace]]:
    """Opens the workspace with a packhost.yaml that was accepted."""
    roots: list[Root] = []

    def open_it(body: str, installed: EntryPoints | None = None) -> Workspace:
        (folder / "packhost.yaml").write_text(f"packhost: 1\n{body}")
        environ = {"HOME": str(tmp_path / "home"), "XDG_STATE_HOME": str(tmp_path / "state")}
        roots.append(Root(folder, environ))
        workspace = Workspace(roots[-1], environ=environ, installed=installed)
        workspace.accept(by="person", channel="test")
        return workspace

    yield open_it
    for root in roots:
        root.close()


@pytest.fixture
def pack_folder(folder: Path, manifest_text: Callable[..., str]) -> Callable[..., Path]:
    """Puts a pack's folder into the workspace."""

    def put(name: str, **manifest: str) -> Path:
        path = folder / name
        path.mkdir()
        (path / "pack.yaml").write_text(manifest_text(**{"pack": name, **manifest}))
        (path / f"{name}.py").write_text("raise RuntimeError('imported')\n")
        return path

    return put
