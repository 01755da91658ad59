"""What the two streamed protocols share: counting, the terminal marker, and what may follow it.

States: reading, then terminal (the marker came where it may), then finished. After the marker only
line ends may follow; a comment is refused like any other byte, since nothing is left to keep alive.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import packhost_packs.agent_runtime.strict_json as strict_json
from packhost_packs.agent_runtime.faults import TurnFault
from packhost_packs.agent_runtime.providers.base import Reply, Snapshot
from packhost_packs.agent_runtime.providers.complaints import error_fault
from packhost_packs.agent_runtime.stream.limits import SafetyLimits, exceeded
from packhost_packs.agent_runtime.stream.sse import SseDecoder


class StreamMachine(ABC):
    """One streamed reply: `feed` it every chunk, then `finish`. A fault ends it for good."""

    def __init__(self, limits: SafetyLimits) -> None:
        self._limits = limits
        self._decoder = SseDecoder(limits.event_bytes)
        self._bytes = 0
        self._events = 0
        self._shown = 0
        self._snapshots: list[Snapshot] = []
        self._arguments = 0
        self._broken = False
        self.begun = False
        """Whether anything came that a provider charges for."""
        self.terminal = False
        """Whether the reply is complete and only its end of file is awaited."""

    def feed(self, chunk: bytes) -> list[Snapshot]:
        """Take in the next bytes; the latest pieces of the reply, for showing alone. Raises `TurnFault`."""
        if self._broken:
            raise TurnFault("protocol_error", "OUTCOME_NOT_UNIQUE", "the stream has already failed")
        self._snapshots = []
        self._broken = True
        room = self._limits.stream_bytes - self._bytes
        self._bytes += len(chunk)
        for event, data in self._decoder.feed(chunk if len(chunk) <= room else chunk[:room]):
            self._events += 1
            if self._events > self._limits.events:
                raise exceeded("events", self._limits.events)
            if event == "error":
                raise error_fault(data, begun=self.begun)
            if data and self._take(event, data):
                self.terminal = True
                self._decoder.close()
        if len(chunk) > room:
            raise exceeded("stream_bytes", self._limits.stream_bytes)
        self._broken = False
        return self._snapshots

    def finish(self) -> Reply:
        """The reply, once the body has ended or its drain's deadline has passed.

        Raises `TurnFault` when the reply is not complete or breaks the contract.
        """
        if self._broken:
            raise TurnFault("protocol_error", "OUTCOME_NOT_UNIQUE", "the stream has already failed")
        if not self.terminal:
            message = "the stream ended before the provider's terminal marker"
            raise TurnFault("protocol_error", "TERMINAL_MISSING", message, begun=self.begun)
        return self._reply()

    @abstractmethod
    def _take(self, event: str, data: str) -> bool:
        """Take one event in; whether it was the terminal marker."""

    @abstractmethod
    def _reply(self) -> Reply:
        """Judge what was assembled."""

    def _show(self, snapshot: Snapshot) -> None:
        self._shown += 1
        if self._shown > self._limits.snapshots:
            raise exceeded("snapshots", self._limits.snapshots)
        self._snapshots.append(snapshot)

    def _counted(self, fragment: bytes) -> bytes:
        """A piece of a call's arguments, once it is counted."""
        self._arguments += len(fragment)
        if self._arguments > self._limits.argument_bytes:
            raise exceeded("argument_bytes", self._limits.argument_bytes)
        return fragment

    @staticmethod
    def _frame(data: str) -> dict[str, object]:
        frame = strict_json.loads(data, "an event of the stream", "SSE_MALFORMED")
        if not isinstance(frame, dict):
            raise TurnFault("protocol_error", "SSE_MALFORMED", "an event of the stream is not an object")
        return frame
