"""What both servers of HTTP stand on: the main one, and that of a console of its own."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Generator
from functools import cache

import uvicorn

from packhost.errors import ConfigInvalid
from packhost.transports.patience import PatientProtocol
from packhost.transports.peers import OWNERS, owners


class PeerProtocol(PatientProtocol):
    """Can tell of each connection whose process opened it; it is looked up when that is first asked."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        client, server = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        known = cache(lambda: owners(client[1], server[1]) if client and server else frozenset())
        self.app_state = {**self.app_state, OWNERS: known}


class Server(uvicorn.Server):
    """Leaves signals to whoever runs it, and tells when it listens."""

    def __init__(self, config: uvicorn.Config, listening: Callable[[], None]) -> None:
        super().__init__(config)
        self._listening = listening

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._listening()


def bind(host: str, port: int) -> socket.socket:
    """A socket at a loopback address, port 0 for any that is free. Raises `ConfigInvalid`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # named, so that asyncio switches Nagle's algorithm off: else each small reply waits for 40 ms
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise ConfigInvalid(
            f"`{host}:{port}` cannot be bound: {error.strerror}", hint="take another port; 0 takes a free one"
        ) from error
    return listener
