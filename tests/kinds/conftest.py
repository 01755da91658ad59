"""Tools of kind `python`, shipped and from elsewhere, and what their handlers are given."""

from __future__ import annotations

import os
import textwrap
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from packhost.errors import PackhostError, ScopeDenied
from packhost.kinds.base import PackFacts, Tool
from packhost.kinds.fetch import FetchRequest, fetch
from packhost.kinds.python import PythonKind
from packhost.kinds.reply import FetchReply
from packhost.manifest.model import ToolSpec
from packhost.names import ToolId
from packhost.rules.scopes import Layer, parse_scope
from packhost.sandbox import landlock
from packhost.sandbox.paths import FileBroker


@dataclass
class FakeContext:
    """A context that remembers what was asked of it."""

    files: FileBroker
    config: Mapping[str, Any] = field(default_factory=lambda: {"greeting": "hello"})
    tool: str = "pack:tool"
    call_id: str = "call_1"
    run_id: str = "run_1"
    layers: tuple[Layer, ...] = ()
    session_id: str = "session"
    principal: str = "somebody"
    client: str = "a client"
    host: None = None
    progress: list[tuple[float, float | None, str | None]] = field(default_factory=list)
    calls: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)

    async def report_progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        self.progress.append((progress, total, message))

    async def call_tool(self, tool: str, arguments: Mapping[str, Any]) -> Any:
        self.calls.append((tool, arguments))
        if tool == "other:asks":
            raise PackhostError(
                "a person is asked", code="APPROVAL_REQUIRED", refusal={"approval_id": "appr_1"}
            )
        return {"echo": arguments}

    async def fetch(
        self, url: str, *, method: str = "GET", headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> FetchReply:
        return await fetch(FetchRequest(url, method, headers or {}, body), self.layers)

    def secret(self, name: str) -> str:
        if name != "TOKEN":
            raise ScopeDenied(f"`secret {name}` is not covered", layer="manifest", patterns=())
        return "s3cret"


MakeTool = Callable[..., Tool]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace's folder with one file."""
    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "notes.txt").write_text("some notes")
    return folder


@pytest.fixture(params=["confined", "plain"])
async def kind(root: Path, request: pytest.FixtureRequest, anyio_backend: str) -> AsyncIterator[PythonKind]:
    """The kind under test, with what the kernel enforces and as on a system that enforces nothing."""
    found = PythonKind(root, abi=None if request.param == "confined" else 0)
    yield found
    await found.close()


@pytest.fixture
async def plain(root: Path, anyio_backend: str) -> AsyncIterator[PythonKind]:
    """The kind on a system that enforces nothing."""
    found = PythonKind(root, abi=0)
    yield found
    await found.close()


@pytest.fixture
async def confined(root: Path, anyio_backend: str) -> AsyncIterator[PythonKind]:
    """The kind where the kernel enforces everything."""
    if landlock.detect() < landlock.SCOPES:
        pytest.skip("this kernel does not enforce everything")
    found = PythonKind(root)
    yield found
    await found.close()


@pytest.fixture
def context(root: Path) -> Iterator[FakeContext]:
    """A context whose files are bound to `*.txt`."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    scopes = tuple(parse_scope(line) for line in ("path read *.txt", "path write *.txt"))
    layers = (Layer("bound", scopes),)
    yield FakeContext(FileBroker(descriptor, layers), layers=layers)
    os.close(descriptor)


@pytest.fixture
def make_tool(tmp_path: Path) -> MakeTool:
    """Makes a tool from the source of its handler."""

    def make(
        source: str = "",
        *,
        target: str = "tools:handle",
        shipped: bool = False,
        scopes: tuple[str, ...] = (),
        **more: Any,
    ) -> Tool:
        folder = tmp_path / "pack"
        folder.mkdir(exist_ok=True)
        (folder / "tools.py").write_text(textwrap.dedent(source))
        spec = ToolSpec(
            name="tool", description="A tool.", kind="python", target=target, permission="write", **more
        )
        pack = PackFacts(
            id="pack",
            version="1",
            title="Pack",
            digest="0",
            folder=None if shipped else folder,
            shipped=shipped,
            trusted=False,
            config_key=None,
        )
        return Tool(ToolId("pack", "tool"), spec, pack, tuple(parse_scope(line) for line in scopes), "1")

    return make
