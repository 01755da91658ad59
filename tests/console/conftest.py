"""A running host of an accepted workspace, for the console and what it stands on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from projects import SETTINGS

from packhost.app.entry import hold
from packhost.app.host import Host
from packhost.cli.run import run
from packhost.store.lock import HostLock
from packhost.workspace.root import Root


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An accepted workspace whose writes are asked first, with a scripted model."""
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    (folder / "packhost.yaml").write_text(SETTINGS)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("CLAUDECODE", "CURSOR_AGENT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(folder)
    assert run(["accept", "--yes"]) == 0
    return folder


@pytest.fixture
def root(project: Path) -> Iterator[Root]:
    """The workspace, held by nobody else."""
    with Root(project) as root, HostLock(root.state) as lock:
        assert lock.acquire()
        yield root


@pytest.fixture
async def host(root: Root, anyio_backend: str) -> AsyncIterator[Host]:
    """A running host of the project, with its socket."""
    async with hold(root) as host:
        yield host
