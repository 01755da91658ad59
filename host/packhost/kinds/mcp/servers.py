"""The upstream servers of one host, by their packs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from packhost.errors import NotFound
from packhost.kinds.base import PackFacts, Tool
from packhost.kinds.content import Content
from packhost.kinds.context import CallContext
from packhost.kinds.mcp.calling import call
from packhost.kinds.mcp.connecting import Means
from packhost.kinds.mcp.processes import Processes
from packhost.kinds.mcp.provider import UpstreamProvider
from packhost.kinds.mcp.upstream import Upstream
from packhost.kinds.providing import Announce, Changed
from packhost.names import nearest
from packhost.sandbox.probe import Proof
from packhost.workspace.observed import Observed


class Servers:
    """Each pack's server, made when it is first spoken of and anew when its pack has changed."""

    def __init__(
        self,
        root: Path,
        state: Path | None,
        *,
        resolve: Callable[[str], str],
        redact: Callable[[str], str],
        proof: Callable[[], Proof | None],
        changed: Callable[[], None],
    ) -> None:
        self._processes = Processes()
        self._means = Means(root, self._processes, resolve, proof, state, redact)
        self._redact = redact
        self._changed = changed
        self._observed = Observed(state) if state is not None else None
        self._all: dict[str, Upstream] = {}
        self._announce: dict[str, Announce] = {}
        self._ending: set[asyncio.Task[None]] = set()

    async def call(self, tool: Tool, arguments: Mapping[str, Any], context: CallContext) -> Content:
        """Have a tool's server run it; see `calling.call`."""
        return await call(self.of(tool.pack), tool, arguments, context)

    def of(self, pack: PackFacts) -> Upstream:
        """A pack's server; a former one is ended. Nothing is started by this."""
        found = self._all.get(pack.id)
        if found is not None and found.pack.digest == pack.digest:
            return found
        assert pack.upstream is not None
        if found is not None:
            self._end(found)

        def told(what: Any, uri: str) -> None:
            if what == "tools":
                self._changed()
            elif announce := self._announce.get(pack.id):
                announce(Changed(what, uri))

        self._all[pack.id] = Upstream(pack, pack.upstream, self._means, self._observed, told)
        return self._all[pack.id]

    def provider(self, pack: PackFacts, announce: Announce) -> UpstreamProvider:
        """What a pack's server has beside its tools."""
        self._announce[pack.id] = announce
        return UpstreamProvider(self.of(pack))

    def withheld(self, tool: Tool) -> str:
        """Why a tool is not on offer, as far as its server was looked at."""
        found = self._all.get(tool.pack.id)
        if found is None or found.pack.digest != tool.pack.digest:
            return ""
        return found.definitions.withheld(tool)

    def keep(self, packs: Collection[str]) -> None:
        """End the servers of all other packs."""
        for id in [id for id in self._all if id not in packs]:
            self._announce.pop(id, None)
            self._end(self._all.pop(id))

    def listing(self) -> list[dict[str, Any]]:
        """How each server stands, for people."""
        return [self._all[id].state for id in sorted(self._all)]

    def words(self, pack: str) -> str:
        """What a server printed on its standard error, the latest of it, without secrets.

        Raises `NotFound` for a pack that has none.
        """
        found = self._all.get(pack)
        if found is None:
            near = nearest(pack, self._all, 1)
            hint = f"did you mean `{near[0]}`?" if near else "`packhost upstream list` shows what there is"
            raise NotFound(f"no enabled pack `{pack}` has an upstream server", hint=hint)
        return self._redact(found.words.text())

    async def close(self) -> None:
        """End every server and everything that they started."""
        for upstream in self._all.values():
            upstream.let_go()
        await self._processes.close()
        for upstream in self._all.values():
            await upstream.close()
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _end(self, upstream: Upstream) -> None:
        task = asyncio.get_running_loop().create_task(upstream.close())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
