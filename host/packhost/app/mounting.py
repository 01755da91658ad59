"""The console of a host, for whichever server shows it."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from packhost.console.app import Console, own_name
from packhost.control.base import Control
from packhost.transports.peers import strange
from packhost.workspace.root import Root

_NAMED: Final = frozenset({"127.0.0.1", "localhost", "::1"})
"""Loopback addresses to which browsers lead a name below `localhost`."""


def console_of(control: Control, root: Root) -> Console:
    """The console of a workspace's host."""
    return Console(control, own_name(root.hash), own=lambda scope: strange(scope) is None)


def console_at(url: str, root: Root) -> str | None:
    """The origin by which browsers reach the console of a server; `None` when it is none of theirs."""
    address = urlsplit(url)
    return f"http://{own_name(root.hash)}:{address.port}" if address.hostname in _NAMED else None
