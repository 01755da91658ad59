"""A turn over a host-owned connection: one request, one bounded reply, one deadline, no retry."""

from __future__ import annotations

from dataclasses import dataclass

import anyio

from packhost.api import Connection
from packhost_packs.agent_runtime.faults import TurnFault
from packhost_packs.agent_runtime.providers import messages
from packhost_packs.agent_runtime.providers.base import MAX_RESPONSE_BYTES, Emit, Reply, TurnRequest, unheard


@dataclass(frozen=True, slots=True)
class MessagesProvider:
    """The Messages protocol over `connection`; `timeout` in seconds bounds a request and its whole reply."""

    connection: Connection
    timeout: float
    max_response_bytes: int = MAX_RESPONSE_BYTES

    async def turn(self, request: TurnRequest, *, deadline: float, emit: Emit = unheard) -> Reply:
        """One reply; raises `TurnFault`, or `PackhostError` when the request cannot be sent."""
        body = messages.request_body(request)
        own = anyio.current_time() + self.timeout
        try:
            with anyio.fail_after(min(own, deadline) - anyio.current_time()):
                status, received = await self._exchange(body)
        except TimeoutError:
            if deadline < own:
                message = "the run's time was over before the provider had replied"
                raise TurnFault("limit_exceeded", "BUDGET_WALL_CLOCK", message) from None
            message = f"the provider gave no whole reply within {self.timeout:g} seconds"
            raise TurnFault("provider_error", "TERMINAL_MISSING", message) from None
        return messages.parse_reply(status, received)

    async def _exchange(self, body: bytes) -> tuple[int, bytes]:
        received = bytearray()
        async with self.connection.post(messages.PATH, body, messages.HEADERS) as reply:
            async for chunk in reply.chunks():
                received += chunk
                if len(received) > self.max_response_bytes:
                    message = f"the provider's reply has more than {self.max_response_bytes} bytes"
                    raise TurnFault("limit_exceeded", "LIMIT_RESPONSE_BYTES", message)
        return reply.status, bytes(received)
