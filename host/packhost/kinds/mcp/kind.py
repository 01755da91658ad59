"""The kind `mcp`: a tool that is one of an upstream MCP server's.

Nothing is started before a tool is called, and what a server needs is imported then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packhost.errors import NotFound
from packhost.kinds.base import Located, PackFacts, Tool
from packhost.kinds.context import CallContext
from packhost.kinds.providing import Announce, Provider
from packhost.manifest.model import PackManifest, ToolSpec
from packhost.manifest.upstream import KIND
from packhost.names import nearest
from packhost.sandbox.level import Enforcement
from packhost.sandbox.probe import Proof

if TYPE_CHECKING:
    from packhost.kinds.mcp.servers import Servers

_KEYS = ("upstream_name",)


class McpKind:
    """Sends calls to the servers of their packs."""

    name = KIND

    def __init__(
        self,
        root: Path,
        state: Path | None = None,
        *,
        resolve: Callable[[str], str] | None = None,
        redact: Callable[[str], str] = str,
        proof: Callable[[], Proof | None] = lambda: None,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """`root` is the workspace, `state` where what servers say of themselves is kept.

        `resolve` gives a secret's value, `proof` what the kernel can enforce; `changed` is told when other
        tools are withheld than before.
        """
        self._root = root
        self._state = state
        self._resolve = resolve or _no_secret
        self._redact = redact
        self._proof = proof
        self._changed = changed
        self.revision = 0
        """How often other tools were withheld than before."""
        self._servers: Servers | None = None

    def check(self, spec: ToolSpec, folder: Path | None = None) -> list[str]:
        """What is wrong with a tool's `config`, a sentence each."""
        return list(_problems(spec))

    def describe(self, spec: ToolSpec) -> str:
        """The server's own name of the tool; see `Describing`."""
        return f"the tool `{spec.config.get('upstream_name')}` of the pack's upstream server"

    def enforcement(self, tool: Tool) -> Enforcement:
        """`advisory` for a command in no sandbox, what was proved for one in the kernel's.

        A server by URL is only ever sent requests, which is packhost's own doing: `host`.
        """
        upstream = tool.pack.upstream
        if upstream is None:
            return "advisory"
        if upstream.url is not None:
            return "host"
        found = self._proof() if upstream.sandbox == "kernel" else None
        return "advisory" if found is None else found.level

    async def run(self, tool: Tool, arguments: dict[str, Any], context: CallContext) -> Any:
        """Have the server run the call, started where it is not; see `Kind.run`.

        :raises PackhostError: `PACK_CHANGED` for a tool that is not what was accepted, `TOOL_FAILED` with
            the server's words or for one that cannot be had, `EFFECTS_UNKNOWN` for a call that was cut off.
        """
        return await self.servers.call(tool, arguments, context)

    async def preview(self, tool: Tool, arguments: dict[str, Any], context: CallContext) -> str:
        """The arguments say it all."""
        return ""

    def provider(self, pack: PackFacts, manifest: PackManifest, announce: Announce) -> Provider | None:
        """The resources and prompts of a pack's server; see `Providing`."""
        return None if pack.upstream is None else self.servers.provider(pack, announce)

    def withheld(self, tool: Tool) -> str:
        """Why the server's tool is not on offer, as far as is known; see `Withholding`."""
        return "" if self._servers is None else self._servers.withheld(tool)

    def _told(self) -> None:
        self.revision += 1
        self._changed()

    def keep(self, packs: Collection[str]) -> None:
        """End the servers of packs that are not among these any more."""
        if self._servers is not None:
            self._servers.keep(packs)

    @property
    def servers(self) -> Servers:
        """The servers of every pack."""
        if self._servers is None:
            from packhost.kinds.mcp.servers import Servers  # only where a pack has a server

            self._servers = Servers(
                self._root,
                self._state,
                resolve=self._resolve,
                redact=self._redact,
                proof=self._proof,
                changed=self._told,
            )
        return self._servers

    async def close(self) -> None:
        """End every server, and all that they started."""
        if self._servers is not None:
            servers, self._servers = self._servers, None
            await asyncio.shield(servers.close())


def _no_secret(name: str) -> str:
    raise NotFound(f"there is no secret `{name}`", hint="")


def _problems(spec: ToolSpec) -> Iterator[str]:
    if spec.target is not None:
        yield Located(
            "`target` is for kind `python`: the pack's `upstream` says which server it is", ("target",)
        )
    name = spec.config.get("upstream_name")
    if not isinstance(name, str) or not name:
        message = "`config.upstream_name` is missing: write the tool's name as its server has it"
        yield Located(message, ("config",))
    for key in spec.config:
        if key not in _KEYS:
            near = nearest(key, _KEYS, 1)
            known = f"did you mean `{near[0]}`?" if near else "there is `upstream_name` alone"
            yield Located(f"`config` of kind `mcp` has no `{key}`: {known}", ("config", key))
