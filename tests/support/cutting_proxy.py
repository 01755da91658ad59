"""A TCP proxy in front of a database that loses the connection at a chosen instant."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

Cut = Literal["none", "reply", "commit", "stall", "refuse"]


class Proxy:
    """Passes everything on until `cut` says otherwise.

    `reply`: the next COMMIT reaches the server and its answer is lost, with the connection. `commit`: the
    next COMMIT is lost, with the connection. `stall`: nothing is passed on any more. `refuse`: every
    connection is ended, and new ones as well. After a lost COMMIT, `after` holds.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self.cut: Cut = "none"
        self.after: Cut = "none"
        self.done = threading.Event()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def refuse(self) -> None:
        """End every connection, and new ones at once."""
        self.cut = "refuse"
        for pair in self._pairs:
            _end(pair)

    def close(self) -> None:
        """End everything."""
        self.refuse()
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                if self.cut == "refuse":
                    client.close()
                    continue
                pair = (client, socket.create_connection(("127.0.0.1", self._target)))
                self._pairs.append(pair)
                muted = threading.Event()
                for pump in (self._up, self._down):
                    threading.Thread(target=pump, args=(pair, muted), daemon=True).start()

    def _up(self, pair: tuple[socket.socket, socket.socket], muted: threading.Event) -> None:
        client, server = pair
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                if self.cut == "stall":
                    continue
                if b"COMMIT\0" in data and self.cut in ("reply", "commit"):
                    lost, self.cut = self.cut, self.after
                    if lost == "commit":
                        break
                    muted.set()
                server.sendall(data)
            if not muted.is_set():
                _end(pair)
                self.done.set()

    def _down(self, pair: tuple[socket.socket, socket.socket], muted: threading.Event) -> None:
        client, server = pair
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                if muted.is_set():
                    break
                if self.cut != "stall":
                    client.sendall(data)
        _end(pair)
        self.done.set()


def _end(pair: tuple[socket.socket, socket.socket]) -> None:
    for end in pair:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()


@contextmanager
def proxied(port: int) -> Iterator[Proxy]:
    """A proxy in front of a port of this machine."""
    proxy = Proxy(port)
    try:
        yield proxy
    finally:
        proxy.close()
