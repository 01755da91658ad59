"""Starting a server as its client would, and reading what it says of itself; then it is ended again."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio

from packhost.characters import visible
from packhost.clients.servers import Server
from packhost.kinds.mcp.pins import Pins, live_pins

if TYPE_CHECKING:
    from mcp import Client

PATIENCE: Final = 60.0
"""Seconds that a server may take to answer; the first start of one may download it."""
MOST_TOOLS: Final = 5_000
MOST_PAGES: Final = 200
_AT_ONCE: Final = 4
_TAIL: Final = 400
_PASSED_ON: Final = re.compile(r"(?:PATH|HOME|USER|LOGNAME|SHELL|TERM|LANG|LC_\w+|TMPDIR|TZ)\Z")


@dataclass(frozen=True, slots=True)
class Read:
    """What came of one server: what it says of itself, or why that could not be read."""

    server: Server
    error: str = ""
    pins: Pins = field(default_factory=dict)
    called: str = ""
    """What it calls itself, with its version."""
    protocol: str = ""
    resources: bool = False
    prompts: bool = False
    seconds: float = 0.0


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
            found[number] = await read_server_tools(servers[number], folder, patience)
        told(len(found), len(servers))

    told(0, len(servers))
    async with anyio.create_task_group() as group:
        for number in range(len(servers)):
            group.start_soon(one, number)
    return [found[number] for number in range(len(servers))]


async def read_server_tools(server: Server, folder: Path, patience: float = PATIENCE) -> Read:
    """Start one server and read it; never raises for what the server does."""
    started = time.monotonic()
    with tempfile.TemporaryFile() as errors:
        try:
            with anyio.fail_after(max(patience, server.start_timeout or 0)):
                async with opened(server, folder, errors=errors) as client:
                    return await _read(server, client, started)
        except Exception as error:
            said = _why(error, patience)
            errors.seek(0, os.SEEK_END)
            errors.seek(max(errors.tell() - _TAIL, 0))
            tail = errors.read().decode("utf-8", "replace").strip().split("\n")[-1]
            if tail and server.command:
                said = f"{said}; it wrote `{visible(tail)[:200]}`"
            return Read(server, said, seconds=time.monotonic() - started)


@asynccontextmanager
async def opened(
    server: Server, folder: Path, *, mode: str = "auto", errors: Any = None, **options: Any
) -> AsyncIterator[Client]:
    """A client that is connected to the server, which ends with it; `errors` is where it writes errors.

    `mode` and `options` are those of the SDK's client.
    """
    from mcp import Client  # late: the commands that start no server do without it

    async with (
        _transport(server, folder, errors) as transport,
        Client(transport, mode=mode, **options) as client,
    ):
        yield client


@asynccontextmanager
async def _transport(server: Server, folder: Path, errors: Any) -> AsyncIterator[Any]:
    from mcp.client.sse import sse_client
    from mcp.client.stdio import StdioServerParameters, stdio_client
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared._httpx_utils import create_mcp_http_client

    headers = {name: server.revealed(text) for name, text in server.headers.items()}
    if server.url is None:
        program, *arguments = (server.revealed(word) for word in server.command)
        parameters = StdioServerParameters(
            command=program,
            args=arguments,
            env=environment(server, os.environ),
            cwd=start_folder(server, folder),
        )
        yield stdio_client(parameters, errors) if errors is not None else stdio_client(parameters)
    elif server.sse:
        yield sse_client(server.revealed(server.url), headers=headers)
    else:
        async with create_mcp_http_client(headers=headers) as http:
            yield streamable_http_client(server.revealed(server.url), http_client=http)


def environment(server: Server, environ: Mapping[str, str]) -> dict[str, str]:
    """What a server finds in its environment: what every program needs, and what its entry gives it."""
    given = {name: server.revealed(text) for name, text in server.env.items()}
    return {name: text for name, text in environ.items() if _PASSED_ON.match(name)} | given


def start_folder(server: Server, folder: Path) -> Path:
    """Where it is started."""
    return folder / Path(server.cwd).expanduser() if server.cwd else folder


async def _read(server: Server, client: Client, started: float) -> Read:
    capabilities = client.server_capabilities
    tools = await pages(client.list_tools, "tools")
    prompts = await pages(client.list_prompts, "prompts") if capabilities.prompts else []
    templates: list[Any] = []
    if capabilities.resources:
        templates = await pages(client.list_resource_templates, "resource_templates")
    info = client.server_info
    return Read(
        server,
        pins=live_pins(
            tools=tools, prompts=prompts, templates=templates, instructions=client.instructions or None
        ),
        called=visible(f"{info.name} {info.version}") if info else "",
        protocol=client.protocol_version,
        resources=capabilities.resources is not None,
        prompts=capabilities.prompts is not None,
        seconds=time.monotonic() - started,
    )


async def pages(listing: Callable[..., Awaitable[Any]], member: str) -> list[Any]:
    """Every entry of a listing that comes in pages.

    Raises `ValueError` for one that does not end.
    """
    found: list[Any] = []
    cursor: str | None = None
    for _ in range(MOST_PAGES):
        page = await listing(cursor=cursor)
        found += getattr(page, member)
        cursor = page.next_cursor
        if not cursor:
            return found
        if len(found) > MOST_TOOLS:
            break
    raise ValueError("its list does not end")


def _why(error: BaseException, patience: float) -> str:
    """Why a server could not be read, in a sentence."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    if isinstance(error, TimeoutError):
        return f"it did not answer within {patience:g} seconds"
    if isinstance(error, FileNotFoundError):
        return "its command is not there"
    if isinstance(error, PermissionError):
        return "its command may not be run"
    said = " ".join(str(error).split()) or type(error).__name__
    return f"it cannot be read: {visible(said)[:200]}"
