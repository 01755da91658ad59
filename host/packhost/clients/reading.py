"""Starting a server as a governed call would, and reading what it says of itself; then it is ended again."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio

from packhost.characters import visible
from packhost.clients.manifests import upstream_block
from packhost.clients.servers import Server
from packhost.errors import PackhostError
from packhost.kinds.base import PackFacts
from packhost.kinds.mcp.connecting import Connection, Means, connect
from packhost.kinds.mcp.peer import Gone, Peer, RpcError
from packhost.kinds.mcp.pins import Pins, live_pins
from packhost.kinds.mcp.pipes import Words
from packhost.kinds.mcp.processes import Processes
from packhost.kinds.mcp.session import LARGEST_LIST, Era, NotSpoken, Session
from packhost.manifest.upstream import UpstreamSpec
from packhost.workspace.secrets import SHORTEST

PATIENCE: Final = 60.0
"""Seconds that a server may take to answer; the first start of one may download it."""
MOST_TOOLS: Final = 5_000
MOST_PAGES: Final = 200
_AT_ONCE: Final = 4


@dataclass(frozen=True, slots=True)
class Read:
    """What came of one server: what it says of itself, or why that could not be read."""

    server: Server
    error: str = ""
    pins: Pins = field(default_factory=dict)
    called: str = ""
    """What it calls itself."""
    resources: bool = False
    prompts: bool = False


class Deaf:
    """Serves a server nothing: whatever it asks while it is looked at is refused."""

    async def answer(self, method: str, params: Mapping[str, Any], peer: Peer) -> Mapping[str, Any]:
        """A ping's answer; raises `RpcError` for anything else."""
        if method == "ping":
            return {}
        raise RpcError(-32601, "nothing is answered here")

    def told(self, method: str, params: Mapping[str, Any], peer: Peer) -> None:
        """Nothing is done about what it tells."""

    def lost(self, peer: Peer, reason: str) -> None:
        """Whoever asks finds out."""


async def read_all(
    servers: Sequence[Server],
    folder: Path,
    *,
    patience: float = PATIENCE,
    told: Callable[[int, int], None] = lambda done, total: None,
) -> list[Read]:
    """Start each server in `folder`, a few at once, and read it; one that fails or hangs harms no other.

    `told` hears how many are done.
    """
    found: dict[int, Read] = {}
    limit = anyio.CapacityLimiter(_AT_ONCE)

    async def one(number: int) -> None:
        async with limit:
            found[number] = await read_tools(servers[number], folder, patience)
        told(len(found), len(servers))

    told(0, len(servers))
    async with anyio.create_task_group() as group:
        for number in range(len(servers)):
            group.start_soon(one, number)
    return [found[number] for number in range(len(servers))]


async def read_tools(server: Server, folder: Path, patience: float = PATIENCE) -> Read:
    """Start one server and read it; never raises for what the server does."""
    words = Words()
    try:
        values = {secret.name: secret.value or "" for secret in server.secrets}
        spec = UpstreamSpec.model_validate(upstream_block(server, resources=False, prompts=False))
        with anyio.fail_after(max(patience, server.start_timeout or 0)):
            async with opened(spec, folder, values.__getitem__, words) as connection:
                found = await _read(server, connection.session)
        if any(_said(value, found) for value in values.values()):
            return Read(server, "what it says of itself holds a secret that it was given")
        return found
    except (PackhostError, RpcError, Gone, NotSpoken, TimeoutError, OSError, ValueError) as error:
        return Read(server, told_why(error, words, patience))


@asynccontextmanager
async def opened(
    spec: UpstreamSpec,
    folder: Path,
    resolve: Callable[[str], str],
    words: Words,
    *,
    era: Era = "auto",
    served: Any = None,
    name: str = "server",
) -> AsyncIterator[Connection]:
    """A greeted server, which is ended at the end with all that it started.

    Raises `Gone`, `RpcError`, `NotSpoken` or `PackhostError`.
    """
    facts = PackFacts(name, "0", name, "", None, False, False, None)
    processes = Processes()
    try:
        means = Means(folder, processes, resolve, lambda: None)
        connection = await connect(facts, spec, means, served or Deaf(), words, era)
        try:
            yield connection
        finally:
            with anyio.CancelScope(shield=True):
                await connection.close()
    finally:
        with anyio.CancelScope(shield=True):
            await processes.close()


def _said(secret: str, read: Read) -> bool:
    """Whether a secret would be written down with what a server says."""
    text = f"{read.called}\n{json.dumps(read.pins, ensure_ascii=False)}"
    return len(secret) >= SHORTEST and json.dumps(secret, ensure_ascii=False)[1:-1] in text


async def _read(server: Server, session: Session) -> Read:
    pins = await look(session)
    return Read(
        server,
        pins=pins,
        called=visible(str(session.server.get("name", "")))[:80],
        resources=session.offers("resources"),
        prompts=session.offers("prompts"),
    )


async def look(session: Session) -> dict[str, Any]:
    """Everything that the server defines.

    Raises `RpcError`, `Gone`, and `ValueError` for a list that does not end.
    """
    parts = {"prompts": "prompts", "resources": "resourceTemplates"}
    methods = {"prompts": "prompts/list", "resources": "resources/templates/list"}
    others = {
        part: await pages(session, methods[part], member) if session.offers(part) else []
        for part, member in parts.items()
    }
    return live_pins(
        tools=await pages(session, "tools/list", "tools"),
        prompts=others["prompts"],
        templates=others["resources"],
        instructions=session.instructions or None,
    )


async def pages(session: Session, method: str, member: str) -> list[dict[str, Any]]:
    """Every entry of a listing; none for one that the server does not have.

    Raises `RpcError`, `Gone`, and `ValueError` for a list that does not end or is too large.
    """
    found: list[dict[str, Any]] = []
    cursor: Any = None
    size = 0
    for number in range(MOST_PAGES):
        try:
            page = await session.request(method, {} if cursor is None else {"cursor": cursor})
        except RpcError as error:
            if error.code == -32601 and not number:
                return []
            raise
        entries = page.get(member)
        size += len(json.dumps(entries))
        if size > LARGEST_LIST:
            raise ValueError("its list is too large")
        found += [one for one in entries if isinstance(one, dict)] if isinstance(entries, list) else []
        cursor = page.get("nextCursor")
        if not isinstance(cursor, str) or not cursor:
            return found
        if len(found) > MOST_TOOLS:
            break
    raise ValueError("its list does not end")


def told_why(error: BaseException, words: Words, patience: float) -> str:
    """Why a server could not be read, in a sentence, with the last that it wrote."""
    if isinstance(error, TimeoutError):
        said = f"it did not answer within {patience:g} seconds"
    else:
        told = error.reason if isinstance(error, Gone) else str(error)
        said = " ".join(visible(told).split())[:200] or type(error).__name__
    lines = [line for line in words.text().strip().split("\n") if line.strip()]
    return f"{said}; it wrote `{visible(lines[-1])[:200]}`" if lines else said
