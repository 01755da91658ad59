"""Signing in to a pack's server from the command line, without a host."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from packhost.app.configuring import present
from packhost.errors import NotFound
from packhost.kinds.mcp.signing import log_in
from packhost.names import nearest


async def sign_in(start: Path | None, pack: str, show: Callable[[str], None]) -> str:
    """Have a person sign in; `show` gets the address to open. What the server calls itself.

    Raises `NotFound` for a pack without a server, and `PackhostError` when it comes to nothing.
    """
    with present(start) as here:
        known = {id: one.pack for id, one in here.configuration.provisions.items() if one.pack.upstream}
        found = known.get(pack)
        if found is None or found.upstream is None:
            near = nearest(pack, known, 1)
            hint = f"did you mean `{near[0]}`?" if near else "`packhost upstream list` shows what there is"
            raise NotFound(f"no enabled pack `{pack}` has an upstream server", hint=hint)
        secrets = here.workspace.secrets
        return await log_in(pack, found.upstream, here.root.state, secrets.resolve, show)
