"""The kind `mcp` with a server of our own upstream, which does what a test wants of it."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
import upstream_server

from packhost.kinds.assets import Asset
from packhost.kinds.base import PackFacts, Tool
from packhost.kinds.content import Content
from packhost.kinds.context import Elicitation, Elicited
from packhost.kinds.mcp.kind import McpKind
from packhost.kinds.mcp.pins import PINS_FILE, live_pins, pins_text
from packhost.manifest.model import ToolSpec
from packhost.manifest.upstream import UpstreamSpec
from packhost.names import ToolId
from packhost.sandbox.probe import Proof, prove

SERVER = upstream_server.__file__


class Kept:
    """Assets in memory."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    async def keep(self, data: bytes, media_type: str, *, session_id: str, principal: str) -> Asset:
        handle = f"packhost-asset://asset_{len(self.kept)}"
        self.kept[handle] = data
        return Asset(handle, media_type, len(data), "")


@dataclass
class Context:
    """A call's context: remembers what was said, and answers what is asked."""

    principal: str = "ann"
    client: str = "a client"
    session_id: str = "s-1"
    answers: list[Elicited] = field(default_factory=list)
    asked: list[Elicitation] = field(default_factory=list)
    steps: list[tuple[float, float | None, str | None]] = field(default_factory=list)
    lines: list[tuple[str, Any, str | None]] = field(default_factory=list)
    progress: object = True
    logged: object = True
    assets: Kept = field(default_factory=Kept)
    waits: anyio.Event = field(default_factory=anyio.Event)
    patience: anyio.Event | None = None

    @property
    def host(self) -> Any:
        return SimpleNamespace(assets=self.assets)

    async def elicit(self, wanted: Elicitation) -> Elicited:
        self.asked.append(wanted)
        self.waits.set()
        if self.patience is not None:
            await self.patience.wait()
        return self.answers.pop(0)

    async def report_progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        self.steps.append((progress, total, message))

    async def log(self, level: Any, data: Any, logger: str | None = None) -> None:
        self.lines.append((level, data, logger))


class World:
    """Packs with servers upstream, and calls to them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "work"
        self.state = folder / "state"
        self.root.mkdir()
        self.state.mkdir()
        self.secrets: dict[str, str] = {}
        self.proof: Proof | None = None
        self.kind = McpKind(
            self.root,
            self.state,
            resolve=self.secrets.__getitem__,
            redact=self._redact,
            proof=lambda: self.proof,
        )

    def _redact(self, text: str) -> str:
        for value in self.secrets.values():
            text = text.replace(value, "[REDACTED]")
        return text

    def server(self, *flags: str, pack: str = "up", pins: bool = True, **spec: Any) -> PackFacts:
        """A pack whose server is our own, started with these flags."""
        line = (sys.executable, "-I", "-S", SERVER, *map(str, flags))
        return self.pack(UpstreamSpec(command=line, **spec), self.definitions(*flags) if pins else None, pack)

    def definitions(self, *flags: str) -> Mapping[str, Any]:
        """What our server says of itself when it was not told otherwise yet."""
        tools = int(flags[flags.index("--tools") + 1]) if "--tools" in flags else 0
        server = upstream_server.Server(argparse.Namespace(tools=tools, marks=None, era="legacy"))
        found: list[dict[str, Any]] = []
        cursor: str | None = "0"
        while cursor is not None:
            page = server.listed({"cursor": cursor})
            found += page["tools"]
            cursor = page.get("nextCursor")
        prompts, templates = (
            server.result({"method": f"{part}/list"})[member]  # type: ignore[index]
            for part, member in (("prompts", "prompts"), ("resources/templates", "resourceTemplates"))
        )
        return live_pins(tools=found, prompts=prompts, templates=templates, instructions="Be kind.")

    def pack(self, spec: UpstreamSpec, pins: Mapping[str, Any] | None, pack: str = "up") -> PackFacts:
        """A pack with this block, and with what was accepted of its server."""
        folder = self.folder / pack
        folder.mkdir(exist_ok=True)
        if pins is not None:
            (folder / PINS_FILE).write_bytes(pins_text(pins))
        return PackFacts(
            id=pack,
            version="1",
            title="Up",
            digest=spec.model_dump_json(),
            folder=folder,
            shipped=False,
            trusted=False,
            config_key=None,
            upstream=spec,
        )

    def tool(self, pack: PackFacts, name: str, upstream_name: str | None = None, **spec: Any) -> Tool:
        """A tool of the pack's server."""
        spec.setdefault("permission", "write")
        config = {"upstream_name": upstream_name or name}
        found = ToolSpec(name=name, description=name, kind="mcp", config=config, **spec)
        return Tool(ToolId(pack.id, name), found, pack, (), "1")

    async def call(
        self, pack: PackFacts, name: str, arguments: Mapping[str, Any] | None = None, **more: Any
    ) -> Content:
        """A call, as the gate makes it."""
        context = more.pop("context", None) or Context()
        content: Content = await self.kind.run(self.tool(pack, name, **more), dict(arguments or {}), context)
        return content


def text(content: Content) -> str:
    """The one text of a result."""
    (block,) = content.blocks
    return str(block["text"])


@pytest.fixture
async def world(tmp_path: Path, anyio_backend: str) -> AsyncIterator[World]:
    """The kind, and packs for it; everything is ended afterwards."""
    found = World(tmp_path)
    try:
        yield found
    finally:
        await found.kind.close()


@pytest.fixture
def said() -> Callable[[Content], str]:
    return text


@pytest.fixture
def context() -> type[Context]:
    return Context


@pytest.fixture(scope="session")
def proof() -> Proof:
    """What the kernel enforces here; the tests of it are left out where that is nothing."""
    found = prove((os.path.dirname(os.__file__),))
    if found.level == "advisory":
        pytest.skip(f"the kernel enforces nothing here: {found.detail}")
    return found


def alive(pids: Sequence[int]) -> list[int]:
    """Those of the processes that still run, zombies left out."""
    found = []
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] != "Z":
                    found.append(pid)
        except OSError:
            continue
    return found


@pytest.fixture
def running() -> Callable[[Sequence[int]], list[int]]:
    return alive
