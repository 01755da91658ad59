"""What a server says of itself now, held against what a person accepted of it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from packhost.errors import ConfigInvalid, PackhostError
from packhost.kinds.base import PackFacts, Tool
from packhost.kinds.mcp.pins import (
    PINS_FILE,
    Definition,
    PinChange,
    Pins,
    changed_tools,
    compare,
    live_pins,
    pins_text,
    read_pins,
)
from packhost.kinds.mcp.session import Session
from packhost.workspace.observed import Observed

log = logging.getLogger(__name__)
_ACCEPT = "look at what changed and accept it with `packhost accept`; the pack's other tools go on"

_HOW = {
    "new": "nobody has accepted how its server defines it",
    "changed": "its server defines it otherwise than was accepted",
    "gone": "its server has it no more",
}


class Definitions:
    """One server's definitions; `observed` is where what differs is kept for a person to look at.

    It is kept redacted: a definition that holds a secret cannot be accepted, since it never is the same.
    """

    def __init__(
        self, pack: PackFacts, observed: Observed | None, *, pinned: bool, redact: Callable[[str], str] = str
    ) -> None:
        self._pack = pack
        self._observed = observed
        self._pinned = pinned
        self._redact = redact
        self._accepted: Pins | None = None
        self._changes: Mapping[str, PinChange] = {}
        self._tools: Mapping[str, PinChange] = {}
        self.live: Mapping[str, Definition] = {}
        self.cost = 0.0
        """Seconds that the last look took of the host's own time."""

    async def look(self, session: Session) -> bool:
        """Read all that the server defines, and find what is not as accepted; whether that is news of tools.

        Raises `RpcError` and `Gone` as the server does, `ConfigInvalid` when what was accepted cannot be
        read.
        """
        tools, prompts, templates = await asyncio.gather(
            session.listed("tools/list", "tools"),
            self._part(session, "prompts", "prompts/list", "prompts"),
            self._part(session, "resources", "resources/templates/list", "resourceTemplates"),
        )
        begun = time.thread_time()
        self.live = live_pins(
            tools=tools, prompts=prompts, templates=templates, instructions=session.instructions or None
        )
        before = self._tools.keys()
        if self._pinned:
            accepted = self._accepted_pins()
            self._tools = changed_tools(accepted, self.live)
            self._changes = {one.key: one for one in compare(accepted, self.live)}
            self._tell()
        self.cost = time.thread_time() - begun
        return self._tools.keys() != before

    def withheld(self, tool: Tool) -> str:
        """Why a tool is withheld; empty where it is not, or nothing was looked at yet."""
        change = self._tools.get(tool.spec.config["upstream_name"])
        return "" if change is None else f"{_HOW[change.change]}: `packhost accept` shows it"

    def check(self, tool: Tool) -> None:
        """Raise `PACK_CHANGED` for a tool that the server defines otherwise than was accepted."""
        name = tool.spec.config["upstream_name"]
        change = self._tools.get(name)
        if change is not None:
            raise _withheld(f"`{tool.id}`", change)
        if f"tool:{name}" not in self.live:
            raise PackhostError(
                f"the server of `{tool.id}` has no tool `{name}`",
                code="PACK_CHANGED",
                hint="correct `config.upstream_name` in the pack's manifest",
            )

    def check_prompt(self, name: str) -> None:
        """The same for a prompt."""
        change = self._changes.get(f"prompt:{name}")
        if change is not None:
            raise _withheld(f"the prompt `{name}` of `{self._pack.id}`", change)

    def accepted_of(self, group: str) -> list[Definition]:
        """What was accepted of a group, as far as the server is not known to define it otherwise."""
        if not self._pinned:
            return [one for key, one in self.live.items() if key.startswith(f"{group}:")]
        try:
            accepted = self._accepted_pins()
        except ConfigInvalid:
            return []
        return [
            one
            for key, one in accepted.items()
            if key.startswith(f"{group}:") and (key not in self._changes or not self.live)
        ]

    def headers(self, name: str, arguments: Mapping[str, Any]) -> dict[str, str]:
        """What of a call's arguments goes into headers, as the tool's schema asks for over HTTP."""
        from mcp.shared.inbound import mcp_param_headers, x_mcp_header_map

        schema = self.live.get(f"tool:{name}", {}).get("inputSchema")
        return mcp_param_headers(x_mcp_header_map(schema), arguments) if isinstance(schema, Mapping) else {}

    async def _part(self, session: Session, part: str, method: str, member: str) -> list[dict[str, Any]]:
        return await session.listed(method, member) if session.offers(part) else []

    def _accepted_pins(self) -> Pins:
        if self._accepted is None:
            folder, found = self._pack.folder, b""
            if folder is not None and (folder / PINS_FILE).is_file():
                found = (folder / PINS_FILE).read_bytes()
            self._accepted = read_pins(found) if found else {}
        return self._accepted

    def _shown(self) -> Pins:
        return read_pins(self._redact(pins_text(self.live).decode()).encode())

    def _tell(self) -> None:
        """Keep what differs, for whoever accepts it; forget it once nothing does."""
        if self._observed is None:
            return
        try:
            if not self._changes:
                self._observed.forget(self._pack.id)
            elif self._observed.remember(self._pack.id, self._shown()):
                log.warning("the server of `%s` says other things than were accepted", self._pack.id)
        except ConfigInvalid as error:
            log.warning("%s", error.message)


def _withheld(what: str, change: PinChange) -> PackhostError:
    return PackhostError(f"{what} is withheld: {_HOW[change.change]}", code="PACK_CHANGED", hint=_ACCEPT)
