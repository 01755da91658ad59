"""How long a connection may let the server wait, and how many may wait at once.

Whoever opens connections and sends nothing, or sends a request a byte at a time, or reads no answer, holds
memory and a descriptor. Each of them has a time; and of those from which nothing whole has come yet only so
many stay open, the oldest going first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

FOR_HEAD: Final = 10.0
"""Seconds for a request's line and headers, from the connection's opening or their first byte on."""
FOR_BODY: Final = 60.0
"""Seconds for the rest of a request."""
FOR_READING: Final = 60.0
"""Seconds for which an answer may find no room on its way to a client that does not read."""
MOST_SILENT: Final = 256
"""Connections that may be open and have not sent one whole request yet."""


class PatientProtocol(H11Protocol):
    """HTTP/1.1 with an end to waiting."""

    _arriving: asyncio.TimerHandle | None = None
    _leaving: asyncio.TimerHandle | None = None
    _phase: str = ""
    _since: float = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._wait("head", FOR_HEAD)
        # typed by hand: what uvicorn says of its connections differs from release to release
        connections: Iterable[object] = self.connections
        patient = [one for one in connections if isinstance(one, PatientProtocol)]
        silent = [one for one in patient if one.cycle is None]
        if len(silent) > MOST_SILENT:
            min(silent, key=lambda one: one._since).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing more."""
        self._wait("")
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what came, and wait on for what is still missing of it."""
        super().data_received(data)
        state = self.conn.their_state
        if state is h11.IDLE:
            partial = bool(self.conn.trailing_data[0])
            self._wait("head" if partial or self.cycle is None else "", FOR_HEAD)
        else:
            self._wait("body" if state is h11.SEND_BODY else "", FOR_BODY)

    def pause_writing(self) -> None:
        """The client does not read."""
        super().pause_writing()
        if self._leaving is None:
            self._leaving = self.loop.call_later(FOR_READING, self.transport.abort)

    def resume_writing(self) -> None:
        """It reads on."""
        super().resume_writing()
        if self._leaving is not None:
            self._leaving.cancel()
            self._leaving = None

    def _wait(self, phase: str, seconds: float = 0.0) -> None:
        """Wait for a part of a request; one that is waited for already gets no more time."""
        if phase == self._phase:
            return
        if self._arriving is not None:
            self._arriving.cancel()
            self._arriving = None
        self._phase = phase
        if phase:
            self._since = self.loop.time()
            self._arriving = self.loop.call_later(seconds, self._give_up)

    def _give_up(self) -> None:
        if self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete:
            return  # it was answered before it had come whole
        self.transport.abort()
