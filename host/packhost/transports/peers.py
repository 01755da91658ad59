"""Whose process stands at the other end of a TCP connection on this machine, as Linux tells it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_GONE: Final = frozenset({"06", "07", "0A"})
"""Time-wait, closed, listening: states without a process that sends."""
NOBODY: Final = -1
"""The owner of an end that no process holds any more: for it the kernel names root, or whoever had it."""

OWNERS: Final = "packhost_peer_owners"
"""Where a connection keeps what tells whose process opened it.

Only one that comes without a token is asked. The answer may come late: as long as the server has its own end,
nobody else can have the other one, and one that was let go of by then is nobody's.
"""
_FORWARDED: Final = frozenset({b"forwarded", b"via", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip"})
"""Headers that a proxy adds: what it hands on is not of its own user."""


def strange(scope: Mapping[str, Any]) -> str | None:
    """Why a request cannot be taken for one of the user's own processes; `None` when it can."""
    if any(name in _FORWARDED for name, _ in scope["headers"]):
        return "a proxy calls, for somebody else"
    look: Callable[[], frozenset[int]] = scope.get("state", {}).get(OWNERS, frozenset)
    known = look()
    if known == {os.getuid()}:
        return None
    if known - {NOBODY}:
        return "another user's process calls"
    if sys.platform != "linux":
        return "this system does not tell whose process calls"
    return "it cannot be told whose process calls"


def owners(client_port: int, server_port: int, tables: tuple[Path, ...] = _TABLES) -> frozenset[int]:
    """The users that own a connection's client end, found by both ports; empty when nothing tells.

    More than one when connections of several loopback addresses share both ports: the caller
    should trust such a connection to none of them. `NOBODY` is among them for an end that its process let
    go of, so that sending and leaving at once makes nobody root.
    """
    found: set[int] = set()
    wanted = (f":{client_port:04X}", f":{server_port:04X}")
    for table in tables:
        try:
            text = table.read_text(encoding="ascii")
        except OSError:
            continue
        for row in text.splitlines()[1:]:
            if wanted[0] not in row:
                continue
            fields = row.split()
            local, remote, state, uid, inode = fields[1], fields[2], fields[3], fields[7], fields[9]
            if local.endswith(wanted[0]) and remote.endswith(wanted[1]) and state not in _GONE:
                found.add(int(uid) if inode != "0" else NOBODY)
    return frozenset(found)
