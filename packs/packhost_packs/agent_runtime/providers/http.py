"""A turn over a host-owned connection: one request, one bounded reply, no retry.

One deadline bounds everything; the terminal marker of a stream draws it nearer once, to `drain`
seconds from then, and after it only the end of the body is awaited. A body that does not end by
then is cancelled, and the reply stands; so does it when the body breaks off after its marker.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import anyio

from packhost.api import Connection, HttpReply, ToolFailed
from packhost_packs.agent_runtime.faults import ReaderLost, TurnFault
from packhost_packs.agent_runtime.providers.base import Emit, Reply, Snapshot, TurnRequest, unheard
from packhost_packs.agent_runtime.providers.complaints import MAX_BODY, status_fault
from packhost_packs.agent_runtime.providers.protocols import WireProtocol
from packhost_packs.agent_runtime.stream.limits import SafetyLimits, exceeded
from packhost_packs.agent_runtime.stream.machine import StreamMachine

TIMEOUT = 120.0
DRAIN = 2.0


@dataclass(frozen=True, slots=True)
class HttpProvider:
    """`protocol` over `connection`; `timeout` and `drain` in seconds."""

    connection: Connection
    protocol: WireProtocol
    timeout: float = TIMEOUT
    drain: float = DRAIN
    stream: bool = True
    limits: SafetyLimits = field(default_factory=SafetyLimits)

    async def turn(self, request: TurnRequest, *, deadline: float = math.inf, emit: Emit = unheard) -> Reply:
        """One reply; raises `TurnFault`, or `PackhostError` when the request cannot be made."""
        body = self.protocol.body(request, stream=self.stream)
        own = anyio.current_time() + self.timeout
        exchange = _Exchange(self, request, emit)
        with anyio.CancelScope(deadline=min(own, deadline)) as scope:
            return await exchange.run(body, scope)
        if exchange.complete:
            return exchange.finished()
        if deadline < own:
            message = "the run's time was over before the provider had replied"
            raise TurnFault("limit_exceeded", "BUDGET_WALL_CLOCK", message)
        message = f"the provider gave no whole reply within {self.timeout:g} seconds"
        raise TurnFault("provider_error", "TERMINAL_MISSING", message)


class _Exchange:
    """One request and its reply."""

    def __init__(self, provider: HttpProvider, request: TurnRequest, emit: Emit) -> None:
        self._provider = provider
        self._request = request
        self._emit = emit
        self._machine: StreamMachine | None = None

    @property
    def complete(self) -> bool:
        """Whether a streamed reply has had its terminal marker."""
        return self._machine is not None and self._machine.terminal

    def finished(self) -> Reply:
        """The streamed reply; raises `TurnFault` when it breaks the contract."""
        assert self._machine is not None
        return self._machine.finish()

    async def run(self, body: bytes, scope: anyio.CancelScope) -> Reply:
        """Send, read and judge; `scope` is the one that is drawn nearer at the terminal marker."""
        protocol, stream = self._provider.protocol, self._provider.stream
        sent = False
        try:
            async with self._provider.connection.post(
                protocol.path, body, protocol.headers(stream=stream)
            ) as reply:
                sent = True
                if reply.status != 200:
                    raise status_fault(reply.status, reply.headers, await _beginning(reply))
                if stream and not _is_json(reply):
                    whole = await self._read_stream(reply, scope)
                else:
                    whole = await self._read_whole(reply.chunks())
        except ToolFailed as error:
            if not self.complete:
                raise _lost(error, sent) from None
        if self._machine is not None:
            return self._machine.finish()
        return protocol.parse(whole, self._request, self._provider.limits)

    async def _read_stream(self, reply: HttpReply, scope: anyio.CancelScope) -> bytes:
        """Feed the machine; the body itself when it turns out to be one whole document."""
        machine, chunks = None, reply.chunks()
        async for chunk in chunks:
            if machine is None:
                if chunk[:1] == b"{":  # no stream begins so
                    return await self._read_whole(chunks, chunk)
                machine = self._start()
            was = machine.terminal
            snapshots = machine.feed(chunk)
            if machine.terminal and not was:
                scope.deadline = min(scope.deadline, anyio.current_time() + self._provider.drain)
            if self._emit is not unheard:
                await self._show(snapshots)
        if machine is None:
            self._start()
        return b""

    def _start(self) -> StreamMachine:
        self._machine = self._provider.protocol.machine(self._request, self._provider.limits)
        return self._machine

    async def _show(self, snapshots: list[Snapshot]) -> None:
        try:
            for snapshot in snapshots:
                await self._emit(snapshot)
        except ReaderLost:
            message = "whoever read the reply has gone"
            raise TurnFault("client_disconnect", "CLIENT_DISCONNECT", message) from None

    async def _read_whole(self, chunks: AsyncIterator[bytes], first: bytes = b"") -> bytes:
        limit = self._provider.limits.response_bytes
        received = bytearray(first)
        async for chunk in chunks:
            if len(received) + len(chunk) > limit:
                raise exceeded("response_bytes", limit)
            received += chunk
        return bytes(received)


async def _beginning(reply: HttpReply) -> bytes:
    """As much of an error's body as is looked at; a body that breaks off says what it said."""
    received = bytearray()
    chunks: AsyncIterator[bytes] = reply.chunks()
    try:
        async for chunk in chunks:
            received += chunk[: MAX_BODY - len(received)]
            if len(received) >= MAX_BODY:
                break
    except ToolFailed:
        pass
    return bytes(received)


def _is_json(reply: HttpReply) -> bool:
    """Whether a provider that was asked for a stream answers with one whole document."""
    return reply.headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json"


def _lost(error: ToolFailed, answered: bool) -> TurnFault:
    """The fault for a connection that failed; nothing was spent only where nothing was sent."""
    issue = "TERMINAL_MISSING" if answered else "PROVIDER_ERROR_EVENT"
    begun = answered or bool(error.data.get("sent", True))
    return TurnFault("provider_error", issue, error.message, begun=begun)
