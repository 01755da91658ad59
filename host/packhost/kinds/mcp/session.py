"""One conversation with a server, in either era of the protocol: greeted, then asked for this and that.

The stateless era says with each request what the session-based ones agree on once; a server that needs input
there answers a request by what it needs, and the request is made again with the answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version as installed_version
from typing import Any, Final, Literal

from packhost.kinds.mcp.peer import INTERNAL, NO_METHOD, Advance, Gone, NoAnswer, Peer, RpcError

Era = Literal["auto", "modern", "legacy"]
MODERN: Final = "2026-07-28"
LEGACY: Final = "2025-11-25"
_SPOKEN: Final = ("2024-11-05", "2025-03-26", "2025-06-18", LEGACY)
_META: Final = "io.modelcontextprotocol/"
_PROBE: Final = 5.0
"""Seconds after which a server that does not answer in the stateless era is greeted in the other."""
_UNSUPPORTED: Final = -32022
MAX_PAGES: Final = 100
MAX_LISTED: Final = 5_000
"""Entries of one list that are looked at."""
LARGEST_LIST: Final = 16 * 1024 * 1024
"""Characters of one list, written as JSON."""
DEEPEST: Final = 200
"""Levels of an answer; clients, too, read only so many."""


class NotSpoken(Exception):
    """The server speaks no version of the protocol that packhost does."""


@dataclass(slots=True)
class Session:
    """A server that has been greeted."""

    peer: Peer
    version: str
    capabilities: Mapping[str, Any]
    server: Mapping[str, Any]
    """Its name and version, its own word."""
    instructions: str
    asks: bool
    """Whether it may ask for input."""
    over_http: bool = False
    listener: asyncio.Task[None] | None = None
    watched: set[str] = field(default_factory=set)

    @property
    def modern(self) -> bool:
        """Whether each request stands by itself."""
        return self.version == MODERN

    def offers(self, part: str) -> bool:
        """Whether the server says that it has tools, resources, prompts, logging or completions."""
        return isinstance(self.capabilities.get(part), Mapping)

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        owner: Any = None,
        advance: Advance | None = None,
        headers: Mapping[str, str] | None = None,
        logs: bool = False,
    ) -> dict[str, Any]:
        """A request's result, which is an object. Raises `RpcError` and `Gone`."""
        if self.modern:
            params = {**(params or {}), "_meta": stamp(self.asks, logs)}
        stamped = self._headers(method, params) | dict(headers or {}) if self.over_http else None
        result = await self.peer.request(method, params, headers=stamped, owner=owner, advance=advance)
        if not isinstance(result, dict):
            raise NoAnswer("its answer is not an object", unsure=True, code=NO_METHOD)
        if _deep(result):
            raise NoAnswer("its answer is nested too deeply", unsure=True)
        return result

    async def ping(self) -> None:
        """Have the server answer something."""
        if self.modern:
            await self.request("server/discover")
        else:
            await self.request("ping")

    async def listed(self, method: str, member: str) -> list[dict[str, Any]]:
        """A whole list, page by page; nothing for one that the server does not have.

        Raises `RpcError`, also for a list that is too large to be looked at, and `Gone`.
        """
        found: list[dict[str, Any]] = []
        cursor: Any = None
        size = 0
        for _ in range(MAX_PAGES):
            try:
                page = await self.request(method, {} if cursor is None else {"cursor": cursor})
            except RpcError as error:
                if error.code == NO_METHOD and cursor is None:
                    return []
                raise
            entries = page.get(member)
            size += len(json.dumps(entries))
            if size > LARGEST_LIST:
                raise RpcError(INTERNAL, f"its answers to {method} are too large")
            found += [one for one in entries if isinstance(one, dict)] if isinstance(entries, list) else []
            cursor = page.get("nextCursor")
            if not isinstance(cursor, str) or len(found) >= MAX_LISTED:
                break
        return found[:MAX_LISTED]

    def listen(self) -> None:
        """In the stateless era: hear of changed lists and of watched resources, from now on."""
        if not self.modern:
            return
        if self.listener is not None:
            self.listener.cancel()
        self.listener = asyncio.get_running_loop().create_task(self._listen())

    async def _listen(self) -> None:
        wanted: dict[str, Any] = {"toolsListChanged": True}
        for part in ("prompts", "resources"):
            if self.offers(part):
                wanted[f"{part}ListChanged"] = True
        if self.watched:
            wanted["resourceSubscriptions"] = sorted(self.watched)
        with contextlib.suppress(RpcError, Gone):
            await self.request("subscriptions/listen", {"notifications": wanted})

    def leave(self) -> None:
        """Stop listening."""
        if self.listener is not None:
            self.listener.cancel()

    def _headers(self, method: str, params: Mapping[str, Any] | None) -> dict[str, str]:
        found = {"mcp-protocol-version": self.version}
        if self.modern:
            from mcp.shared.inbound import NAME_BEARING_METHODS, encode_header_value

            found["mcp-method"] = method
            name = (params or {}).get(NAME_BEARING_METHODS.get(method, ""))
            if isinstance(name, str):
                found["mcp-name"] = encode_header_value(name)
        return found


def _deep(value: Mapping[str, Any]) -> bool:
    level: list[Any] = [value]
    for _ in range(DEEPEST):
        level = [
            inner
            for one in level
            for inner in (one.values() if isinstance(one, dict) else one)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


def stamp(asks: bool, logs: bool = False) -> dict[str, Any]:
    """What a request of the stateless era says of itself."""
    said: dict[str, Any] = {
        f"{_META}protocolVersion": MODERN,
        f"{_META}clientInfo": client_info(),
        f"{_META}clientCapabilities": capabilities(asks),
    }
    if logs:
        said[f"{_META}logLevel"] = "info"
    return said


@functools.cache
def client_info() -> Mapping[str, str]:
    """How packhost introduces itself."""
    return {"name": "packhost", "version": installed_version("packhost")}


def capabilities(asks: bool) -> dict[str, Any]:
    """What a server may ask for: input of a person at most, never the client's model or folders."""
    return {"elicitation": {"form": {}, "url": {}}} if asks else {}


async def greet(peer: Peer, era: Era, *, asks: bool, over_http: bool) -> Session:
    """Agree with a server on how to speak.

    Raises `RpcError` for a server that refuses, `NotSpoken` where no version is spoken by both, `Gone`.
    """
    if era != "legacy":
        found = await _discover(peer, asks, over_http, required=era == "modern")
        if found is not None:
            return found
    return await _initialize(peer, asks, over_http)


async def _discover(peer: Peer, asks: bool, over_http: bool, *, required: bool) -> Session | None:
    headers = {"mcp-protocol-version": MODERN, "mcp-method": "server/discover"} if over_http else None
    request = peer.request("server/discover", {"_meta": stamp(asks)}, headers=headers)
    try:
        result = await asyncio.wait_for(request, None if required else _PROBE)
    except TimeoutError:
        return None
    except RpcError as error:
        if required:
            raise NotSpoken(f"it does not speak {MODERN}: {error.message}") from None
        supported = error.data.get("supported") if isinstance(error.data, Mapping) else None
        if error.code == _UNSUPPORTED and isinstance(supported, list) and not set(supported) & {*_SPOKEN}:
            raise NotSpoken(f"it speaks {', '.join(map(str, supported))[:200]} alone") from None
        return None
    versions = result.get("supportedVersions") if isinstance(result, dict) else None
    if not isinstance(versions, list) or MODERN not in versions:
        if required:
            raise NotSpoken(f"it does not speak {MODERN}")
        return None
    meta = result.get("_meta")
    info = meta.get(f"{_META}serverInfo") if isinstance(meta, Mapping) else None
    return _session(peer, MODERN, result, info, asks, over_http)


async def _initialize(peer: Peer, asks: bool, over_http: bool) -> Session:
    hello = {"protocolVersion": LEGACY, "capabilities": capabilities(asks), "clientInfo": client_info()}
    result = await peer.request("initialize", hello)
    version = result.get("protocolVersion") if isinstance(result, dict) else None
    if version not in _SPOKEN:
        raise NotSpoken(f"it answers in the version `{str(version)[:40]}`")
    session = _session(peer, version, result, result.get("serverInfo"), asks, over_http)
    peer.notify("notifications/initialized")
    if session.offers("logging"):
        with contextlib.suppress(RpcError):
            await session.request("logging/setLevel", {"level": "info"})
    return session


def _session(
    peer: Peer, version: str, result: Mapping[str, Any], info: Any, asks: bool, over_http: bool
) -> Session:
    said, instructions = result.get("capabilities"), result.get("instructions")
    return Session(
        peer,
        version,
        said if isinstance(said, Mapping) else {},
        info if isinstance(info, Mapping) else {},
        instructions if isinstance(instructions, str) else "",
        asks,
        over_http,
    )
