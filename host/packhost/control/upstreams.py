"""Operations on the servers that packs have upstream: how they stand, and what they print."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from packhost.control.base import Parts, text


async def listing(parts: Parts, params: Mapping[str, Any]) -> Any:
    """Each pack's server: whether it runs, how it failed; nothing is started for it."""
    return {"upstreams": [] if parts.upstreams is None else parts.upstreams.servers.listing()}


async def logs(parts: Parts, params: Mapping[str, Any]) -> Any:
    """The end of what the server of `pack` printed on its standard error, without secrets."""
    pack = text(params, "pack")
    return {"pack": pack, "text": "" if parts.upstreams is None else parts.upstreams.servers.words(pack)}
